"""Who runs when.

These machines are shared and their speed wanders: systems take turns, all once in each contest, then all again, beginning with
another one each time. Ratios are taken within a round.

Covers: the rounds of a race, the link measured before them, everybody's form of the data, going on after an interruption, what
is not run again. Does not cover: one run (emlio.benchmarks.race.measure), who takes part (emlio.benchmarks.race.entries).
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from emlio.benchmarks.iperf import find_iperf
from emlio.benchmarks.link.accuracy import LinkReport
from emlio.benchmarks.link.choice import open_link
from emlio.benchmarks.link.contract import Link, LinkKind
from emlio.benchmarks.link.measuring import measure_link
from emlio.benchmarks.link.spec import LinkSpec
from emlio.benchmarks.race.entries import Entry
from emlio.benchmarks.race.joules import Joules
from emlio.benchmarks.race.measure import Job, run_once
from emlio.benchmarks.race.outcome import Contest, Race, Run
from emlio.benchmarks.race.race_folder import RaceFolder
from emlio.benchmarks.race.rival import Claim
from emlio.benchmarks.race.timetable import Timetable
from emlio.errors import EmlioError

__all__ = ["Turns"]

_STREAMS: Final = (1, 8, 16)
_BETWEEN_NS: Final = 2_000_000_000
"""For a fresh link and a server that starts."""


class Turns:
    """Of one race. Used by one thread."""

    def __init__(
        self,
        folder: RaceFolder,
        race: Race,
        entries: Sequence[Entry],
        *,
        kind: LinkKind,
        tuned: bool,
        joules: Joules | None,
        tell: Callable[[str], None],
        look_at: Callable[[Link], LinkReport] | None = None,
    ) -> None:
        """Nothing is run yet.

        Args:
            folder: where each run is added.
            race: what is in it.
            entries: who takes part.
            kind: of links.
            tuned: whether TCP's buffers are raised.
            joules: what tells the machine's energy, if anything does.
            tell: hears what goes on, a line at a time.
            look_at: measures a link before anything else is measured over it; the usual way by default.
        """
        self._folder = folder
        self._entries = entries
        self._kind = kind
        self._tuned = tuned
        self._joules = joules
        self._tell = tell
        self._look_at = look_at or partial(measure_link, streams=_STREAMS, iperf=find_iperf())
        self._runs = list(race.runs)
        self._measured = {name for name, _ in race.links}

    def hold(self, contests: Sequence[Contest], forms: Path, rounds: int, within_ns: int | None = None) -> None:
        """All rounds of these contests, but for runs that were made before.

        Args:
            contests: which; distances that are compared with one another take turns, too.
            forms: where everybody's data lie.
            rounds: at most.
            within_ns: a round after the first is begun only if it will probably be over by then; None for all of them.
        """
        begun_ns = time.monotonic_ns()
        grounds = [
            _Ground(
                contest=contest,
                spec=LinkSpec(rtt_ns=contest.rtt_ns, rate_bytes_per_s=contest.rate_bytes_per_s, tuned=self._tuned),
                able=tuple(entry for entry in self._entries if _can(entry.rival.claim, contest)),
            )
            for contest in contests
        ]
        runs = {ground: sum(len(self._places(ground, number)) for number in range(rounds)) for ground in grounds}
        grounds = [ground for ground in grounds if runs[ground]]
        for ground in grounds:
            if ground.contest.name not in self._measured:
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
            if entry.rival.name not in ground.prepared or not self._is_worth_while(contest, entry):
                timetable.leave_out()
                continue
            job = Job(
                contest=contest,
                rival=entry.rival,
                setting=entry.setting,
                prepared=ground.prepared[entry.rival.name],
                spec=ground.spec,
                kind=self._kind,
                round=number,
                place=place,
                seed=number + 1,
            )
            run = run_once(job, self._joules)
            self._runs.append(run)
            self._folder.add_run(run)
            timetable.add(_key(entry), run.elapsed_ns)
            self._tell(timetable.line(contest, run))

    def _places(self, ground: "_Ground", number: int) -> list[tuple[int, Entry]]:
        """Who has yet to run in a round, and where in it."""
        return [
            (place, entry)
            for place, entry in enumerate(_rotated(ground.able, number))
            if not self._is_done(ground.contest, entry, number)
        ]

    def _round_ns(self, ground: "_Ground", number: int) -> int:
        """About how long a round will take: as long as before."""
        total_ns = 0
        for _, entry in self._places(ground, number):
            taken = [run.elapsed_ns for run in self._runs_of(ground.contest, entry)]
            if taken and self._is_worth_while(ground.contest, entry):
                total_ns += _BETWEEN_NS + max(taken)
        return total_ns

    def _measure(self, ground: "_Ground") -> None:
        name = ground.contest.name
        self._tell(f"{name}: measuring the link")
        with open_link(ground.spec, self._kind) as link:
            report = self._look_at(link)
        self._folder.add_link(name, report)
        self._measured.add(name)
        for reason in report.missed:
            self._tell(f"{name}: the link is not what was asked for: {reason}")

    def _prepare(self, ground: "_Ground", forms: Path) -> None:
        """Everybody's own form of the records, made once and kept."""
        contest = ground.contest
        for rival in {entry.rival.name: entry.rival for entry in ground.able}.values():
            try:
                ground.prepared[rival.name] = rival.prepare(contest.corpus, forms)
            except EmlioError as error:
                self._tell(f"{contest.name}: {rival.name} cannot run: {error}")
                for entry in ground.able:
                    if entry.rival.name == rival.name and not self._runs_of(contest, entry):
                        failed = _failed(contest, entry, str(error))
                        self._runs.append(failed)
                        self._folder.add_run(failed)

    def _runs_of(self, contest: Contest, entry: Entry) -> list[Run]:
        return [run for run in self._runs if run.contest == contest.name and (run.subject, run.setting) == _key(entry)]

    def _is_done(self, contest: Contest, entry: Entry, number: int) -> bool:
        return any(run.round == number for run in self._runs_of(contest, entry)) or not self._is_worth_while(
            contest, entry
        )

    def _is_worth_while(self, contest: Contest, entry: Entry) -> bool:
        """A bound is one however often it is found; what failed twice fails."""
        runs = self._runs_of(contest, entry)
        return not any(run.cut for run in runs) and sum(run.failure is not None for run in runs) < 2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Ground:
    """A contest with those who can take part, and where each has its form of the data, once it is made."""

    contest: Contest
    spec: LinkSpec
    able: tuple[Entry, ...]
    prepared: dict[str, Path] = field(default_factory=dict[str, Path])


def _can(claim: Claim, contest: Contest) -> bool:
    return (claim.decodes or not contest.decode) and (claim.halves or not contest.halves)


def _key(entry: Entry) -> tuple[str, str]:
    return entry.rival.name, entry.setting.name


def _rotated(entries: Sequence[Entry], number: int) -> list[Entry]:
    """None always comes first, or always after the same other."""
    turn = number % max(len(entries), 1)
    return [*entries[turn:], *entries[:turn]]


def _failed(contest: Contest, entry: Entry, reason: str) -> Run:
    subject, setting = _key(entry)
    return Run(contest=contest.name, subject=subject, setting=setting, round=0, place=0, failure=reason)
