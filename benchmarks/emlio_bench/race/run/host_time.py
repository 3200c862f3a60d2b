"""Processor time of this process's children and their descendants."""

from collections.abc import Iterable

import psutil

from emlio_bench.harness.meter import process_cpu_ns

__all__ = ["children", "trees_cpu_ns"]


def children() -> frozenset[int]:
    """Return the ids of this process's living children."""
    return frozenset(child.pid for child in psutil.Process().children())


def trees_cpu_ns(roots: Iterable[int]) -> int:
    """Return the user and system time of these processes and all their descendants.

    Of processes that end meanwhile, the available part is counted.

    Args:
        roots: process ids, none a descendant of another.
    """
    total_ns = 0
    for root in roots:
        try:
            process = psutil.Process(root)
            tree = [process, *process.children(recursive=True)]
        except psutil.NoSuchProcess:
            continue
        for one in tree:
            try:
                ended = one.cpu_times()  # of its children, in ticks of 10 ms; the process itself is counted exactly
                total_ns += process_cpu_ns(one.pid) + round((ended.children_user + ended.children_system) * 1e9)
            except (psutil.NoSuchProcess, OSError):
                continue
    return total_ns
