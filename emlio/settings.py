"""Settings of one frozen dataclass, from flags, environment, a TOML file, and defaults.

Sources are listed in order of precedence.

Covers: declaring an option once (`option`), making flags of a dataclass, reading the values, errors
that name the source of a bad value, warnings about variables that set nothing. Does not cover: what
the values mean; the dataclass checks that when it is created.
"""

import argparse
import dataclasses
import difflib
import re
import tomllib
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, TypeVar

from emlio.errors import ConfigError

__all__ = ["add_flags", "ignored_variables", "option", "read_settings", "read_toml"]

_FROM_KUBERNETES = re.compile(r"SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_\w+)?", re.ASCII)
_FROM_KUBERNETES_PORT = re.compile(r"(tcp|udp|sctp)://")
"""Kubernetes describes each service to every container, in variables that begin with the service's
name."""

_Value = TypeVar("_Value")
_Settings = TypeVar("_Settings")


def option(
    default: _Value, text: str, *, parse: Callable[[Any], _Value], metavar: str | None = None, switch: bool = False
) -> _Value:
    """Declare a dataclass field that is also a flag, a variable and a key of a TOML file.

    Args:
        default: its value if no source sets it.
        text: one line for --help, with the reason of the default.
        parse: converts the source's value (a string, or one of TOML's types); raises `ValueError`
            with the reason.
        metavar: the name of the value in --help.
        switch: whether it is a flag without a value.
    """
    metadata = {"text": text, "parse": parse, "metavar": metavar, "switch": switch}
    return dataclasses.field(default=default, metadata=metadata)


def _options(settings: type) -> list[dataclasses.Field[Any]]:
    return [field for field in dataclasses.fields(settings) if "parse" in field.metadata]


def add_flags(parser: argparse.ArgumentParser, settings: type) -> None:
    """Add a flag to `parser` for every option of the dataclass `settings`."""
    for field in _options(settings):
        flag = "--" + field.name.replace("_", "-")
        text = field.metadata["text"].replace("%", "%%")
        if field.metadata["switch"]:
            parser.add_argument(flag, action="store_true", default=None, help=text)
        else:
            parser.add_argument(flag, default=None, metavar=field.metadata["metavar"], help=text)


def read_toml(path: Path) -> Mapping[str, Any]:
    """Return the tables of a TOML file."""
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise ConfigError(f"configuration file {path}: cannot be read: {error.strerror}") from error
    except RecursionError as error:
        raise ConfigError(f"configuration file {path}: nested too deeply") from error
    except ValueError as error:  # not TOML, not UTF-8, or a number that Python does not read
        raise ConfigError(f"configuration file {path}: not valid TOML: {error}{_line(path, str(error))}") from error


def _line(path: Path, fault: str) -> str:
    """Return the line that a fault names, and what most often mends it; "" if it names none."""
    found = re.search(r"at line (\d+)", fault)
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    if found is None or int(found[1]) > len(lines):
        return ""
    line = lines[int(found[1]) - 1].strip()
    quoted = ". Write texts, sizes and durations in quotes" if '"' not in line and "=" in line else ""
    return f", in the line {line[:80]!r}{quoted}"


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
    """Build `settings`. Every error names the flag, the variable or the key with the bad value.

    Args:
        settings: the dataclass.
        flags: the flags from the command line.
        environment: all environment variables.
        prefix: the prefix of the variables of its options.
        table: a table of a TOML file.
        table_name: the name of the table in errors.
        others: fields that are not options.
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


def ignored_variables(
    settings: type,
    *,
    environment: Mapping[str, str],
    prefix: str,
    foreign: Collection[str] = (),
) -> list[str]:
    """Return a warning for each variable that has the prefix and sets nothing.

    The warning names the option whose name is most similar.

    Args:
        settings: the dataclass.
        environment: all environment variables.
        prefix: the prefix of the variables of its options.
        foreign: names after the prefix that another program reads.
    """
    known = [field.name.upper() for field in _options(settings)]
    others = {field.name.upper() for field in dataclasses.fields(settings)}.difference(known)
    found: list[str] = []
    for variable in sorted(environment):
        name = variable.removeprefix(prefix)
        if not variable.startswith(prefix) or name in known or name in foreign:
            continue
        if _FROM_KUBERNETES.fullmatch(name) or (name == "PORT" and _FROM_KUBERNETES_PORT.match(environment[variable])):
            continue
        if name in others:
            advice = "set it with a flag or in a configuration file"
        else:
            advice = f"the most similar setting is {prefix}{difflib.get_close_matches(name, known, n=1, cutoff=0.0)[0]}"
        found.append(f"environment variable {variable} is ignored: no setting is read from it; {advice}")
    return found
