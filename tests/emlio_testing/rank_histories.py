"""Histories of a job's ranks, drawn at random, and what must come of them.

A *program* is a list of stages. In each a rank makes a loader, takes some or all of its batches and
closes it. All ranks of a job that agree run one program, each at its own pace; a rank of a job that
does not agree departs from it in one way. A history is at most `ACTS` acts of the ranks: going on
in the program, looking at something else, dying, being started again from a state; and of the
daemon: forgetting everything. After these all ranks go on until they are done or refused.

Where ranks do not agree, the one that departs is not started again, and no loaders have the same
options: docs/internals/decisions/ranks-and-recovery.md says what is not found otherwise.

`Oracle` counts the records that users were handed, and knows nothing of the rule: a job goes wrong
where a whole epoch was handed out and some of its records came twice or never.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

__all__ = ["ACTS", "LOOK", "RECORDS", "Job", "Oracle", "Rank", "Run", "Stage", "departed", "program", "run"]

RECORDS = 96
ACTS = 12
LOOK = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A loader of the program.

    Attributes:
        seed: orders the records.
        batch: records of a batch.
        stop: the batches that are taken of it; all by default.
        begin: the steps of it that a state says were taken before.
        beside: seed of another loader that is made before or after this one, and closed with it unused.
    """

    seed: int
    batch: int = 4
    stop: int | None = None
    begin: int = 0
    beside: int | None = None

    def steps(self, world: int) -> int:
        """Return the steps of a whole epoch."""
        return RECORDS // (self.batch * world)

    def end(self, world: int) -> int:
        """Return the step before which this stage ends."""
        return self.steps(world) if self.stop is None else min(self.stop, self.steps(world))

    def records(self, world: int, rank: int, step: int) -> list[int]:
        """Return the records of a batch."""
        order = list(range(RECORDS))
        random.Random(self.seed).shuffle(order)
        first = (step * world + rank) * self.batch
        return order[first : first + self.batch]


class Job(Protocol):
    """Ranks that do as they are told. Each has at most one process."""

    def make(self, rank: int, stage: Stage, *, at: int = 0) -> object:
        """Make a loader, to begin with a step."""
        ...

    def take(self, rank: int, loader: object) -> bool:
        """Take a batch; False if that has to wait, or was refused."""
        ...

    def close(self, rank: int, loader: object) -> None:
        """Close a loader."""
        ...

    def kill(self, rank: int) -> None:
        """End the process of a rank with all its loaders."""
        ...

    def start(self, rank: int) -> None:
        """Start a process for a rank, once the daemon knows that the former one is gone."""
        ...

    def forget(self) -> None:
        """Restart the daemon. All loaders come again."""
        ...

    def wait(self) -> None:
        """Let time pass, so that the daemon hears all that live."""
        ...

    def refused(self, rank: int) -> str | None:
        """Return why a rank was refused, if it was."""
        ...


@dataclass(slots=True, kw_only=True)
class Rank:
    """A rank's way through its program."""

    program: list[Stage]
    stage: int = 0
    step: int = 0
    loader: object = None
    beside: object = None
    alive: bool = True

    @property
    def done(self) -> bool:
        """Return whether it is through."""
        return self.stage == len(self.program)


@dataclass(slots=True)
class Oracle:
    """The batches that each rank was handed in each stage."""

    world: int
    handed: dict[tuple[int, int], dict[int, list[int]]] = field(
        default_factory=dict[tuple[int, int], dict[int, list[int]]]
    )

    left: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict[tuple[int, int], tuple[int, int]])
    at: dict[tuple[int, int, int], int] = field(default_factory=dict[tuple[int, int, int], int])
    again: dict[tuple[int, int], set[int]] = field(default_factory=dict[tuple[int, int], set[int]])
    clock: int = 0

    def hand(self, rank: int, stage: int, step: int, records: list[int]) -> None:
        """Note a batch. One that is handed out again, from a state, counts once: its first time is undone."""
        self.handed.setdefault((stage, rank), {})[step] = records
        self.clock += 1
        self.at[stage, rank, step] = self.clock

    def leave(self, rank: int, stage: int, step: int) -> None:
        """Note that a rank closes the loader of a stage before this step."""
        self.left[stage, rank] = step, self.clock

    def start_again(self, rank: int, stage: int, step: int) -> None:
        """Note that a process is started again at this step."""
        self.again.setdefault((stage, rank), set()).add(step)

    def wrong(self, ranks: Sequence[Rank], *, refused: bool, looks: bool = False) -> str:
        """Return what went wrong, in words; "" if nothing did, or if a rank was `refused` in time.

        With `looks` the first look of a rank that was started again is nothing that it goes on with.
        """
        for stage in range(max(len(one.program) for one in ranks)):
            of_each = [self.handed.get((stage, rank), {}) for rank in range(self.world)]
            all_of = [record for steps in of_each for records in steps.values() for record in records]
            if len(all_of) >= RECORDS and len(set(all_of)) < RECORDS:
                return f"stage {stage}: {len(all_of)} records were handed out, {len(set(all_of))} different ones"
            for number, one in enumerate(ranks):
                gone_on = self._after(stage, number, one, looks=looks)
                if gone_on and not refused:
                    return f"stage {stage}: rank {number} left it, others were handed {gone_on} records after that"
        return ""

    def _after(self, stage: int, rank: int, way: Rank, *, looks: bool) -> int:
        """Return how many records of a stage other ranks were handed that this one had left for the next, beyond its place.

        A few steps make no difference: ranks that stop at the same time need not be at the same step, and a
        rank that is started again there may go a few further.
        """
        if way.stage <= stage or (stage + 1, rank) not in self.handed or (stage, rank) not in self.left:
            return 0
        steps, at = self.left[stage, rank]
        begin = way.program[stage].begin
        found = 0
        for other in range(self.world):
            batches = self.handed.get((stage, other), {})
            late = [step for step in batches if self.at[stage, other, step] > at]
            few = max(way.program[stage].steps(self.world) // 4, 1)
            if looks:
                again = self.again.get((stage, other), set())
                late = [step for step in late if not any(first <= step < first + few for first in again)]
            found += sum(len(batches[step]) for step in late if step >= steps + 2 * few or step < begin)
        return found


@dataclass(slots=True)
class Run:
    """One history of a job."""

    job: Job
    ranks: list[Rank]
    chances: random.Random
    oracle: Oracle
    told: list[str] = field(default_factory=list[str])
    restarted: bool = False
    departs: int | None = None
    back: set[int] = field(default_factory=set[int])
    """Ranks that were started again and have made no loader since."""
    met_none: bool = False
    hasty: bool = False

    @property
    def unnoticed(self) -> str:
        """Return the class of this history in docs/internals/decisions/ranks-and-recovery.md; "" if it must be noticed.

        "returned": a rank that was started again made its first loader when the one that departs had closed all of
        its own, or had none at the moment. So the job may as well have been started again, with other options.
        "hasty": all that followed a restart of the daemon took less than a second.
        "rest": all that was taken of a loader that the other rank had left was the first look of a rank that was
        started again further on.
        """
        if self.met_none:
            return "returned"
        if self.hasty:
            return "hasty"
        return "" if self.oracle.wrong(self.ranks, refused=False, looks=True) else "rest"

    @property
    def world(self) -> int:
        return len(self.ranks)

    def act(self) -> None:
        """Do one act of a rank or of the daemon."""
        number = self.chances.randrange(self.world)
        rank = self.ranks[number]
        what = self.chances.choices(["go on", "look", "die", "forget", "wait"], [8, 2, 2, 1, 2])[0]
        self.told.append(f"{what} {number}")
        if what == "wait":
            self._wait()
        elif what == "forget":
            if self._can_forget():
                self.job.forget()
                self.hasty = True
        elif not rank.alive:
            self._start(number)
        elif what == "go on":
            self._go_on(number, self.chances.choice([1, 2, 5, 99]))
        elif what == "die" and self._may_die(number):
            self._wait()
            rank.alive, rank.loader, rank.beside = False, None, None
            self.job.kill(number)
        elif what == "look" and rank.loader is not None:
            self._look(number)

    def _may_die(self, number: int) -> bool:
        """Return whether a rank may die so that it alone has to be started again: the daemon knows the others."""
        others = [one for other, one in enumerate(self.ranks) if other != number]
        return number != self.departs and all(
            one.alive and (one.loader is not None or not self.restarted) for one in others
        )

    def _can_forget(self) -> bool:
        """Return whether the daemon may lose what it knows: not what no rank can tell it again.

        A rank that is dead or has no loader at the moment tells nothing, one that was started again
        does not know what its former process did, and no rank says where a closed loader began.
        """
        elsewhere = any(stage.begin for rank in self.ranks for stage in rank.program)
        return all(rank.loader is not None for rank in self.ranks) and not self.restarted and not elsewhere

    def finish(self) -> None:
        """All ranks go on until they are through or refused, or nothing moves any more."""
        for _ in range(40):
            before = [(rank.stage, rank.step, rank.alive) for rank in self.ranks]
            for number, rank in enumerate(self.ranks):
                if not rank.alive:
                    self._start(number)
                self._go_on(number, 99)
            if all(rank.done or self.job.refused(number) for number, rank in enumerate(self.ranks)):
                return
            if before == [(rank.stage, rank.step, rank.alive) for rank in self.ranks]:
                self._wait()

    def _wait(self) -> None:
        self.job.wait()
        self.hasty = False

    def _start(self, number: int) -> None:
        """Start a rank again, from the state after the last batch that it took, or one before."""
        rank = self.ranks[number]
        rank.alive = self.restarted = True
        self.job.start(number)
        self.hasty = False
        self.back.add(number)
        if not rank.done:
            rank.step = max(rank.step - self.chances.randrange(3), min(rank.program[rank.stage].begin, rank.step))
            self.oracle.start_again(number, rank.stage, rank.step)

    def _look(self, number: int) -> None:
        """Look at a batch or two of something else, beside the loader in use."""
        seeds = [90, 91] if self.departs is not None else [90, 91, self.ranks[number].program[0].seed]
        loader = self.job.make(number, Stage(seed=self.chances.choice(seeds)))
        for _ in range(self.chances.randrange(LOOK)):
            self.job.take(number, loader)
        self.job.close(number, loader)

    def _go_on(self, number: int, batches: int) -> None:
        rank = self.ranks[number]
        while batches and not rank.done and rank.alive and self.job.refused(number) is None:
            stage = rank.program[rank.stage]
            if rank.loader is None:
                self._make(number, stage)
                if self.chances.random() < 0.3:
                    return  # the model is loaded, meanwhile others act
            if rank.step >= stage.end(self.world):
                for loader in (rank.loader, rank.beside):
                    if loader is not None:
                        self.job.close(number, loader)
                self.oracle.leave(number, rank.stage, rank.step)
                rank.loader, rank.beside, rank.stage, rank.step = None, None, rank.stage + 1, 0
                if not rank.done:
                    rank.step = rank.program[rank.stage].begin
                continue
            if not self.job.take(number, rank.loader):
                return
            self.oracle.hand(number, rank.stage, rank.step, stage.records(self.world, number, rank.step))
            rank.step += 1
            batches -= 1

    def _make(self, number: int, stage: Stage) -> None:
        rank = self.ranks[number]
        if number in self.back:
            self.back.remove(number)
            self.met_none = self.met_none or (self.departs is not None and self.ranks[self.departs].loader is None)
        first = self.chances.random() < 0.5
        if stage.beside is not None and first:
            rank.beside = self.job.make(number, Stage(seed=stage.beside))
        rank.loader = self.job.make(number, stage, at=rank.step)
        if stage.beside is not None and not first:
            rank.beside = self.job.make(number, Stage(seed=stage.beside))


def program(chances: random.Random, world: int, *, repeats: bool) -> list[Stage]:
    """Return a program of one to three stages; with `repeats` several may have the same options."""
    stages: list[Stage] = []
    for number in range(chances.choice([1, 2, 2, 3])):
        stage = Stage(seed=chances.choice([1, 2, 10 + number] if repeats else [10 + number]))
        if chances.random() < 0.3:
            stage = replace(stage, stop=chances.randrange(1, stage.steps(world)))
        if chances.random() < 0.3:
            stage = replace(stage, beside=50 + number)
        stages.append(stage)
    return stages


def departed(chances: random.Random, stages: Sequence[Stage], world: int) -> list[Stage]:
    """Return a program that departs from this one in one stage."""
    found = list(stages)
    at = chances.randrange(len(found))
    stage = replace(found[at], stop=None)
    steps = stage.steps(world)
    how = chances.choice(["seed", "batch", "place", "leaves", "leaves"])
    if how == "seed":
        stage = replace(stage, seed=stage.seed + 100)
    elif how == "batch":
        stage = replace(stage, batch=8)
    elif how == "place":
        stage = replace(stage, begin=chances.randrange(1, steps // 2))
    else:  # as after an error for which this rank alone takes other batches
        found[at:] = [replace(stage, stop=chances.randrange(1, steps * 3 // 4)), replace(stage, batch=8)]
        return found
    found[at] = stage
    return found


def run(job_of_world: Callable[[int], Job], seed: int, *, agree: bool) -> Run:
    """Return a history that has ended. `job_of_world` makes the job of this many ranks."""
    chances = random.Random(f"{seed}/{agree}")
    world = chances.choice([2, 3])
    stages, departs = program(chances, world, repeats=agree), None
    programs = [stages] * world
    if not agree:
        stages, departs = [replace(stage, stop=None) for stage in stages], chances.randrange(world)
        programs = [stages] * world
        programs[departs] = departed(chances, stages, world)
    ranks = [Rank(program=list(one), step=one[0].begin) for one in programs]
    found = Run(job_of_world(world), ranks, chances, Oracle(world), departs=departs)
    for _ in range(chances.randrange(ACTS + 1)):
        found.act()
    found.finish()
    return found
