"""Processor time of this process's children and their descendants.

Covers: the list of children, the time of a process tree. Does not cover: this process itself;
children that ended, unless their parent is alive and has waited for them.
"""

from collections.abc import Iterable

import psutil

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
    total_s = 0.0
    for root in roots:
        try:
            process = psutil.Process(root)
            tree = [process, *process.children(recursive=True)]
        except psutil.NoSuchProcess:
            continue
        for one in tree:
            try:
                times = one.cpu_times()
            except psutil.NoSuchProcess:
                continue
            total_s += times.user + times.system + times.children_user + times.children_system
    return round(total_s * 1e9)
