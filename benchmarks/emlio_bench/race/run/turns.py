"""The order of runs.

The machines are shared and their speed varies, so systems take turns: each runs once in a contest,
then all run again, and each round begins with another system. Ratios are taken within a round.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from emlio.errors import ClosedError, DatasetError, EmlioError
from emlio_bench.harness.contest import Contest, Entrant
from emlio_bench.harness.results import Run
from emlio_bench.harness.rounds import rotated
from emlio_bench.link.contract import LinkKind, LinkSpec
from emlio_bench.race.quantity import Quantity
from emlio_bench.race.run.joules import EnergyMeter
from emlio_bench.race.run.kept import KeptResults
from emlio_bench.race.run.measure import Job, Look, run_once
from emlio_bench.race.run.one_machine import OneMachine, StorageSide
from emlio_bench.race.systems.entries import Entry

__all__ = ["Field", "Turns", "is_worth_while"]

_BETWEEN_NS: Final = 2_000_000_000
"""The estimated time to set up a link and start a server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A contest with its entrants.

    Attributes:
        contest: the contest.
        entries: who takes part.
        unable: who cannot.
        over_link: whether a link lies between; else loopback.
    """

    contest: Contest
    entries: tuple[Entry, ...]
    unable: tuple[Entrant, ...] = ()
    over_link: bool = True

    def able(self) -> tuple[Entry, ...]:
        """Return the entries whose systems can do the work of the contest."""
        contest = self.contest
        return tuple(
            entry
            for entry in self.entries
            for claim in (entry.system.claim,)
            if (claim.decodes or not contest.decode)
            and (claim.halves or not contest.halves)
            and (claim.trains or not contest.train)
        )


class Turns:
    """The turns of one benchmark. Used by one thread.

    Attributes:
        prepared: where the data of a contest's system are, by the names of both.
    """

    def __init__(
        self,
        kept: KeptResults,
        side: StorageSide,
        tell: Callable[[str], None],
        *,
        joules: EnergyMeter | None = None,
        tuned: bool = False,
        look: Look | None = None,
        wrong: Callable[[Run], str] | None = None,
    ) -> None:
        """Create the turns; nothing runs yet.

        Args:
            kept: the results, which receive each run.
            side: the storage host and the link to it.
            tell: called with each line of progress.
            joules: meter of energy, or None.
            tuned: whether TCP's buffers are raised.
            look: returns more values of a run.
            wrong: returns what is wrong with a run of this loader, which then ends everything; "" for nothing.
        """
        self._kept = kept
        self._side = side
        self._tell = tell
        self._joules = joules
        self._tuned = tuned
        self._look = look
        self._wrong = wrong
        self.prepared: dict[tuple[str, str], Path] = {}

    def prepare(self, fields: Sequence[Field], forms: Path, rounds: int, *, measure: bool = True) -> list[Field]:
        """Measure links and convert records for all runs that are still to be made; return their contests.

        Args:
            fields: contests and entrants.
            forms: folder of all systems' data.
            rounds: most rounds.
            measure: whether links are measured.
        """
        left = [field for field in fields if any(self._places(field, number) for number in range(rounds))]
        for field in left:
            name = field.contest.name
            if measure and field.over_link and name not in dict(self._kept.results.links):
                self._tell(f"{name}: measuring the link")
                report = self._side.measure(self._spec(field))
                self._kept.add(links=((name, report),))
                for reason in report.missed:
                    self._tell(f"{name}: the link is not what was asked for: {reason}")
            self._convert(field, forms)
        return left

    def hold(self, fields: Sequence[Field], rounds: int, within_ns: int | None = None) -> None:
        """Run all rounds of prepared contests, except for runs that were made before.

        Args:
            fields: contests and entrants. Contests that are compared with one another take turns too.
            rounds: most rounds.
            within_ns: time within which every round after the first must probably end, or it is not
                started; None for no limit.
        """
        begun_ns = time.monotonic_ns()
        total = sum(len(self._places(field, number)) for field in fields for number in range(rounds))
        done = 0
        for number in range(rounds):
            passed_ns = time.monotonic_ns() - begun_ns
            round_ns = sum(self._round_ns(field, number) for field in fields)
            if within_ns is not None and number and round_ns and passed_ns + round_ns > within_ns:
                self._tell(f"no round {number + 1}, which would end too late")
                return
            for field in fields:
                for place, entry in self._places(field, number):
                    done += 1
                    if (field.contest.name, entry.system.name) in self.prepared:
                        run = self._run(field, number, place, entry)
                        self._tell(f"[{done}/{total}] {run.scenario}: {run.subject}, {run.setting}: {_words(run)}")

    def _run(self, field: Field, number: int, place: int, entry: Entry) -> Run:
        job = Job(
            contest=field.contest,
            system=entry.system,
            setting=entry.setting,
            prepared=self.prepared[field.contest.name, entry.system.name],
            spec=self._spec(field),
            round=number,
            place=place,
            seed=number + 1,
        )
        run = run_once(job, self._side if field.over_link else OneMachine(LinkKind.REAL), self._joules, self._look)
        if self._wrong is not None and run.subject.startswith("emlio") and (why := run.failure or self._wrong(run)):
            raise DatasetError(f"{run.scenario}: {run.subject} must read all records as planned: {why}")
        self._kept.add(runs=(run,))
        return run

    def _spec(self, field: Field) -> LinkSpec:
        return LinkSpec(rtt_ns=field.contest.rtt_ns, tuned=self._tuned)

    def _places(self, field: Field, number: int) -> list[tuple[int, Entry]]:
        """Return the entries that still have to run in a round, with their positions."""
        return [
            (place, entry)
            for place, entry in enumerate(rotated(field.able(), number))
            for runs in (self._runs_of(field, entry),)
            if is_worth_while(runs) and all(run.round != number for run in runs)
        ]

    def _round_ns(self, field: Field, number: int) -> int:
        """Estimate the duration of a round from earlier runs."""
        total_ns = 0
        for _, entry in self._places(field, number):
            taken = [of.value for run in self._runs_of(field, entry) if (of := run.values.get(Quantity.ELAPSED))]
            total_ns += _BETWEEN_NS + round(1e9 * max(taken)) if taken else 0
        return total_ns

    def _convert(self, field: Field, forms: Path) -> None:
        """Convert the records to each system's own format, once."""
        contest = field.contest
        for system in {entry.system.name: entry.system for entry in field.able()}.values():
            try:
                self.prepared[contest.name, system.name] = self._side.prepare(system, contest.corpus, forms)
            except ClosedError:
                raise  # the storage host has gone, which says nothing about the system
            except EmlioError as error:
                self._tell(f"{contest.name}: {system.name} cannot run: {error}")
                for entry in field.able():
                    if entry.system.name == system.name and not self._runs_of(field, entry):
                        self._kept.add(runs=(_failed(contest, entry, str(error)),))

    def _runs_of(self, field: Field, entry: Entry) -> list[Run]:
        runs = self._kept.results.runs
        return [run for run in runs if run.scenario == field.contest.name and run.who == entry.who]


def is_worth_while(runs: Sequence[Run]) -> bool:
    """Return whether another run of an entry in a contest is useful after these.

    Another run after a cut one would give the same bound, and a system that failed twice will fail
    again.
    """
    return not any(run.cut for run in runs) and sum(run.failure is not None for run in runs) < 2


def _failed(contest: Contest, entry: Entry, reason: str) -> Run:
    subject, setting = entry.who
    return Run(scenario=contest.name, subject=subject, setting=setting, round=0, place=0, failure=reason)


def _words(run: Run) -> str:
    if run.failure is not None:
        return f"failed: {run.failure.splitlines()[0]}"
    seconds, bits = run.values.get(Quantity.FIRST_EPOCH), run.values.get(Quantity.BIT_RATE)
    told = [] if seconds is None else [f"{'cut after ' * bool(seconds.beyond)}{seconds.value:.2f} s"]
    return ", ".join(
        told + ([] if bits is None else [f"{bits.value / 1e9:.2f} Gbit/s{' at most' * bool(bits.beyond)}"])
    )
