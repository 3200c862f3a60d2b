"""The data of a task as DLIO makes them, and the empty files that it lists where its loader opens none."""

import os
import shutil
from pathlib import Path
from typing import Final

import numpy as np
from numpy.lib.format import open_memmap

from emlio.errors import ConfigError
from emlio.units import format_size
from emlio_bench.dlio.job import generate
from emlio_bench.dlio.workloads import INDEXED, Task
from emlio_bench.harness.data import make_folder

__all__ = ["ROWS", "made_data", "placeholders_of"]

ROWS: Final = "rows"
"""The folder with the samples of DLIO's one file as EMLIO serves them."""

_ROOM: Final = 1.1


def made_data(task: Task, root: Path, cache: Path) -> Path:
    """Return the folder of the task's data below `root`, made there unless it is from an earlier run."""
    made = root / task.folder
    if made.is_dir():
        return made
    make_folder(root)
    free_bytes = shutil.disk_usage(root).free
    if free_bytes < _ROOM * task.size_bytes:
        raise ConfigError(
            f"{root} must have room for {format_size(task.size_bytes)}, has {format_size(free_bytes)}; choose fewer --steps or "
            "--ranks, or another folder with --data"
        )
    part = root / f"{task.folder}.unfinished"
    shutil.rmtree(part, ignore_errors=True)
    generate(task, part / "data", cache)
    if task.format == INDEXED:
        _write_rows(task, part / "data")
    (part / "data").rename(made)
    shutil.rmtree(part)
    os.sync()  # pages that were not written stay in the page cache, though they are to leave it before an epoch
    return made


def _write_rows(task: Task, data: Path) -> None:
    """Write the samples of DLIO's one file as the rows of an .npy file, which EMLIO serves in their place."""
    (found,) = (data / "train").glob(f"*.{INDEXED}")
    shape = (task.samples, task.row_bytes)
    (data / ROWS).mkdir()
    rows = open_memmap(data / ROWS / "samples.npy", mode="w+", dtype=np.uint8, shape=shape)
    rows[:] = np.memmap(found, np.uint8, mode="r", shape=shape)
    rows.flush()


def placeholders_of(task: Task, data: Path, folder: Path) -> Path:
    """Return a folder with empty files of the same names: DLIO lists a folder even where its loader opens none."""
    for name in ("train", "valid"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for path in (data / "train").glob(f"*.{task.format}"):
        (folder / "train" / path.name).touch()
    return folder
