"""The figures of decoding, with their bounds.

Covers: images per second, processor time, ratios within rounds, doubts. Pure. Does not cover:
presentation (emlio_bench.harness.report, emlio_bench.decode.plot).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from emlio_bench.decode.subjects import CARRY, DALI, DECODERS, FLOOR, PILLOW
from emlio_bench.harness.meter import Measurement
from emlio_bench.harness.report import render
from emlio_bench.harness.results import Figure, Results, Sample
from emlio_bench.harness.summary import doubts, spread, summarise

__all__ = ["cpu_s_per_1000", "decode_figures", "measured_by", "ratios", "render_decode"]

_READER: Final = "dali-tfrecord"
_DATALOADER: Final = "dataloader"
_LEAST_OF_READER: Final = {"emlio-daemon": 0.95, "emlio-local": 0.98}
_COSTS_COMPARED: Final = (
    ("threads-daemon", _DATALOADER),
    ("threads-local", _DATALOADER),
    ("carry-daemon", "carry-dataloader"),
    ("carry-local", "carry-dataloader"),
)
_WIDE: Final = 0.1
"""The width above which a ratio is doubtful: its bound is a few percent from 1."""

_CPU_UNIT: Final = "s/1000 images"
_CPU_NOTE: Final = (
    "CPU is of the training side: its process, all threads, and its worker processes. The daemon's is told beside it; it\n"
    "runs on the same cores."
)
_RATIO_NOTE: Final = "Ratios are taken within each round, of samples that were taken one after the other."
_FLOOR_NOTE: Final = (
    "Added: what is left of the CPU time when that of the transform alone, in the same round, is taken away. It is alone on\n"
    "one core; what several busy cores take from each other is part of what is added."
)


def cpu_s_per_1000(measured: Measurement) -> float:
    """Return the processor seconds of the training side for 1000 images."""
    return measured.receiver_cpu_ns / measured.records / 1e6


def _daemon_cpu_s_per_1000(measured: Measurement) -> float:
    return measured.sender_cpu_ns / measured.records / 1e6


def _images_per_s(measured: Measurement) -> float:
    return measured.records_per_s


def measured_by(samples: Sequence[Sample], subject: str) -> dict[int, Measurement]:
    """Return the measurements of one subject by round."""
    return {sample.round: sample.measured for sample in samples if sample.subject == subject}


def ratios(
    samples: Sequence[Sample], subject: str, other: str, quantity: Callable[[Measurement], float]
) -> tuple[float, ...]:
    """Return the ratios of one subject's quantity to another's, for every round with both."""
    return tuple(quantity(own) / quantity(theirs) for own, theirs in _paired(samples, subject, other))


def _paired(samples: Sequence[Sample], subject: str, other: str) -> list[tuple[Measurement, Measurement]]:
    theirs = measured_by(samples, other)
    return [(own, theirs[number]) for number, own in measured_by(samples, subject).items() if number in theirs]


def decode_figures(samples: Sequence[Sample]) -> tuple[Figure, ...]:
    """Return all figures of the measured subjects, in the order of the subjects."""
    present = {sample.subject for sample in samples}
    named = [name for name in DECODERS if name in present]
    with_dali = [name for name in named if DECODERS[name].scenario == DALI]
    with_pillow = [name for name in named if DECODERS[name].scenario == PILLOW]
    found = [
        *_each(samples, with_dali, "images/s", "images/s", _images_per_s),
        *(_speed_ratio(samples, name) for name in _LEAST_OF_READER),
        *_costs(samples, with_dali),
        *_each(samples, with_pillow, "images/s", "images/s", _images_per_s),
        *_costs(samples, with_pillow),
        *(_added(samples, name) for name in with_pillow if name != FLOOR.name),
        *_costs(samples, [name for name in named if DECODERS[name].scenario == CARRY]),
        *(_cost_ratio(samples, name, theirs) for name, theirs in _COSTS_COMPARED),
    ]
    return tuple(figure for figure in found if figure is not None)


def _each(
    samples: Sequence[Sample], names: Sequence[str], what: str, unit: str, quantity: Callable[[Measurement], float]
) -> list[Figure]:
    return [
        Figure(
            name=f"{what}, {name}", unit=unit, values=tuple(map(quantity, measured_by(samples, name).values())), note=""
        )
        for name in names
    ]


def _costs(samples: Sequence[Sample], names: Sequence[str]) -> list[Figure]:
    served = [name for name in names if DECODERS[name].has_daemon]
    costs = [
        *_each(samples, names, "CPU", _CPU_UNIT, cpu_s_per_1000),
        *_each(samples, served, "the daemon's CPU", _CPU_UNIT, _daemon_cpu_s_per_1000),
    ]
    return [replace(figure, note=_CPU_NOTE) for figure in costs]


def _speed_ratio(samples: Sequence[Sample], name: str) -> Figure | None:
    values = ratios(samples, name, _READER, _images_per_s)
    return (
        Figure(
            name=f"images/s, {name} / {_READER}",
            unit="",
            values=values,
            at_least=_LEAST_OF_READER[name],
            note=_RATIO_NOTE,
        )
        if values
        else None
    )


def _added(samples: Sequence[Sample], name: str) -> Figure | None:
    values = tuple(cpu_s_per_1000(own) - cpu_s_per_1000(floor) for own, floor in _paired(samples, name, FLOOR.name))
    return Figure(name=f"CPU added, {name}", unit=_CPU_UNIT, values=values, note=_FLOOR_NOTE) if values else None


def _cost_ratio(samples: Sequence[Sample], name: str, theirs: str) -> Figure | None:
    values = ratios(samples, name, theirs, cpu_s_per_1000)
    return (
        Figure(name=f"CPU, {name} / {theirs}", unit="", values=values, at_most=1.0, note=_RATIO_NOTE)
        if values
        else None
    )


def render_decode(results: Results) -> str:
    """Render the figures as a table, with reasons for doubt. The JSON file holds the samples."""
    found = list(doubts(summarise(results)))
    for figure in results.figures:
        of = spread(figure.values)
        if (figure.at_least is not None or figure.at_most is not None) and of.width > _WIDE:
            found.append(
                f"{figure.name}: wandered from {of.least:.2f} to {of.most:.2f}: measure longer or on a quieter machine"
            )
    parts = [render(replace(results, samples=()))]
    if found:
        parts.append("\n".join(["Do not believe blindly:", *(f"  {doubt}" for doubt in found)]))
    return "\n\n".join(parts)
