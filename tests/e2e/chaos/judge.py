"""What ranks took, compared with what the plan gives them.

Covers: lost, repeated, disordered and changed records, over restarts and other numbers of ranks. Pure. Does not cover: hangs,
exit statuses (tests.e2e.chaos.run).

A job has lives: each begins at a state with a number of ranks, and all but the last are cut off at a step that all their ranks
had done. What a rank took after the cut does not count: the state that the next life began from knows nothing of it.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from emlio.planner.plan import Plan, PlanSpec
from emlio.planner.state import PlanState

__all__ = ["Batch", "Life", "Verdict", "expected_batches", "judge", "progress_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What a rank says it took."""

    epoch: int
    ids: Sequence[int]
    checksums: Sequence[int]
    progress: int
    at_ns: int
    waited_ns: int
    state: Mapping[str, Any]


@dataclass(slots=True, kw_only=True)
class Life:
    """One start of all ranks.

    Attributes:
        world_size: how many ranks.
        state: where they began; None for the beginning of everything.
        taken: for each rank, over its restarts, what it took.
        cut: the progress that the next life began at; None for the last life.
        unfinished: ranks of the last life that ended with an error, or never: of what they did not take nothing is known.
    """

    world_size: int
    state: Mapping[str, Any] | None
    taken: list[list[Batch]]
    cut: int | None = None
    unfinished: set[int] = field(default_factory=set)


@dataclass(slots=True, kw_only=True)
class Verdict:
    """What is wrong with the records of a run: nothing, where all of these are 0."""

    delivered: int = 0
    lost: int = 0
    repeated: int = 0
    disordered: int = 0
    changed: int = 0
    told: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        """Whether every record came once, in order and as it was written."""
        return not (self.lost or self.repeated or self.disordered or self.changed)


def progress_of(state: Mapping[str, Any] | None, records: int) -> int:
    """A state as one number that grows: places handed out since the beginning, over all ranks and epochs."""
    return 0 if state is None else int(state["epoch"]) * records + int(state["consumed"])


def expected_batches(
    plan: Plan, rank: int, state: Mapping[str, Any] | None, epochs: int
) -> Iterator[tuple[int, list[int], int]]:
    """Epoch, records and progress after it, of each batch that a rank gets from a state on."""
    begin = None if state is None else PlanState.from_json(state)
    first = 0 if begin is None else begin.epoch
    for epoch in range(first, epochs):
        of_epoch = plan.epoch(epoch, begin.consumed if begin is not None and epoch == first else 0)
        for step in range(of_epoch.steps):
            ids = of_epoch.ids(rank, *of_epoch.batch_slots(rank, step)).tolist()
            yield epoch, ids, epoch * plan.catalog.records + of_epoch.consumed(step + 1)


def judge(lives: Sequence[Life], plan: Plan, checksums: Sequence[int], epochs: int) -> Verdict:
    """Compare. `plan` is that of any number of ranks; a life has its own."""
    verdict = Verdict()
    for number, life in enumerate(lives):
        spec = plan.spec
        own = Plan(
            plan.catalog,
            PlanSpec(seed=spec.seed, shuffle=spec.shuffle, batch_size=spec.batch_size, world_size=life.world_size),
        )
        for rank in range(life.world_size):
            planned = list(expected_batches(own, rank, life.state, epochs))
            due = sum(len(ids) for _, ids, progress in planned if life.cut is None or progress <= life.cut)
            wanted = [(epoch, record) for epoch, ids, _ in planned for record in ids]
            got = [(batch.epoch, record) for batch in life.taken[rank] for record in batch.ids]
            where = f"life {number}, rank {rank} of {life.world_size}"
            if rank in life.unfinished:
                due = 0
            # What was taken after the cut must be right, too: it was trained on.
            _compare(verdict, wanted[: max(due, len(got))], got, where)
            _check_content(verdict, life.taken[rank], checksums, where)
    return verdict


def _compare(verdict: Verdict, wanted: list[tuple[int, int]], got: list[tuple[int, int]], where: str) -> None:
    verdict.delivered += len(got)
    if got == wanted:
        return
    verdict.lost += (Counter(wanted) - Counter(got)).total()
    verdict.repeated += (Counter(got) - Counter(wanted)).total()
    position = {pair: place for place, pair in enumerate(wanted)}
    places = [position[pair] for pair in got if pair in position]
    verdict.disordered += sum(after < before for before, after in pairwise(places))
    first = next((n for n, pair in enumerate(zip(wanted, got, strict=False)) if pair[0] != pair[1]), len(got))
    verdict.told.append(
        f"{where}: from its record {first} on (epoch, record) must be {wanted[first : first + 3]}, "
        f"got {got[first : first + 3]}; {len(wanted)} wanted, {len(got)} got"
    )


def _check_content(verdict: Verdict, batches: Sequence[Batch], checksums: Sequence[int], where: str) -> None:
    for batch in batches:
        pairs = zip(batch.ids, batch.checksums, strict=True)
        wrong = [record for record, checksum in pairs if checksums[record] != checksum]
        verdict.changed += len(wrong)
        if wrong:
            verdict.told.append(f"{where}: records {wrong[:5]} of epoch {batch.epoch} have another content")
