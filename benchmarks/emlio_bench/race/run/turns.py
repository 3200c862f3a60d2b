"""The order of runs in a race.

The machines are shared and their speed varies, so systems take turns: each runs once in a contest,
then all run again, and each round begins with another system. Ratios are taken within a round.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from emlio.errors import ClosedError, EmlioError
from emlio_bench.harness.contest import Contest
from emlio_bench.harness.results import Run
from emlio_bench.harness.runner import rotated
from emlio_bench.link.accuracy import LinkReport
from emlio_bench.link.contract import Link, LinkKind
from emlio_bench.link.spec import LinkSpec
from emlio_bench.race.quantity import Quantity
from emlio_bench.race.run.kept import KeptRace
from emlio_bench.race.run.measure import Job, run_once
from emlio_bench.race.run.one_machine import OneMachine
from emlio_bench.race.run.sides import EnergyMeter, StorageSide
from emlio_bench.race.run.timetable import Timetable
from emlio_bench.race.systems.entries import Entry
from emlio_bench.race.systems.system import Claim

__all__ = ["Turns", "is_worth_while"]

_BETWEEN_NS: Final = 2_000_000_000
"""The estimated time to set up a link and start a server."""


class Turns:
    """The turns of one race. Used by one thread."""

    def __init__(
        self,
        kept: KeptRace,
        entries: Sequence[Entry],
        *,
        kind: LinkKind,
        tuned: bool,
        joules: EnergyMeter | None,
        tell: Callable[[str], None],
        look_at: Callable[[Link], LinkReport] | None = None,
        side: StorageSide | None = None,
    ) -> None:
        """Create the turns; nothing runs yet.

        Args:
            kept: the race, which receives each run.
            entries: entries that can run.
            kind: implementation of the links.
            tuned: whether TCP's buffers are raised.
            joules: meter of energy, or None.
            tell: called with each line of progress.
            look_at: measures a link before anything else runs over it; None for `measure_link`.
            side: the storage host and the link to it; None for this machine and links of its own.
        """
        self._kept = kept
        self._entries = entries
        self._kind = kind
        self._tuned = tuned
        self._joules = joules
        self._tell = tell
        self._side = side or OneMachine(kind, look_at)

    def hold(self, contests: Sequence[Contest], forms: Path, rounds: int, within_ns: int | None = None) -> None:
        """Run all rounds of these contests, except for runs that were made before.

        Args:
            contests: the contests. Contests that are compared with one another take turns too.
            forms: folder of all systems' data.
            rounds: most rounds.
            within_ns: time within which every round after the first must probably end, or it is not
                started; None for no limit.
        """
        begun_ns = time.monotonic_ns()
        grounds = [
            _Ground(
                contest=contest,
                spec=LinkSpec(rtt_ns=contest.rtt_ns, tuned=self._tuned),
                able=tuple(entry for entry in self._entries if _can(entry.system.claim, contest)),
            )
            for contest in contests
        ]
        runs = {ground: sum(len(self._places(ground, number)) for number in range(rounds)) for ground in grounds}
        grounds = [ground for ground in grounds if runs[ground]]
        for ground in grounds:
            if ground.contest.name not in dict(self._kept.race.links):
                self._measure(ground)
            self._prepare(ground, forms)
        timetable = Timetable(sum(runs.values()), clock_ns=time.monotonic_ns)
        for number in range(rounds):
            passed_ns = time.monotonic_ns() - begun_ns
            round_ns = sum(self._round_ns(ground, number) for ground in grounds)
            if within_ns is not None and number and round_ns and passed_ns + round_ns > within_ns:
                self._tell(f"no round {number + 1}, which would end too late")
                return
            for ground in grounds:
                self._hold_round(ground, number, timetable)

    def _hold_round(self, ground: "_Ground", number: int, timetable: Timetable) -> None:
        contest = ground.contest
        for place, entry in self._places(ground, number):
            if entry.system.name not in ground.prepared or not self._is_worth_while(contest, entry):
                timetable.leave_out()
                continue
            job = Job(
                contest=contest,
                system=entry.system,
                setting=entry.setting,
                prepared=ground.prepared[entry.system.name],
                spec=ground.spec,
                kind=self._kind,
                round=number,
                place=place,
                seed=number + 1,
            )
            run = run_once(job, self._joules, self._side)
            self._kept.add_run(run)
            timetable.add(_key(entry), round(1e9 * run.value(Quantity.ELAPSED)))
            self._tell(timetable.line(contest, run))

    def _places(self, ground: "_Ground", number: int) -> list[tuple[int, Entry]]:
        """Return the entries that still have to run in a round, with their positions."""
        return [
            (place, entry)
            for place, entry in enumerate(rotated(ground.able, number))
            if not self._is_done(ground.contest, entry, number)
        ]

    def _round_ns(self, ground: "_Ground", number: int) -> int:
        """Estimate the duration of a round from earlier runs."""
        total_ns = 0
        for _, entry in self._places(ground, number):
            taken = [
                of.value for run in self._runs_of(ground.contest, entry) if (of := run.values.get(Quantity.ELAPSED))
            ]
            if taken and self._is_worth_while(ground.contest, entry):
                total_ns += _BETWEEN_NS + round(1e9 * max(taken))
        return total_ns

    def _measure(self, ground: "_Ground") -> None:
        name = ground.contest.name
        self._tell(f"{name}: measuring the link")
        report = self._side.measure(ground.spec)
        self._kept.add_link(name, report)
        for reason in report.missed:
            self._tell(f"{name}: the link is not what was asked for: {reason}")

    def _prepare(self, ground: "_Ground", forms: Path) -> None:
        """Convert the records to each system's own format, once."""
        contest = ground.contest
        for system in {entry.system.name: entry.system for entry in ground.able}.values():
            try:
                ground.prepared[system.name] = self._side.prepare(system, contest.corpus, forms)
            except ClosedError:
                raise  # the storage host has gone, which says nothing about the system
            except EmlioError as error:
                self._tell(f"{contest.name}: {system.name} cannot run: {error}")
                for entry in ground.able:
                    if entry.system.name == system.name and not self._runs_of(contest, entry):
                        self._kept.add_run(_failed(contest, entry, str(error)))

    def _runs_of(self, contest: Contest, entry: Entry) -> list[Run]:
        runs = self._kept.race.runs
        return [run for run in runs if run.scenario == contest.name and run.who == _key(entry)]

    def _is_done(self, contest: Contest, entry: Entry, number: int) -> bool:
        return any(run.round == number for run in self._runs_of(contest, entry)) or not self._is_worth_while(
            contest, entry
        )

    def _is_worth_while(self, contest: Contest, entry: Entry) -> bool:
        return is_worth_while(self._runs_of(contest, entry))


def is_worth_while(runs: Sequence[Run]) -> bool:
    """Return whether another run of an entry in a contest is useful after these.

    Another run after a cut one would give the same bound, and a system that failed twice will fail
    again.
    """
    return not any(run.cut for run in runs) and sum(run.failure is not None for run in runs) < 2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Ground:
    """A contest with the entries that can run it, and the prepared data of each system."""

    contest: Contest
    spec: LinkSpec
    able: tuple[Entry, ...]
    prepared: dict[str, Path] = field(default_factory=dict[str, Path])


def _can(claim: Claim, contest: Contest) -> bool:
    return (
        (claim.decodes or not contest.decode)
        and (claim.halves or not contest.halves)
        and (claim.trains or not contest.train)
    )


def _key(entry: Entry) -> tuple[str, str]:
    return entry.system.name, entry.setting.name


def _failed(contest: Contest, entry: Entry, reason: str) -> Run:
    subject, setting = _key(entry)
    return Run(scenario=contest.name, subject=subject, setting=setting, round=0, place=0, failure=reason)
