"""The data of an experiment, ready to be read.

Covers: making or finding it below the chosen folder, with a bar on a terminal, and warming the page
cache, where it is locked if the system allows it. Does not cover: the contents (emlio_bench.harness.data).
"""

import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from emlio_bench.harness.data import data_root, make_data, shard_paths, warm_cache
from emlio_bench.harness.locked import Locked, locked
from emlio_bench.harness.scenario import DataSpec

__all__ = ["locked_data", "prepared"]


@contextmanager
def prepared(spec: DataSpec, chosen: Path | None) -> Generator[Path, None, None]:
    """Provide the dataset's directory, in the page cache, while the block lasts.

    Args:
        spec: the dataset.
        chosen: folder for datasets, which keeps them; None for a temporary folder.
    """
    with locked_data(spec, chosen) as (directory, _):
        yield directory


@contextmanager
def locked_data(spec: DataSpec, chosen: Path | None) -> Generator[tuple[Path, Locked], None, None]:
    """Provide the dataset's directory as `prepared` does, and a view on what is in memory."""
    with data_root(chosen) as root:
        directory = make_data(spec, root, progress=sys.stderr.isatty())
        warm_cache(directory)
        with locked(shard_paths(directory)) as held:
            yield directory, held
