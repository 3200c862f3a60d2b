"""The report of `emlio-bench tune`: regrets against the best of a grid, and how soon a change is made good."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from emlio.receiver.tuning.tuning import Tuning
from emlio_bench.harness.plot import INK, blank_figure, colour, dress, stamp
from emlio_bench.harness.report import Part, Table, result_parts
from emlio_bench.harness.results import Figure, Results, Run, figure
from emlio_bench.tuning.contenders import AUTO, CONTENDERS, GOVERNOR
from emlio_bench.tuning.places import CALM, CHANGING, LENGTH_S, STATIC
from emlio_bench.tuning.rank import Sample

__all__ = [
    "GRID_SUBJECT",
    "best_of",
    "best_single",
    "changing_regrets",
    "draw_tune",
    "rates_of",
    "regrets",
    "setting_words",
    "tune_figures",
    "tune_parts",
]

GRID_SUBJECT: Final = "grid"
_BEST: Final = "best single setting"
_FASTEST: Final = "fastest setting"
_STEP_S: Final = 0.5
_NEAR: Final = 0.95
_MEAN: Final = 0.03
_WORST: Final = 0.08
_SINGLE: Final = 0.98
_SAVED: Final = 0.75
_STALL: Final = 0.005
_CHECKED: Final = 3
"""So many of the grid's best settings are run as long as the contenders."""
_READING: Final = (
    "The oracle is what the best setting of the grid brings in the same environment, by the median over rounds: the three that "
    "brought most in a walk through the grid are run as long as the contenders. Regret is what is missing to it. 'best single "
    "setting' is the one of the grid with the least mean regret over all environments that stay as they are. Runs begin two "
    "seconds after the loader was made, so what a contender must learn first counts. Those for comparison run once."
)

_CHANGES: Final = (
    f"A stage lasts {LENGTH_S:g} s; one that was never made good counts as that. Regret under change is that of whole stages, "
    "with the time that a contender takes to adapt. Decided before any run: learned takes the place of auto as the default if "
    "its mean here is lower by three points or more, and its worst not higher."
)
_CALMLY: Final = (
    "Where the user takes far less than would come, only work can be saved: processor seconds of both processes for a GB. "
    "'fastest setting' is the one of the grid that brings most there to a user who takes all."
)


def setting_words(tuning: Tuning) -> str:
    """Return a setting in words."""
    message = f"{tuning.message_bytes / (1 << 20):g} MiB" if tuning.message_bytes else "usual"
    lanes = str(tuning.lanes or "usual")
    return f"window {tuning.window_bytes >> 20} MiB, lanes {lanes}, messages {message}, parts {tuning.credit_parts}"


def rates_of(samples: Sequence[Sample]) -> dict[str, tuple[float, ...]]:
    """Return the rate in each half second of a run."""
    found: list[float] = []
    times: list[float] = []
    begin = samples[0]
    for one in samples[1:]:
        if one.at_s - begin.at_s >= _STEP_S:
            found.append((one.size_bytes - begin.size_bytes) / (one.at_s - begin.at_s))
            times.append(one.at_s)
            begin = one
    return {"time, s": tuple(times), "bytes/s": tuple(found)}


def _grids(runs: Iterable[Run]) -> dict[tuple[str, str], dict[str, float]]:
    """Return the median rate of each setting, by environment and stage."""
    found: dict[tuple[str, str], dict[str, list[float]]] = {}
    for run in runs:
        if run.subject == GRID_SUBJECT and run.failure is None:
            rates = found.setdefault((run.scenario, run.setting), {})
            for name, value in run.values.items():
                if not name.startswith("cost"):
                    rates.setdefault(name, []).append(value.value)
    return {key: {name: statistics.median(values) for name, values in rates.items()} for key, rates in found.items()}


def best_of(runs: Sequence[Run], place: str) -> list[str]:
    """Return the best settings of the grid in an environment, those of each stage in turn; one where only work can be saved."""
    orders = [sorted(rates, key=lambda name: -rates[name]) for (of, _), rates in _grids(runs).items() if of == place]
    found = dict.fromkeys(name for those in zip(*orders, strict=False) for name in those)
    return list(found)[: 1 if place in CALM else _CHECKED]


def best_single(runs: Sequence[Run]) -> list[str]:
    """Return the setting of the grid with the least mean regret over all environments that stay as they are, if any do."""
    grids = [rates for (place, _), rates in _grids(runs).items() if place in STATIC]
    first: dict[str, float] = next(iter(grids), dict[str, float]())
    common = [name for name in first if all(name in rates for rates in grids)]
    shares = {name: statistics.mean(rates[name] / max(rates.values()) for rates in grids) for name in common}
    return [max(shares, key=lambda name: shares[name])] if shares else []


def _rates(runs: Sequence[Run]) -> dict[str, dict[str, float]]:
    """Return the median rate of each contender and checked setting, by environment."""
    found: dict[str, dict[str, list[float]]] = {}
    for run in runs:
        if run.scenario not in CALM and run.subject != GRID_SUBJECT and run.failure is None:
            found.setdefault(run.scenario, {}).setdefault(run.subject, []).append(run.value("bytes/s"))
    return {place: {name: statistics.median(rates) for name, rates in of.items()} for place, of in found.items()}


def regrets(runs: Sequence[Run]) -> dict[str, dict[str, float]]:
    """Return the regret of each contender in each environment that stays as it is.

    The oracle is the best of the grid's settings that were run as long as the contenders.
    """
    found: dict[str, dict[str, float]] = {}
    single = best_single(runs)
    for place, rates in _rates(runs).items():
        checked = [rate for name, rate in rates.items() if name not in CONTENDERS]
        if place not in STATIC or not checked:
            continue
        for name, rate in rates.items():
            if name in CONTENDERS or name in single:
                shown = name if name in CONTENDERS else f"{_BEST}: {name}"
                found.setdefault(shown, {})[place] = 1 - rate / max(checked)
    return found


def _oracle(runs: Sequence[Run], place: str, stage: int) -> float:
    """Return the rate of the best setting of the grid in a stage of an environment that changes, in runs through all stages."""
    best: dict[str, list[float]] = {}
    for run in runs:
        if run.scenario == place and run.subject not in CONTENDERS and run.subject != GRID_SUBJECT and not run.failure:
            rates = run.series["bytes/s"]
            length = len(rates) // len(CHANGING[place].stages)
            # The second half of a stage: what was on its way has arrived.
            part = rates[stage * length + length // 2 : (stage + 1) * length]
            best.setdefault(run.subject, []).append(statistics.mean(part) if part else 0.0)
    return max((statistics.median(rates) for rates in best.values()), default=0.0)


def changing_regrets(runs: Sequence[Run]) -> dict[str, dict[str, float]]:
    """Return the regret of each contender in each environment that changes: the mean over its stages, by the median of rounds."""
    found: dict[str, dict[str, list[float]]] = {}
    for run in runs:
        if run.scenario in CHANGING and run.subject in CONTENDERS and run.failure is None:
            rates, stages = run.series["bytes/s"], len(CHANGING[run.scenario].stages)
            length = len(rates) // stages
            shares = [
                statistics.mean(rates[stage * length : (stage + 1) * length]) / oracle
                for stage in range(stages)
                if length and (oracle := _oracle(runs, run.scenario, stage))
            ]
            if shares:
                found.setdefault(run.subject, {}).setdefault(run.scenario, []).append(1 - statistics.mean(shares))
    return {name: {place: statistics.median(values) for place, values in of.items()} for name, of in found.items()}


def _reached(runs: Sequence[Run]) -> dict[tuple[str, str], list[float]]:
    """Return how long after each change a contender had 95 % of the oracle, by contender and change, for each round."""
    found: dict[tuple[str, str], list[float]] = {}
    for run in runs:
        if run.scenario not in CHANGING or run.subject not in CONTENDERS or run.failure is not None:
            continue
        stages = len(CHANGING[run.scenario].stages)
        times, rates = run.series["time, s"], run.series["bytes/s"]
        length_s = times[-1] / stages
        for stage in range(1, stages):
            oracle = _oracle(runs, run.scenario, stage)
            begin_s = stage * length_s
            after = [
                (at_s, rate) for at_s, rate in zip(times, rates, strict=True) if begin_s < at_s <= begin_s + length_s
            ]
            # Two halves of a second in a row, so that a burst of what was held is not taken for it.
            good = [
                first[0] - begin_s for first, second in pairwise(after) if min(first[1], second[1]) >= _NEAR * oracle
            ]
            key = run.subject, f"{run.scenario}, change {stage}"
            found.setdefault(key, []).append(good[0] if good else length_s)
    return found


def _calm(runs: Sequence[Run]) -> dict[str, dict[str, list[Run]]]:
    """Return the runs where the user takes far less than would come, by environment and contender."""
    found: dict[str, dict[str, list[Run]]] = {}
    for run in runs:
        if run.scenario in CALM and run.subject != GRID_SUBJECT and run.failure is None:
            subject = run.subject if run.subject in CONTENDERS else _FASTEST
            found.setdefault(run.scenario, {}).setdefault(subject, []).append(run)
    return found


def tune_figures(runs: Sequence[Run], *, bounded: bool) -> list[Figure]:
    """Return the figures, with bounds for the loader's own rule."""
    found: list[Figure] = []
    missing = regrets(runs)
    single = next((places for name, places in missing.items() if name.startswith(_BEST)), dict[str, float]())
    for name, places in missing.items():
        ours = bounded and name == AUTO
        found.append(
            figure(f"mean regret, {name}", "", [statistics.mean(places.values())], at_most=_MEAN if ours else None)
        )
        found.append(figure(f"worst regret, {name}", "", [max(places.values())], at_most=_WORST if ours else None))
        if name == AUTO and single:
            ratios = [(1 - places[place]) / (1 - single[place]) for place in places]
            found.append(
                figure(
                    "rate / that of the best single setting",
                    "",
                    ratios,
                    at_least=_SINGLE if bounded else None,
                    every=True,
                )
            )
    changing = changing_regrets(runs)
    for name, places in changing.items():
        found.append(figure(f"mean regret under change, {name}", "", [statistics.mean(places.values())]))
        found.append(figure(f"worst regret under change, {name}", "", [max(places.values())]))
    for (name, change), times in _reached(runs).items():
        if name == AUTO:
            found.append(figure(f"95 % of the oracle after {change}", "s", times, at_most=3.0 if bounded else None))
    for place, subjects in _calm(runs).items():
        fastest = [run.value("CPU s/GB") for run in subjects.get(_FASTEST, [])]
        for name in (AUTO, GOVERNOR):
            those = subjects.get(name, [])
            ratios = [run.value("CPU s/GB") / cost for run, cost in zip(those, fastest, strict=False)]
            if ratios:
                saved, stall = (_SAVED, _STALL) if bounded and name == GOVERNOR else (None, None)
                told = f"{name}, {place}"
                found.append(figure(f"CPU s/GB / the fastest setting's, {told}", "", ratios, at_most=saved))
                waits = [run.value("wait") for run in those]
                found.append(figure(f"share of waiting, {told}", "", waits, at_most=stall))
    failed = [run for run in runs if run.failure is not None]
    found.append(figure("runs that failed", "", [len(failed)], at_most=0))
    return found


def tune_parts(results: Results) -> tuple[Part, ...]:
    """Return the report."""
    runs = results.runs
    missing, changing = regrets(runs), changing_regrets(runs)
    reached = _reached(runs)
    changes = list(dict.fromkeys(change for _, change in reached))
    subjects = list(dict.fromkeys(name for name, _ in reached))
    after = Table(
        header=("seconds to 95 % of the oracle", *changes),
        rows=tuple(
            (name, *(f"{statistics.median(reached[name, change]):.1f}" for change in changes)) for name in subjects
        ),
    )
    best = Table(
        header=("environment", "stage", "oracle, MB/s", "best setting", "worst setting, MB/s"),
        rows=tuple(
            (
                place,
                stage,
                f"{max(rates.values()) / 1e6:.0f}",
                max(rates, key=lambda name: rates[name]),
                f"{min(rates.values()) / 1e6:.0f}",
            )
            for (place, stage), rates in _grids(runs).items()
        ),
    )
    calm = Table(
        header=("user takes 200 MB/s", "who sets", "CPU s/GB", "of rounds", "waiting", "settings at the end"),
        rows=tuple(
            (
                place,
                name,
                f"{statistics.median(run.value('CPU s/GB') for run in of):.2f}",
                ", ".join(f"{run.value('CPU s/GB'):.2f}" for run in of),
                f"{statistics.median(run.value('wait') for run in of):.2%}",
                of[-1].words["settings"],
            )
            for place, subjects in _calm(runs).items()
            for name, of in subjects.items()
        ),
    )
    environment, *more = result_parts(results)
    failures = tuple(f"{run.scenario}: {run.subject}, round {run.round}: {run.failure}" for run in runs if run.failure)
    return (
        environment,
        Part(text=_READING, tables=(_regret_table("regret", missing),) if missing else ()),
        Part(
            text=_CHANGES if reached else "",
            tables=(_regret_table("regret under change", changing), after) if reached else (),
        ),
        Part(text=_CALMLY if calm.rows else "", tables=(calm,) if calm.rows else ()),
        Part(tables=(best,)),
        Part(heading="Failed", points=failures),
        *more[:1],
    )


def _regret_table(name: str, regrets: Mapping[str, Mapping[str, float]]) -> Table:
    places = list(dict.fromkeys(place for of in regrets.values() for place in of))
    return Table(
        header=(name, *places, "mean", "worst"),
        rows=tuple(
            (
                subject,
                *(f"{of[place]:.1%}" if place in of else "" for place in places),
                f"{statistics.mean(of.values()):.1%}",
                f"{max(of.values()):.1%}",
            )
            for subject, of in sorted(regrets.items(), key=lambda item: statistics.mean(item[1].values()))
        ),
    )


def draw_tune(results: Results) -> Any:
    """Return the figure: rates over time where environments change; None if none does."""
    places = [place for place in CHANGING if any(run.scenario == place and run.series for run in results.runs)]
    if not places:
        return None
    figure, axes = blank_figure(8.6, 2.6 * len(places), title="Rates while the environment changes", rows=len(places))
    for panel, place in zip(axes.flat if len(places) > 1 else [axes], places, strict=True):
        for name in CONTENDERS:
            of = [run for run in results.runs if (run.scenario, run.subject) == (place, name) and run.series]
            if not of:
                continue
            steps = min(len(run.series["bytes/s"]) for run in of)
            rates = [statistics.median(run.series["bytes/s"][step] for run in of) / 1e6 for step in range(steps)]
            panel.plot(of[0].series["time, s"][:steps], rates, color=colour(name), linewidth=1.2, label=name)
        stages = len(CHANGING[place].stages)
        end_s = max(run.series["time, s"][-1] for run in results.runs if run.scenario == place and run.series)
        for stage in range(stages):
            oracle = _oracle(results.runs, place, stage) / 1e6
            panel.hlines(oracle, stage * end_s / stages, (stage + 1) * end_s / stages, color=INK, linestyle=":")
        panel.set(xlabel="seconds; dotted: the best of the grid", ylabel="MB/s", ylim=(0, None))
        panel.set_title(place, loc="left", fontsize=9)
        panel.legend(frameon=False, fontsize=7, ncols=5)
        dress(panel)
    stamp(figure, results)
    return figure
