"""The plot of a convergence run.

Covers: the losses of all ways over each other, an enlarged part, accuracies. Each way's line is
thinner than the one below it, so that all are visible where they coincide. Does not cover:
comparing them (emlio_bench.convergence.run).
"""

from pathlib import Path
from typing import Any, Final

from emlio_bench.convergence.run import ACCURACIES, LOSSES, WAY_NAMES
from emlio_bench.harness.plot import sheet
from emlio_bench.harness.results import Results

__all__ = ["plot_convergence"]

_WIDTHS: Final = {"reordered": 0.9, "memory": 6.5, "loopback": 3.2, "link": 1.0}
"""Line widths, in the order of drawing."""

_MARKERS: Final = {"reordered": 2.5, "memory": 11.0, "loopback": 7.0, "link": 3.2}
_COLOURS: Final = {"reordered": "#c0392b", "memory": "#cfd4dc", "loopback": "#7cb3d9", "link": "#12354f"}
_ENLARGED_FROM: Final = 300
_ENLARGED_STEPS: Final = 40
_GRID: Final = "#e4e4e4"


def plot_convergence(results: Results, path: Path) -> None:
    """Draw the curves of the run."""
    values = {figure.name: figure.values for figure in results.figures}
    losses = {way: values[name] for way in _WIDTHS if (name := f"{LOSSES}, {WAY_NAMES[way]}") in values}
    accuracies = {way: values[name] for way in _WIDTHS if (name := f"{ACCURACIES}, {WAY_NAMES[way]}") in values}
    steps = len(losses["memory"])
    first = min(steps // 3, _ENLARGED_FROM)
    with sheet(path, width=10.5, height=7.6) as (figure, whole):
        whole.remove()
        axes = figure.subplot_mosaic([["losses", "losses"], ["enlarged", "accuracies"]], height_ratios=(1.1, 1))
        _draw_losses(axes["losses"], losses, 0, steps)
        _draw_losses(axes["enlarged"], losses, first, min(first + _ENLARGED_STEPS, steps))
        _draw_accuracies(axes["accuracies"], accuracies)
        axes["losses"].set_title("Loss of every step", loc="left", fontsize=9.5)
        axes["enlarged"].set_title("The same, enlarged", loc="left", fontsize=9.5)
        axes["accuracies"].set_title("Test accuracy after each epoch", loc="left", fontsize=9.5)
        drawn, names = axes["losses"].get_legend_handles_labels()
        order = [*range(names.index(WAY_NAMES["memory"]), len(names)), *range(names.index(WAY_NAMES["memory"]))]
        figure.legend(
            [drawn[place] for place in order],
            [names[place] for place in order],
            loc="upper left",
            bbox_to_anchor=(0.01, 0.95),
            ncols=4,
            frameon=False,
            fontsize=8.5,
        )
        _caption(figure, results)
        figure.tight_layout(rect=(0.01, 0.03, 0.99, 0.91))


def _draw_losses(axes: Any, losses: dict[str, tuple[float, ...]], first: int, end: int) -> None:
    for way, values in losses.items():
        axes.plot(
            range(first + 1, end + 1),
            values[first:end],
            color=_COLOURS[way],
            linewidth=_WIDTHS[way],
            label=WAY_NAMES[way],
            solid_joinstyle="round",
        )
    axes.set_yscale("log")
    axes.set_xlabel("step", fontsize=8.5)
    axes.set_ylabel("cross entropy, nats", fontsize=8.5)
    axes.margins(x=0.01)
    _dress(axes)


def _draw_accuracies(axes: Any, accuracies: dict[str, tuple[float, ...]]) -> None:
    for way, values in accuracies.items():
        axes.plot(
            range(1, len(values) + 1),
            values,
            color=_COLOURS[way],
            linewidth=_WIDTHS[way] / 2,
            marker="o",
            markersize=_MARKERS[way],
        )
    axes.set_xlabel("epoch", fontsize=8.5)
    axes.xaxis.get_major_locator().set_params(integer=True)
    _dress(axes)


def _dress(axes: Any) -> None:
    axes.grid(color=_GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, labelsize=8)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)


def _caption(figure: Any, results: Results) -> None:
    world = results.environment
    told = dict(results.settings)
    figure.text(0.02, 0.96, "One training, its batches from memory, over loopback and over a long link", fontsize=13)
    figure.text(
        0.98,
        0.012,
        f"link of {int(told['rtt_ns']) / 1e6:g} ms, {world.cpu or 'unknown processor'}, {world.cores} cores, "
        f"Linux {world.kernel}, {world.python}, torch {told['torch']}, emlio {world.commit or world.emlio}",
        ha="right",
        fontsize=6.5,
        color="#888888",
    )
