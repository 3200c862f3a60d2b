"""A synthetic dataset as plain files, with a folder for each class.

    OUT/0007/000000123.jpg      a picture of class 7; records without pictures: .bin

Covers: writing the files, replacing an earlier set of them. Does not cover: the contents
(emlio.prepare.synth).
"""

import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from typing_extensions import Buffer

from emlio.errors import ConfigError, DatasetError
from emlio.progress import Progress

__all__ = ["PlainRecord", "write_files"]

PlainRecord = tuple[int, int, tuple[Buffer, ...]]
"""A record's number, its label, its bytes in parts."""

_MARK: Final = ".emlio-synth"
"""Lies in a folder that was written here: hidden, so that it is no record."""

_AT_ONCE: Final = 4096


def write_files(
    out: Path,
    count: int,
    records: Callable[[int, int], Iterator[PlainRecord]],
    extension: str,
    *,
    workers: int,
    force: bool,
    progress: bool,
) -> None:
    """Write a file for each record.

    Args:
        out: the folder; made if it does not exist.
        count: how many records.
        records: returns records by number, from the first to before the last.
        extension: of the files' names.
        workers: how many threads write.
        force: replace what an earlier call wrote.
        progress: show a line.

    Raises:
        ConfigError: the folder holds anything else.
        DatasetError: the disk is full or broken.
    """
    _prepare(out, force=force)
    made: set[int] = set()
    line = Progress(f"writing {out.name}", count) if progress else None

    def write(first: int) -> int:
        after = min(first + _AT_ONCE, count)
        for number, label, parts in records(first, after):
            folder = out / f"{label:04d}"
            if label not in made:
                folder.mkdir(exist_ok=True)
                made.add(label)
            descriptor = os.open(
                f"{folder}/{number:09d}.{extension}", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666
            )
            try:
                os.writev(descriptor, parts)
            finally:
                os.close(descriptor)
        return after - first

    try:
        with ThreadPoolExecutor(workers, thread_name_prefix="emlio-synth") as pool:
            for done in pool.map(write, range(0, count, _AT_ONCE)):
                if line is not None:
                    line.add(done)
    except OSError as error:
        raise DatasetError(f"{out}: a file cannot be written: {error.strerror or error}") from error
    finally:
        if line is not None:
            line.close()


def _prepare(out: Path, *, force: bool) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
        there = [entry.name for entry in os.scandir(out)]
        if there and (_MARK not in there or not force):
            ours = "a dataset that emlio synth made; --force replaces it" if _MARK in there else f"{sorted(there)[0]}"
            raise ConfigError(f"{out}: must be a new or empty folder, holds {ours}")
        for name in there:
            if name != _MARK:
                shutil.rmtree(out / name)
        (out / _MARK).touch()
    except OSError as error:
        raise DatasetError(f"{out}: cannot be used: {error.strerror or error}") from error
