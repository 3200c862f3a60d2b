"""Options of `emlio mount` and `emlio run`.

Imports no NumPy: `emlio run` must have no threads of libraries.
"""

import argparse
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from emlio.arguments import parsed
from emlio.cli.key_folder import add_folder_flag
from emlio.errors import ConfigError
from emlio.units import parse_duration_ns, parse_size

__all__ = ["SEQUENTIAL", "MountOptions", "add_mount_flags", "checked_directory", "options_of"]

SEQUENTIAL = "sequential"

_KERNELS = ("/proc", "/dev", "/sys")


@dataclass(frozen=True, slots=True, kw_only=True)
class MountOptions:
    """The values of the flags.

    Attributes:
        order: a file with paths, "sequential", or None if it is not known.
        window_bytes: of the page cache.
        max_files: that the kernel keeps known.
        timeout_ns: how long reads wait for a daemon that is away.
        folder: the key folder; None for the usual one.
        metrics: the host and port at which they are served; None for nowhere.
    """

    order: str | None
    window_bytes: int
    max_files: int
    timeout_ns: int
    folder: Path | None
    metrics: tuple[str, int] | None = None


def add_mount_flags(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument(
        "--order",
        metavar="FILE|sequential",
        help="file with the paths of files, one a line, in the order in which they will be read: below the dataset's "
        "folder, or as the program opens them; or sequential: all files, folder by folder, sorted by name (default: "
        "unknown until a program reads files in that order, or calls emlio.files.hint)",
    )
    parser.add_argument(
        "--window",
        metavar="SIZE",
        default="256MiB",
        help="page cache for files that are read ahead, at least 8MiB (default: 256MiB)",
    )
    parser.add_argument(
        "--max-files",
        metavar="N",
        type=int,
        default=2_000_000,
        help="files of known orders that the kernel keeps in mind after they were read, with about 1 kB for each; others "
        "are looked up again (default: 2000000)",
    )
    parser.add_argument(
        "--timeout",
        metavar="TIME",
        default="60s",
        help="how long reads wait for a daemon that is away, before they fail (default: 60s)",
    )
    add_folder_flag(parser)


def options_of(arguments: argparse.Namespace) -> MountOptions:
    """Return the values of the flags, checked."""
    order: str | None = arguments.order
    if order not in (None, SEQUENTIAL) and not os.path.isfile(order):
        raise ConfigError(f"--order must be a file with paths, or {SEQUENTIAL}, got {order!r}, which is no file")
    if arguments.max_files < 0:
        raise ConfigError(f"--max-files must be at least 0, got {arguments.max_files}")
    return MountOptions(
        order=None if order is None else order if order == SEQUENTIAL else os.path.abspath(order),
        window_bytes=parsed("--window", parse_size, arguments.window),
        max_files=arguments.max_files,
        timeout_ns=parsed("--timeout", parse_duration_ns, arguments.timeout),
        folder=arguments.folder,
    )


def checked_directory(directory: str) -> str:
    """Return a directory to mount at.

    Raises:
        ConfigError: it is none.
    """
    if not os.path.isdir(directory):
        what = "is no directory" if os.path.lexists(directory) else "does not exist"
        raise ConfigError(f"DIR must be a directory, got {directory!r}, which {what}")
    place = os.path.realpath(directory).rstrip("/") + "/"
    for needed in (*_KERNELS, sys.prefix, sys.base_prefix, os.path.dirname(__file__), tempfile.gettempdir()):
        hides, inside = f"{os.path.realpath(needed)}/".startswith(place), place.startswith(needed + "/")
        if hides or (inside and needed in _KERNELS):
            how = "holds" if hides else "is in"
            raise ConfigError(
                f"DIR must not hide what the mount itself needs, got {directory!r}, which {how} {needed}. Choose "
                "another place"
            )
    return directory
