"""The figures of `emlio-bench decode`, and its picture."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from emlio_bench.decode.subjects import CARRY, DALI, DECODERS, FLOOR, PILLOW
from emlio_bench.harness.plot import bar_panels
from emlio_bench.harness.results import Figure, Results, Run, figure, neighbours
from emlio_bench.harness.spread import Spread, spread

__all__ = ["CPU", "DAEMON_CPU", "SPEED", "decode_figures", "draw_decode"]

SPEED: Final = "images/s"
CPU: Final = "CPU, s/1000 images"
DAEMON_CPU: Final = "the daemon's CPU, s/1000 images"

_READER: Final = "dali-tfrecord"
_DATALOADER: Final = "dataloader"
_LEAST_OF_READER: Final = {"emlio-daemon": 0.95, "emlio-local": 0.98}
"""The least share of the speed of DALI's reader, by subject."""
_COSTS_COMPARED: Final = (
    ("threads-daemon", _DATALOADER),
    ("threads-local", _DATALOADER),
    ("carry-daemon", "carry-dataloader"),
    ("carry-local", "carry-dataloader"),
)
_CPU_NOTE: Final = (
    "CPU is of the training side: its process, all threads, and its worker processes. The daemon's is told beside it; it\n"
    "runs on the same cores. Ratios are of neighbours in the same round."
)
_FLOOR_NOTE: Final = (
    "Added: what is left of the CPU time when that of the transform alone, in the same round, is taken away. It is alone on\n"
    "one core; what several busy cores take from each other is part of what is added."
)


def decode_figures(runs: Sequence[Run]) -> Iterator[Figure]:
    """Yield speeds and costs of each subject, and its ratios to the others."""
    ran = {run.subject for run in runs}
    for name in (name for name in DECODERS if name in ran):
        own = [run for run in runs if run.subject == name]
        for quantity in (SPEED, CPU, DAEMON_CPU):
            if quantity in own[0].values and (quantity != SPEED or DECODERS[name].scenario != CARRY):
                what, _, unit = quantity.partition(", ")
                yield figure(f"{what}, {name}", unit or what, (run.value(quantity) for run in own), _CPU_NOTE)
    for name, least in _LEAST_OF_READER.items():
        yield from _ratios(runs, SPEED, name, _READER, at_least=least)
    for name, decoder in DECODERS.items():
        pairs = neighbours(runs, name, FLOOR.name) if decoder.scenario == PILLOW and name != FLOOR.name else []
        if pairs:
            added = (own.value(CPU) - floor.value(CPU) for own, floor in pairs)
            yield figure(f"CPU added, {name}", "s/1000 images", added, _FLOOR_NOTE)
    for name, theirs in _COSTS_COMPARED:
        yield from _ratios(runs, CPU, name, theirs, at_most=1.0)


def _ratios(
    runs: Sequence[Run],
    quantity: str,
    name: str,
    other: str,
    *,
    at_least: float | None = None,
    at_most: float | None = None,
) -> Iterator[Figure]:
    pairs = neighbours(runs, name, other)
    if pairs:
        what = quantity.partition(",")[0]
        values = (own.value(quantity) / theirs.value(quantity) for own, theirs in pairs)
        yield figure(f"{what}, {name} / {other}", "", values, at_least=at_least, at_most=at_most)


def draw_decode(results: Results) -> Any:
    """Return a figure with a panel for each kind of decoding."""
    panels: list[tuple[str, str, list[tuple[str, str, Spread]]]] = []
    for scenario, quantity in ((DALI, SPEED), (PILLOW, CPU), (CARRY, CPU)):
        own = [run for run in results.runs if run.scenario == scenario]
        bars = [
            (decoder.text, "emlio" if decoder.text.startswith("EMLIO") else "paper", spread(values))
            for name, decoder in DECODERS.items()
            if (values := [run.values[quantity] for run in own if run.subject == name])
        ]
        panels += [(scenario, quantity, bars)] if bars else []
    ratios = [
        (f"{DECODERS[name].text}\n(at least {least:g})", "emlio", spread(found[0].values))
        for name, least in _LEAST_OF_READER.items()
        if (found := [one for one in results.figures if one.name == f"{SPEED}, {name} / {_READER}"])
    ]
    panels[1:1] = (
        [(f"{DALI}, median of the ratios within rounds", "times the speed of DALI's own reader", ratios)]
        if ratios
        else []
    )
    return bar_panels(results, panels)
