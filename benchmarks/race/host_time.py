"""Processor time of the processes that this one started, with that of theirs.

Covers: which children there are, what a tree of processes has used. Does not cover: this process itself; children that ended,
unless their parent lives and has waited for them.
"""

from collections.abc import Iterable

import psutil

__all__ = ["children", "trees_cpu_ns"]


def children() -> frozenset[int]:
    """Process ids of this process's own, alive."""
    return frozenset(child.pid for child in psutil.Process().children())


def trees_cpu_ns(roots: Iterable[int]) -> int:
    """User and system time of these processes and of all below them; of those that end meanwhile what can be known.

    Args:
        roots: process ids, none of them below another.
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
