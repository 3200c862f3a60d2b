"""The plot of a decoding run.

Covers: panels of images per second with DALI, of processor time with Pillow and without decoding,
each with its spread. Does not cover: figures (emlio_bench.decode.figures), matplotlib
(emlio_bench.harness.plot).
"""

from collections.abc import Callable, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

from emlio_bench.decode.figures import cpu_s_per_1000, measured_by
from emlio_bench.decode.subjects import CARRY, DALI, DECODERS, PILLOW
from emlio_bench.experiment.drawing import INK, OURS, dress, stamp
from emlio_bench.harness.meter import Measurement
from emlio_bench.harness.plot import sheet
from emlio_bench.harness.results import Results
from emlio_bench.harness.spread import spread

__all__ = ["plot_decode"]

_THEIRS: Final = "#b9bec7"
_FLOOR: Final = "#e0d7c4"
_COLOURS: Final = {"dali-tfrecord": _THEIRS, "dataloader": _THEIRS, "carry-dataloader": _THEIRS, "pillow-floor": _FLOOR}


def plot_decode(results: Results, path: Path) -> None:
    """Draw the panels of speed and cost, of the scenarios that were measured."""
    device = dict(results.settings).get("device", "cpu").upper()
    panels: dict[str, tuple[str, Callable[[Measurement], float], str]] = {
        DALI: (f"DALI on the {device}: images/s", attrgetter("records_per_s"), "{:.0f}"),
        PILLOW: ("Pillow: CPU s per 1000 images", cpu_s_per_1000, "{:.2f}"),
        CARRY: ("Not decoded: CPU s per 1000 images", cpu_s_per_1000, "{:.3f}"),
    }
    measured = {sample.scenario for sample in results.samples}
    shown = [scenario for scenario in panels if scenario in measured]
    with sheet(path, width=max(5.2 * len(shown), 10), height=4.6, panels=len(shown)) as (figure, _):
        for place, scenario in zip(figure.axes, shown, strict=True):
            _panel(place, results, scenario, *panels[scenario])
        _caption(figure, results)
        stamp(figure, results, at=(0.98, 0.015))
        figure.tight_layout(rect=(0.01, 0.04, 0.99, 0.87), w_pad=3)


def _panel(
    axes: Any, results: Results, scenario: str, title: str, quantity: Callable[[Measurement], float], form: str
) -> None:
    names = [
        name
        for name, decoder in DECODERS.items()
        if decoder.scenario == scenario and measured_by(results.samples, name)
    ]
    for place, name in enumerate(names):
        values = [quantity(measured) for measured in measured_by(results.samples, name).values()]
        _bar(axes, place, name, values, form)
    axes.set_title(title, fontsize=10, color=INK, loc="left")
    axes.set_yticks(range(len(names)), [DECODERS[name].text for name in names])
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.margins(x=0.12)
    dress(axes, grid="x", size=9, bare=("top", "right", "bottom"))


def _bar(axes: Any, place: int, name: str, values: Sequence[float], form: str) -> None:
    of = spread(values)
    axes.barh(place, of.median, 0.62, color=_COLOURS.get(name, OURS), zorder=2)
    axes.hlines(place, of.least, of.most, color=INK, linewidth=1.1, zorder=3)
    axes.annotate(
        form.format(of.median),
        (max(of.most, of.median), place),
        xytext=(5, 0),
        textcoords="offset points",
        va="center",
        fontsize=9,
        color=INK,
    )


def _caption(figure: Any, results: Results) -> None:
    told = dict(results.settings)
    rounds = len({sample.round for sample in results.samples})
    figure.text(0.02, 0.94, "What the source of pictures costs a training process", fontsize=13)
    figure.text(
        0.02,
        0.885,
        f"Median of {rounds} interleaved rounds, lines from least to most; JPEGs of {told['image_size']}, batches of "
        f"{told['batch']}, {told['threads']} threads or processes. Daemons run on the same cores.",
        fontsize=8.5,
        color="#666666",
    )
