"""A search for the accelerators that a subject feeds, with fewer and more ranks over parts of the same data."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Final

from emlio_bench.dlio.report import AU, LABEL
from emlio_bench.dlio.workloads import Task
from emlio_bench.harness.results import Figure, Run, figure

__all__ = ["LEAST_AU", "greatest", "is_decided", "is_fed", "part_of", "search_figure", "search_ratio"]

LEAST_AU: Final = 90.0
"""In percent: what MLPerf Storage asks of most workloads."""
_LEAST_TIMES: Final = 2.0


def greatest(most: int, holds: Callable[[int], bool]) -> int:
    """Return the greatest number up to `most` for which something holds, given that it holds for all below; 0 for none."""
    known, refused = 0, most + 1
    while refused - known > 1:
        tried = (known + refused) // 2
        if holds(tried):
            known = tried
        else:
            refused = tried
    return known


def is_fed(runs: Sequence[Run]) -> bool:
    """Return whether the median AU of runs is at least `LEAST_AU`; that of a failed one is 0."""
    return median(map(_utilisation, runs)) >= LEAST_AU


def is_decided(runs: Sequence[Run], rounds: int) -> bool:
    """Return whether more runs, up to so many, cannot change what `is_fed` says."""
    good = sum(_utilisation(run) >= LEAST_AU for run in runs)
    return max(good, len(runs) - good) > rounds // 2


def _utilisation(run: Run) -> float:
    return 0.0 if run.failure is not None else run.value(AU)


def part_of(data: Path, task: Task, whole: Task) -> Path:
    """Return a folder beside `data` with the files of `whole` that `task` reads: links to them, made if need be."""
    if task.folder == whole.folder:
        return data
    made = data.with_name(task.folder)
    if not made.is_dir():
        part = data.with_name(f"{task.folder}.unfinished")
        (part / "train").mkdir(parents=True, exist_ok=True)
        (part / "valid").mkdir(exist_ok=True)
        for path in sorted((data / "train").glob(f"*.{task.format}"))[: task.files]:
            if not (part / "train" / path.name).exists():
                os.link(path, part / "train" / path.name)
        part.rename(made)
    return made


def search_figure(scenario: str, subject: str, accelerators: int) -> Figure:
    """Return how many accelerators a subject feeds."""
    about = f"{LABEL}. At an AU of {LEAST_AU:g} %, median of the runs; up to {scenario}"
    return figure(f"{scenario}: accelerators, {subject}", "", [accelerators], about)


def search_ratio(scenario: str, counts: Mapping[str, int]) -> list[Figure]:
    """Return our accelerators by those of DLIO's own loader on the local disk, unless one is not known or feeds none.

    Args:
        scenario: its name.
        counts: accelerators by subject, without those of which a run failed: that is no measure of what they feed.
    """
    ours, stock = counts.get("emlio"), counts.get("stock-local")
    if ours is None or not stock:
        return []
    name = f"{scenario}: accelerators, emlio / stock-local"
    return [figure(name, "", [ours / stock], LABEL, at_least=_LEAST_TIMES)]
