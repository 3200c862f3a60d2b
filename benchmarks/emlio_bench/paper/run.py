"""`emlio-bench paper`: the paper's figures, measured on this machine.

Every figure is one or more tasks at each round trip, and everybody takes turns in each. All figures
together are one race, with its link, its energy, and its file, from which an interrupted run
continues.

Covers: the whole command, from settings to results. Does not cover: one run (emlio_bench.race.run),
the report (emlio_bench.paper.report).
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from typing import Final

from emlio.errors import ConfigError
from emlio_bench.harness.environment import read_environment
from emlio_bench.link.choice import choose_kind
from emlio_bench.link.contract import Link
from emlio_bench.link.measurement.accuracy import LinkReport
from emlio_bench.link.measurement.measuring import measure_link
from emlio_bench.paper.figures import Task, contest_of, figures_of
from emlio_bench.paper.scale import Scale, limit_ns, records_of, rounds_of
from emlio_bench.paper.settings import PaperSettings
from emlio_bench.race.needs.environments import cache_folder
from emlio_bench.race.outcome import Contest, Race
from emlio_bench.race.run.kept import KeptRace
from emlio_bench.race.run.race import start_recorder
from emlio_bench.race.run.turns import Turns
from emlio_bench.race.systems.entries import all_rivals, entered
from emlio_bench.subjects.iperf import find_iperf

__all__ = ["run_paper"]

_FORMS: Final = "data"
_STREAMS: Final = (1, 16)


def run_paper(settings: PaperSettings, environment: Mapping[str, str], tell: Callable[[str], None]) -> Race:
    """Run what has not run yet, and return all of it.

    Args:
        settings: settings of the command.
        environment: environment variables; XDG_CACHE_HOME is used if present.
        tell: called with each line of progress.
    """
    cache = cache_folder(settings.cache, environment)
    kind, missing = choose_kind(settings.kind)
    for reason in missing:
        tell(f"no link of the kind {reason}")
    figures = figures_of(settings.figure)
    records = records_of(figures, settings.rtt, settings.scale, within_ns=settings.within, rounds=settings.rounds)
    contests = {
        (task, rtt_ns): contest_of(task, rtt_ns, records=count, limit_ns=limit_ns(task, count, rtt_ns))
        for task, count in records.items()
        for rtt_ns in task.rtts_ns or settings.rtt
    }
    names = {subject for task in records for subject, _ in task.subjects}
    systems = [system for system in all_rivals(cache, settings.mount) if system.name in names]
    rtts_ns = sorted({contest.rtt_ns for contest in contests.values()})
    able, unable = entered(systems, rtts_ns, cache=cache, every=True, make=not settings.no_install, tell=tell)
    wanted = {subject for task in records for subject in task.subjects}
    able = tuple(entry for entry in able if (entry.system.name, entry.setting.name) in wanted)
    unable = tuple(one for one in unable if (one.subject, one.setting) in wanted)
    for entrant in {one.subject: one for one in unable}.values():
        tell(f"{entrant.subject} does not take part: it {entrant.missing}")
    if not able:
        raise ConfigError("at least one system must be able to run; the reasons are above")
    race = Race(
        environment=read_environment(find_iperf()),
        settings=(*settings.told(), ("link", str(kind))),
        begun=datetime.now(UTC).isoformat(timespec="seconds"),
        contests=tuple(contests.values()),
        entrants=(*(entry.entrant for entry in able), *unable),
    )
    kept = KeptRace(race, settings.out)
    with ExitStack() as stack:
        joules = None if settings.no_energy else start_recorder(stack, settings.out, settings.cpu_watts, tell)
        look = _LookOnce()
        for task in records:
            entries = [entry for entry in able if (entry.system.name, entry.setting.name) in task.subjects]
            turns = Turns(kept, entries, kind=kind, tuned=False, joules=joules, tell=tell, look_at=look)
            rounds = 1 if settings.scale is Scale.TINY else rounds_of(task, settings.rounds)
            turns.hold(_of(task, contests), cache / _FORMS, rounds)
    return kept.race


def _of(task: Task, contests: Mapping[tuple[Task, int], Contest]) -> list[Contest]:
    return [contest for (of, _), contest in contests.items() if of is task]


class _LookOnce:
    """A measurement of each kind of link, made once: all tasks have the same links."""

    def __init__(self) -> None:
        self._known: dict[int, LinkReport] = {}
        self._measure = partial(measure_link, streams=_STREAMS, iperf=find_iperf())

    def __call__(self, link: Link) -> LinkReport:
        rtt_ns = link.spec.rtt_ns
        if rtt_ns not in self._known:
            self._known[rtt_ns] = self._measure(link)
        return self._known[rtt_ns]
