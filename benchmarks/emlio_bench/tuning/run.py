"""`emlio-bench tune`: a loader's own rule, simpler rules, and settings that never change, against the best of a grid.

In each environment a rank walks through all settings of a grid, while records come. Then each contender sets a loader, in
turns, and so do the best settings of the grid: what the best of these brings is the oracle. The daemon, the link and the data
are the same for all of them. Contenders that are there only for comparison run in the first round alone.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from emlio.errors import TransportError
from emlio.learned.model import Model
from emlio.progress import Progress
from emlio.receiver.tuning.tuning import Tuning
from emlio_bench.harness.command import Command, CommonSettings, World
from emlio_bench.harness.data import memory_root
from emlio_bench.harness.options import count, folder, names
from emlio_bench.harness.results import Results, Run, results_of
from emlio_bench.harness.rounds import rotated
from emlio_bench.harness.spread import Value
from emlio_bench.tuning.contenders import AUTO, CONTENDERS, GOVERNOR, STILL, turns_of
from emlio_bench.tuning.places import CALM, CHANGING, GRID, LENGTH_S, STATIC, Place
from emlio_bench.tuning.rank import Sample
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
from emlio_bench.tuning.stage import DATA_BYTES, Stage, open_stage

__all__ = ["COMMAND", "TuneSettings", "run_tune"]

_QUICK_BYTES: Final = 40_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneSettings(CommonSettings):
    """`emlio-bench tune`."""

    places: tuple[str, ...] = names((*STATIC, *CHANGING, *CALM), "the environments")
    contenders: tuple[str, ...] = names(tuple(CONTENDERS), "who sets the loader")
    model: Path | None = folder("the model of the learned contenders (default: the one of emlio)", "FILE")
    repeats: int = count(3, "rounds, in each of which the loader's own rules and the best settings of the grid run")
    walks: int = count(2, "walks through the grid in each environment")


def run_tune(settings: TuneSettings, world: World) -> Results:
    """Walk through the grid and let all contenders run, in all environments."""
    quick = settings.quick
    chosen = {name: place for name, place in {**STATIC, **CHANGING, **CALM}.items() if name in settings.places}
    grid = GRID[::7] if quick else GRID
    rounds, walks = (1, 1) if quick else (settings.repeats, settings.walks)
    size_bytes = _QUICK_BYTES if quick else DATA_BYTES
    runs: list[Run] = []
    length_s = 2.0 if quick else LENGTH_S
    alone = dict.fromkeys(place.walked for whole in chosen.values() for _, place in whole.stages)
    walked: dict[Place, list[Run]] = {}
    with ExitStack() as stack:
        root = stack.enter_context(memory_root("tune", 3 * size_bytes)) if settings.data is None else settings.data
        bar = stack.enter_context(Progress("grids", len(alone) * walks))
        for place in alone:
            with open_stage(place, root, size_bytes) as stage:
                for number in range(walks):
                    walked.setdefault(place, []).append(_walk(stage, grid, number, quick=quick))
                    bar.add(1)
        for name, whole in chosen.items():
            for part, (_, place) in enumerate(whole.stages):
                runs += [replace(run, scenario=name, setting=str(part)) for run in walked[place.walked]]
        single = best_single(runs)
        contests = [
            (name, place, _contest(settings.contenders, name, best_of(runs, name), single))
            for name, place in chosen.items()
        ]
        turns = sum(len(turns_of(those, number)) for _, _, those in contests for number in range(rounds))
        bar = stack.enter_context(Progress("contests", turns))
        for name, place, those in contests:
            with open_stage(_shortened(place, length_s), root, size_bytes) as stage:
                for number in range(rounds):
                    for turn, contender in enumerate(turns_of(those, number)):
                        runs.append(_contend(name, stage, contender, number, turn, length_s, settings.model))
                        bar.add(1)
    told = {
        "grid": f"{len(grid)} settings: windows, lanes and sizes of messages",
        "walks through the grid": walks,
        "rounds": rounds,
        "length of a run or a stage": f"{LENGTH_S:g} s",
        "places": tuple(chosen),
        "contenders": settings.contenders,
        "model": _model_words(settings.model),
    }
    return results_of("tune", told, tune_figures(runs, bounded=not quick), runs)


def _contest(contenders: Sequence[str], place: str, best: Sequence[str], single: Sequence[str]) -> tuple[str, ...]:
    """Return who runs in an environment."""
    if place in CALM:
        return (*(name for name in contenders if name in (AUTO, GOVERNOR, STILL)), *best)
    return (*(name for name in contenders if name != GOVERNOR), *dict.fromkeys([*best, *single]))


def _model_words(place: Path | None) -> str:
    model = Model.load(place or "read")
    return f"{model.digest[:12]}, of {len(model.environments)} environments"


def _shortened(place: Place, length_s: float) -> Place:
    changes = tuple(replace(change, at_s=change.at_s * length_s / LENGTH_S) for change in place.changes)
    return replace(place, changes=changes)


def _walk(stage: Stage, grid: Sequence[Tuning], number: int, *, quick: bool) -> Run:
    order = stage.order(
        contender="",
        # The first settings are walked through while nothing is measured yet.
        walk=(grid[0], grid[0], *rotated(grid, 5 * number)),
        settle_s=0.5 if quick else max(1.0, 20 * stage.place.rtt_ns / 1e9),
        hold_s=0.5 if quick else 1.5,
        warm_s=0.5,
    )
    made = _made("", GRID_SUBJECT, number, 0)
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
    return made(values=values)


def _contend(
    name: str, stage: Stage, contender: str, number: int, turn: int, length_s: float, model: Path | None
) -> Run:
    stages = stage.place.stages
    user = tuple((at_s, place.user) for at_s, place in stages)
    fixed = {setting_words(tuning): tuning for tuning in GRID}
    order = stage.order(
        contender=contender if contender in CONTENDERS else STILL,
        model="" if model is None else str(model.resolve()),
        fixed=fixed.get(contender),
        # What saves work is tried one after the other, and judged over five seconds.
        warm_s=1.5 * length_s if name in CALM else 2.0,
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
