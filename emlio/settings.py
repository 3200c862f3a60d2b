"""Settings from three places into one frozen dataclass: flags before environment before a TOML file before defaults.

Covers: declaring an option once (`option`), making flags of a dataclass, reading the values, saying where a bad one came from.
Does not cover: what the values mean; a dataclass checks that when it is born.
"""

import argparse
import dataclasses
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from emlio.errors import ConfigError

__all__ = ["add_flags", "option", "read_settings", "read_toml"]

_Value = TypeVar("_Value")
_Settings = TypeVar("_Settings")


def option(
    default: _Value, text: str, *, parse: Callable[[Any], _Value], metavar: str | None = None, switch: bool = False
) -> _Value:
    """A dataclass field that can also be a flag, an environment variable and a key of a TOML file.

    Args:
        default: its value when nobody says anything.
        text: one line for --help; say why the default is what it is.
        parse: from what the place holds (a string, or TOML's own types) to the value; raises `ValueError` with the reason.
        metavar: how --help names the value.
        switch: a flag without a value.
    """
    metadata = {"text": text, "parse": parse, "metavar": metavar, "switch": switch}
    return dataclasses.field(default=default, metadata=metadata)


def _options(settings: type) -> list[dataclasses.Field[Any]]:
    return [field for field in dataclasses.fields(settings) if "parse" in field.metadata]


def add_flags(parser: argparse.ArgumentParser, settings: type) -> None:
    """Give `parser` a flag for every option of the dataclass `settings`."""
    for field in _options(settings):
        flag = "--" + field.name.replace("_", "-")
        text = field.metadata["text"].replace("%", "%%")
        if field.metadata["switch"]:
            parser.add_argument(flag, action="store_true", default=None, help=text)
        else:
            parser.add_argument(flag, default=None, metavar=field.metadata["metavar"], help=text)


def read_toml(path: Path) -> Mapping[str, Any]:
    """The tables of a TOML file."""
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise ConfigError(f"a configuration file must be readable: {path}: {error.strerror}") from error
    except RecursionError as error:
        raise ConfigError(f"a configuration file must be nested less deeply: {path}") from error
    except ValueError as error:  # no TOML, no UTF-8, or a number that Python does not read
        raise ConfigError(f"a configuration file must be TOML: {path}: {error}") from error


def read_settings(
    settings: type[_Settings],
    *,
    flags: Mapping[str, Any],
    environment: Mapping[str, str],
    prefix: str,
    table: Mapping[str, Any],
    table_name: str,
    others: Mapping[str, Any],
) -> _Settings:
    """Build `settings`; `others` are fields that are not options.

    Every error names the flag, the variable or the key that holds the bad value.
    """
    known = {field.name.replace("_", "-") for field in _options(settings)}
    unknown = sorted(set(table) - known)
    if unknown:
        raise ConfigError(f"{table_name}: unknown keys {', '.join(unknown)}; known: {', '.join(sorted(known))}")
    values = dict(others)
    for field in _options(settings):
        flag, variable = field.name.replace("_", "-"), prefix + field.name.upper()
        for place, value in (
            (f"--{flag}", flags.get(field.name)),
            (f"environment variable {variable}", environment.get(variable)),
            (f"{table_name}: {flag}", table.get(flag)),
        ):
            if value is None:
                continue
            try:
                values[field.name] = field.metadata["parse"](value)
            except ValueError as error:
                raise ConfigError(f"{place}: {error}") from error
            break
    return settings(**values)
