"""Bytes that jobs on one dataset read from the disk, simulated: with the daemon's cache, an LRU cache, and Belady's optimum.

All three see the same trace. Belady's cache knows the trace; ours knows each job's plan, and learns its pace.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush, heapreplace

import numpy as np
import numpy.typing as npt

from emlio.planner.catalog import Catalog, ShardEntry
from emlio.planner.future import Future
from emlio.planner.plan import Plan, PlanSpec
from emlio.reading.sharing.foresight import Foresight, Needs

__all__ = ["Compared", "Job", "compare"]

_Ints = npt.NDArray[np.int64]
_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One job with one rank.

    Attributes:
        seed: of its order.
        pace: records per second.
        epochs: how many it reads.
        begins_s: when it begins.
        stops_s: how long it stands still in the middle of its first epoch.
    """

    seed: int
    pace: float = 1000.0
    epochs: int = 2
    begins_s: float = 0.0
    stops_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Records read from the disk, of `asked` that jobs read.

    Attributes:
        asked: all reads.
        ours: those from the disk with the daemon's cache.
        lru: with an LRU cache.
        best: with Belady's optimum.
    """

    asked: int
    ours: int
    lru: int
    best: int

    def __str__(self) -> str:
        return (
            f"{self.ours:,} of {self.asked:,} records from the disk ({self.ours / self.asked:.3f}): {self.ours / self.lru:.3f} "
            f"of an LRU cache's {self.lru:,}, {self.ours / self.best:.3f} of the optimum's {self.best:,}"
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Taken:
    """A batch that a job takes at a time."""

    at_ns: int
    job: int
    epoch: int
    ids: _Ints


def compare(jobs: Sequence[Job], *, records: int, kept: int, batch: int = 32) -> Compared:
    """Return what the three caches read.

    Args:
        jobs: the jobs.
        records: the dataset's records, all of one size.
        kept: how many of them a cache holds.
        batch: records that a job takes at a time.
    """
    catalog = Catalog(shards=(ShardEntry(name="a", records=records, size_bytes=records, digest=""),))
    plans = [Plan(catalog, PlanSpec(seed=job.seed, batch_size=batch)) for job in jobs]
    trace = sorted(
        (one for number in range(len(jobs)) for one in _taken(jobs, plans, number)), key=lambda one: one.at_ns
    )
    ids = np.concatenate([one.ids for one in trace])
    return Compared(
        asked=len(ids), ours=_ours(trace, jobs, plans, records, kept), lru=_lru(ids, kept), best=_best(ids, kept)
    )


def _taken(jobs: Sequence[Job], plans: Sequence[Plan], number: int) -> Iterator[_Taken]:
    job, plan = jobs[number], plans[number]
    at_s = job.begins_s
    for epoch in range(job.epochs):
        order = plan.epoch(epoch)
        slots = order.slots(0)
        for slot in range(0, slots, plan.spec.batch_size):
            ids = order.ids(0, slot, min(slot + plan.spec.batch_size, slots))
            at_s += len(ids) / job.pace
            if epoch == 0 and slot <= slots // 2 < slot + plan.spec.batch_size:
                at_s += job.stops_s
            yield _Taken(at_ns=int(at_s * 1e9), job=number, epoch=epoch, ids=ids)


def _ours(trace: Sequence[_Taken], jobs: Sequence[Job], plans: Sequence[Plan], records: int, kept: int) -> int:
    foresight = Foresight(records, kept, [])
    futures = [Future(plan) for plan in plans]
    bases = np.array([0, records], np.int64)
    begun, left, misses = set[int](), [sum(one.job == number for one in trace) for number in range(len(jobs))], 0
    for one in trace:
        future = futures[one.job]
        if one.job not in begun:
            begun.add(one.job)
            foresight.jobs.append(Needs(future=future, bases=bases, shifts=None))
            future.begin(0, 0, 0, 0, None, int(jobs[one.job].begins_s * 1e9))
        entries = foresight.kept.find(one.ids)
        missed = one.ids[entries < 0]
        misses += len(missed)
        future.moved(0, one.epoch, int(one.ids[-1]), one.at_ns)
        due = foresight.due(one.ids, one.at_ns)
        foresight.kept.retime(entries[entries >= 0], due[entries >= 0])
        counts = np.ones(len(missed), np.int64)
        foresight.order(counts, one.at_ns, anew=True)
        foresight.kept.admit(missed, counts, due[entries < 0])
        left[one.job] -= 1
        if not left[one.job]:
            future.leave(0)
    return misses


def _lru(ids: _Ints, kept: int) -> int:
    held = OrderedDict[int, None]()
    misses = 0
    for record in ids.tolist():
        if record in held:
            held.move_to_end(record)
            continue
        misses += 1
        held[record] = None
        if len(held) > kept:
            held.popitem(last=False)
    return misses


def _best(ids: _Ints, kept: int) -> int:
    following = np.full(len(ids), _NEVER)
    order = np.argsort(ids, kind="stable")
    again = ids[order[1:]] == ids[order[:-1]]
    following[order[:-1][again]] = order[1:][again]
    held = dict[int, int]()  # the next use of each
    farthest: list[tuple[int, int]] = []  # a heap; what is no longer so is passed over
    misses = 0
    for record, use in zip(ids.tolist(), following.tolist(), strict=True):
        misses += held.pop(record, None) is None
        if use == _NEVER:
            continue
        while farthest and held.get(farthest[0][1]) != -farthest[0][0]:
            heappop(farthest)
        if len(held) < kept:
            heappush(farthest, (-use, record))
        elif -farthest[0][0] > use:
            del held[farthest[0][1]]
            heapreplace(farthest, (-use, record))
        else:
            continue
        held[record] = use
    return misses
