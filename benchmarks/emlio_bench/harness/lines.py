"""Files of JSON lines that a collection appends to. It may be ended at any time, within a line, and continued."""

import os
from pathlib import Path
from typing import Any, Final

import msgspec

from emlio.errors import ConfigError

__all__ = ["append_lines", "check_lines", "whole_lines"]

_BEGIN: Final = b'{"run":'
"""The begin of the first line."""


def append_lines(path: Path, encoded: bytes) -> None:
    """Append lines to a file, in place of a last one that is not complete.

    Raises:
        ConfigError: it cannot be written.
    """
    try:
        with path.open("a+b") as file:
            if file.seek(0, os.SEEK_END):
                file.seek(-1, os.SEEK_END)
                if file.read() != b"\n":
                    file.seek(0)
                    file.truncate(file.read().rfind(b"\n") + 1)
            file.write(encoded)
    except OSError as error:
        raise ConfigError(f"collected data must be writable: {path}: {error.strerror}") from error


def check_lines(path: Path, first_kind: Any) -> None:
    """Look whether lines can be appended to a file, which is made if it is absent.

    Raises:
        ConfigError: it cannot be written, or its first line is of another kind.
    """
    try:
        with path.open("a+b") as file:
            file.seek(0)
            first = file.readline()
        if first.endswith(b"\n"):
            msgspec.json.decode(first, type=first_kind)
        elif not first.startswith(_BEGIN[: len(first)]):
            raise ConfigError("its first line is not complete")
    except OSError as error:
        raise ConfigError(f"collected data must be writable: {path}: {error.strerror}") from error
    except (msgspec.DecodeError, ValueError) as error:
        raise ConfigError(
            f"{path} must be a new file, or one of collected data, holds something else: {error}"
        ) from error


def whole_lines(path: Path) -> list[bytes]:
    """Return the lines of a file, without a last one that is not complete.

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        return path.read_bytes().split(b"\n")[:-1]
    except OSError as error:
        raise ConfigError(f"collected data must be readable: {path}: {error.strerror}") from error
