"""`emlio publish`: serve a folder as a dataset, or as its next generation, at a daemon that runs."""

import argparse
import json
import os
import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from emlio.cli.key_folder import add_example
from emlio.daemon.config import DATASETS_BESIDE, DatasetSource, parse_path
from emlio.daemon.datasets.descriptions import State, description_path, read_state
from emlio.errors import ConfigError, DatasetError, TransportError
from emlio.settings import read_toml
from emlio.store.atomic_file import write_atomically
from emlio.store.bucket.address import ObjectAddress
from emlio.units import counted, format_duration, parse_duration_ns

__all__ = ["HELP", "add_arguments", "run"]

HELP = (
    "Serve a folder at a daemon that runs: as a new dataset, or as the next generation of one. Running jobs keep the "
    "generation that they began with, new jobs get the newest."
)

_EXAMPLE = """\
example:
  emlio publish /data/imagenet-2 imagenet@2 --config /etc/emlio/daemon.toml
"""

_LOOK_EVERY_S = 0.1
_NOTICED_WITHIN_NS = 10_000_000_000
"""A daemon looks each second."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("directory", metavar="DIR", help="the dataset's folder; options may follow it, as in --data")
    parser.add_argument(
        "name", metavar="NAME[@GENERATION]", help="its name for ranks, such as imagenet@2; NAME is NAME@1"
    )
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument(
        "--datasets-dir", metavar="DIR", help="folder of descriptions that the daemon watches, as given to the daemon"
    )
    where.add_argument("--config", metavar="FILE", help="the daemon's configuration file, which names that folder")
    parser.add_argument(
        "--replace",
        action="store_true",
        help="serve this folder in place of another one that has the name and generation already",
    )
    parser.add_argument(
        "--timeout",
        default="1h",
        metavar="TIME",
        help="how long to wait until the daemon serves it; it may have to scan all shards first (default: 1h)",
    )
    add_example(parser, _EXAMPLE)


def run(arguments: argparse.Namespace) -> int:
    """Write the description, and wait until the daemon serves the dataset."""
    try:
        timeout_ns = parse_duration_ns(arguments.timeout)
    except ValueError as error:
        raise ConfigError(f"--timeout: {error}") from error
    source = DatasetSource.named(arguments.name, arguments.directory)
    if isinstance(source.directory, Path) and not source.directory.is_dir():
        raise ConfigError(f"DIR must be the folder of a dataset, got {arguments.directory!r}")
    place = description_path(_folder(arguments), source.full_name)
    before = place.read_bytes() if place.exists() else None
    if not arguments.replace:
        _refuse_another_folder(place, source)
    request = secrets.token_hex(8)
    _write(place, _text(source, request))
    try:
        state = _wait(place, request, timeout_ns)
    except BaseException:
        # What the daemon did not take must not surprise at its next start.
        _restore(place, before)
        raise
    print(
        f"{source.full_name}: {counted(state.records, 'record')} in {counted(state.shards, 'shard')} served from "
        f"{state.directory} by process {state.pid}"
    )
    return 0


def _refuse_another_folder(place: Path, source: DatasetSource) -> None:
    """Raise `ConfigError` if the name and generation are those of another folder."""
    there = read_toml(place).get("path") if place.exists() else None
    if there is not None and there != _lasting(source):
        raise ConfigError(
            f"{source.full_name} is {there!r} already, and jobs that begin with it must all get the same data. Publish the "
            "next generation, or replace this one with --replace"
        )


def _lasting(source: DatasetSource) -> str:
    """Return where the dataset lies, in words that are the same tomorrow."""
    place = source.directory
    return place.with_settings if isinstance(place, ObjectAddress) else os.path.realpath(place)


def _folder(arguments: argparse.Namespace) -> Path:
    if arguments.datasets_dir is not None:
        folder = parse_path(arguments.datasets_dir)
    else:
        config = parse_path(arguments.config)
        table: object = read_toml(config).get("daemon", {})
        named: object = cast("Mapping[str, object]", table).get("datasets-dir") if isinstance(table, Mapping) else None
        folder = parse_path(named) if named is not None else config.parent / DATASETS_BESIDE
    if not folder.is_dir():
        raise ConfigError(
            f"the folder of descriptions must exist, and the daemon must watch it: {folder} does not exist. Make it, and "
            "start the daemon again"
        )
    return folder


def _text(source: DatasetSource, request: str) -> str:
    lines = [f"path = {_quoted(_lasting(source))}", f"id = {_quoted(request)}"]
    if source.options:
        lines.append("[options]")
        lines += [f"{_quoted(name)} = {_quoted(value)}" for name, value in source.options.items()]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    # A basic string of TOML has the escapes of JSON.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _write(place: Path, text: str) -> None:
    try:
        write_atomically(place, (text.encode(),))
    except UnicodeEncodeError as error:
        raise ConfigError(f"DIR must be a path of UTF-8, got {text!r}") from error
    except OSError as error:
        raise ConfigError(f"the description {place} cannot be written: {error.strerror or error}") from error


def _restore(place: Path, before: bytes | None) -> None:
    if before is None:
        place.unlink(missing_ok=True)
    else:
        write_atomically(place, (before,))


def _wait(place: Path, request: str, timeout_ns: int) -> State:
    begun_ns = time.monotonic_ns()
    while True:
        state = read_state(place)
        mine = state is not None and state.request == request
        if state is not None and mine and state.state == "serving":
            return state
        if state is not None and mine and state.state == "failed":
            raise DatasetError(f"the daemon does not serve it: {state.error}")
        waited_ns = time.monotonic_ns() - begun_ns
        if not mine and waited_ns >= min(_NOTICED_WITHIN_NS, timeout_ns):
            raise TransportError(
                f"no daemon has noticed {place} within {format_duration(waited_ns)}. A daemon with "
                f"--datasets-dir {place.parent} must run, and must be able to write there"
            )
        if waited_ns >= timeout_ns:
            raise TransportError(
                f"the daemon has not opened the dataset within {format_duration(timeout_ns)}. Wait longer with --timeout"
            )
        time.sleep(_LOOK_EVERY_S)
