"""The first start of a daemon on a folder, which indexes it, and a later start.

Covers: both times, for a copy of the folder that no daemon has seen. Does not cover: reading.
"""

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from emlio_bench.formats.subjects import ready_once

__all__ = ["start_seconds"]


def start_seconds(prepared: Path, options: str) -> tuple[float, float]:
    """Return the seconds from a daemon's process to its readiness: at the first start, and at the next one.

    Args:
        prepared: the dataset's folder, in the page cache.
        options: what follows the folder's name when it is served.
    """
    top = prepared.with_name(f"{prepared.name}.unseen")
    shutil.rmtree(top, ignore_errors=True)
    try:
        copy = top / "data"
        shutil.copytree(prepared, copy, copy_function=os.link, ignore=_left_by_daemons)
        first, later = _starts(copy, options)
    finally:
        shutil.rmtree(top, ignore_errors=True)
    return first, later


def _starts(copy: Path, options: str) -> Iterator[float]:
    for _ in range(2):
        begun_ns = time.monotonic_ns()
        with ready_once(copy, options):
            seconds = (time.monotonic_ns() - begun_ns) / 1e9
        yield seconds


def _left_by_daemons(folder: str, names: list[str]) -> set[str]:
    """Return the files that daemons put beside TFRecord files."""
    return {name for name in names if ".tfrecord." in name or name.startswith("mapping_shard_")}
