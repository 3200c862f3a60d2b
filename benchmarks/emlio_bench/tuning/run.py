"""`emlio-bench tune`: a loader's own rule, simpler rules, and settings that never change, against the best of a grid.

In each environment a rank walks through all settings of a grid, while records come. Then each contender sets a loader, in
turns, and so do the best settings of the grid: what the best of these brings is the oracle. The daemon, the link and the data
are the same for all of them.
"""

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from emlio.errors import TransportError
from emlio.progress import Progress
from emlio.receiver.tuning.tuning import Tuning
from emlio_bench.harness.command import Command, CommonSettings, World
from emlio_bench.harness.data import locked, make_data, memory_root, shard_paths, warm_cache
from emlio_bench.harness.options import count, names
from emlio_bench.harness.results import Results, Run, results_of
from emlio_bench.harness.rounds import rotated
from emlio_bench.harness.scenario import DataSpec
from emlio_bench.harness.sides import running_daemon
from emlio_bench.harness.spread import Value
from emlio_bench.link.choice import open_link
from emlio_bench.link.emulated import EmulatedLink
from emlio_bench.processes.child import start_worker
from emlio_bench.tuning.contenders import CONTENDERS, STILL
from emlio_bench.tuning.places import CHANGING, GRID, LENGTH_S, STATIC, Place
from emlio_bench.tuning.rank import Begun, Got, Order, Sample
from emlio_bench.tuning.report import (
    GRID_SUBJECT,
    best_of,
    best_single,
    draw_tune,
    rates_of,
    setting_words,
    tune_figures,
    tune_parts,
)

__all__ = ["COMMAND", "TuneSettings", "run_tune"]

_BATCH_BYTES: Final = 3_200_000
_DATA_BYTES: Final = 600_000_000
_QUICK_BYTES: Final = 40_000_000
_ANSWER_S: Final = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneSettings(CommonSettings):
    """`emlio-bench tune`."""

    places: tuple[str, ...] = names((*STATIC, *CHANGING), "the environments")
    contenders: tuple[str, ...] = names(tuple(CONTENDERS), "who sets the loader")
    repeats: int = count(3, "rounds; one walk through the grid and one run of each contender in each")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stage:
    """The daemon and the link that all runs of an environment share."""

    place: Place
    link: EmulatedLink
    address: str
    pid: int

    def order(self, **changes: Any) -> Order:
        record = self.place.record_bytes
        return Order(
            address=self.address,
            daemon_pid=self.pid,
            batch_records=max(_BATCH_BYTES // record, 1),
            record_bytes=record,
            **changes,
        )

    def run(self, order: Order) -> Got:
        """Let a rank read, and change the environment meanwhile."""
        self.link.change(self.place.link)
        with start_worker("tune-rank", order, self.link.training.command) as rank:
            begun = rank.hear(Begun, _ANSWER_S)
            for at_s, place in self.place.stages[1:]:
                time.sleep(max(begun.at_ns / 1e9 + at_s - time.monotonic(), 0.0))
                self.link.change(place.link)
            got = rank.hear(Got, _ANSWER_S + order.seconds + len(order.walk) * (order.settle_s + order.hold_s))
            rank.rest(_ANSWER_S)
        return got


@contextmanager
def _stage(place: Place, root: Path, size_bytes: int) -> Generator[_Stage]:
    spec = DataSpec(kind="opaque", record_bytes=place.record_bytes, records=size_bytes // place.record_bytes, shards=8)
    directory = make_data(spec, root, progress=False)
    warm_cache(directory)
    with locked(shard_paths(directory)), open_link(place.link) as link:
        assert isinstance(link, EmulatedLink)
        with running_daemon(directory, link=link) as daemon:
            yield _Stage(place=place, link=link, address=daemon.address, pid=daemon.pid)


def run_tune(settings: TuneSettings, world: World) -> Results:
    """Walk through the grid and let all contenders run, in all environments."""
    quick = settings.quick
    chosen = {name: place for name, place in {**STATIC, **CHANGING}.items() if name in settings.places}
    grid = GRID[::7] if quick else GRID
    rounds = 1 if quick else settings.repeats
    size_bytes = _QUICK_BYTES if quick else _DATA_BYTES
    runs: list[Run] = []
    length_s = 2.0 if quick else LENGTH_S
    steps = sum(len(place.stages) for place in chosen.values()) * rounds
    with ExitStack() as stack:
        root = stack.enter_context(memory_root("tune", 3 * size_bytes)) if settings.data is None else settings.data
        bar = stack.enter_context(Progress("grids", steps))
        for name, place in chosen.items():
            with _stage(_shortened(place, length_s), root, size_bytes) as stage:
                for number in range(rounds):
                    for part, (_, alone) in enumerate(stage.place.stages):
                        runs.append(_walk(name, replace(stage, place=alone), part, grid, number, quick=quick))
                        bar.add(1)
        single = best_single(runs)
        contests = [
            (name, place, (*settings.contenders, *dict.fromkeys([*best_of(runs, name), *single])))
            for name, place in chosen.items()
        ]
        bar = stack.enter_context(Progress("contests", sum(len(those) for _, _, those in contests) * rounds))
        for name, place, those in contests:
            with _stage(_shortened(place, length_s), root, size_bytes) as stage:
                for number in range(rounds):
                    for turn, contender in enumerate(rotated(those, number)):
                        runs.append(_contend(name, stage, contender, number, turn, length_s))
                        bar.add(1)
    told = {
        "grid": f"{len(grid)} settings: windows, lanes and sizes of messages",
        "rounds": rounds,
        "length of a run or a stage": f"{LENGTH_S:g} s",
        "places": tuple(chosen),
        "contenders": settings.contenders,
    }
    return results_of("tune", told, tune_figures(runs, bounded=not quick), runs)


def _shortened(place: Place, length_s: float) -> Place:
    changes = tuple(replace(change, at_s=change.at_s * length_s / LENGTH_S) for change in place.changes)
    return replace(place, changes=changes)


def _walk(name: str, stage: _Stage, part: int, grid: Sequence[Tuning], number: int, *, quick: bool) -> Run:
    order = stage.order(
        contender="",
        # The first settings are walked through while nothing is measured yet.
        walk=(grid[0], grid[0], *rotated(grid, 5 * number)),
        settle_s=0.5 if quick else max(1.0, 20 * stage.place.rtt_ns / 1e9),
        hold_s=0.5 if quick else 1.5,
        warm_s=0.5,
        user=((0.0, stage.place.user),),
    )
    made = _made(name, GRID_SUBJECT, number, part)
    try:
        got = stage.run(order)
    except TransportError as error:
        return made(failure=str(error))
    values: dict[str, Value] = {}
    for one in got.walked[-len(grid) :]:
        words = setting_words(one.tuning)
        values |= {
            words: Value(value=_rate(one.begin, one.end)),
            f"cost, {words}": Value(value=_cost(one.begin, one.end)),
        }
    return made(setting=str(part), values=values)


def _contend(name: str, stage: _Stage, contender: str, number: int, turn: int, length_s: float) -> Run:
    stages = stage.place.stages
    user = tuple((at_s, place.user) for at_s, place in stages)
    fixed = {setting_words(tuning): tuning for tuning in GRID}
    order = stage.order(
        contender=contender if contender in CONTENDERS else STILL,
        fixed=fixed.get(contender),
        seconds=length_s * len(stages),
        user=user,
    )
    made = _made(name, contender, number, turn)
    try:
        got = stage.run(order)
    except TransportError as error:
        return made(failure=str(error))
    samples = got.samples
    values = {
        "bytes/s": Value(value=samples[-1].size_bytes / samples[-1].at_s),
        "CPU s/GB": Value(value=_cost(samples[0], samples[-1])),
        "wait": Value(value=(samples[-1].wait_s - samples[0].wait_s) / (samples[-1].at_s - samples[0].at_s)),
    }
    words = {"settings": setting_words(got.settings)}
    return made(values=values, words=words, series=rates_of(samples))


def _made(name: str, subject: str, number: int, place: int) -> Callable[..., Run]:
    def make(**fields: Any) -> Run:
        return Run(scenario=name, subject=subject, round=number, place=place, **fields)

    return make


def _rate(begin: Sample, end: Sample) -> float:
    return (end.received_bytes - begin.received_bytes) / max(end.at_s - begin.at_s, 1e-9)


def _cost(begin: Sample, end: Sample) -> float:
    used_s = end.rank_cpu_s - begin.rank_cpu_s + end.daemon_cpu_s - begin.daemon_cpu_s
    return 1e9 * used_s / max(end.received_bytes - begin.received_bytes, 1)


COMMAND: Final = Command(
    name="tune",
    settings=TuneSettings,
    run=run_tune,
    text="what setting a loader by rule brings, beside the best of a grid and simpler rules, where paths stay and change",
    parts=tune_parts,
    draw=draw_tune,
)
