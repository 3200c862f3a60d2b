"""Plots, and the plot of a delivery run.

Covers: a figure and its file, or its text for a page; one bar for each subject, in groups by record
size, with the machine's limits as lines. matplotlib is imported in this module only, and only when
a plot is requested (extra "bench"). Does not cover: statistics (emlio_bench.harness.summary),
plots of decoding (emlio_bench.decode.plot).
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from io import BytesIO, StringIO
from math import log10
from pathlib import Path
from typing import Any, Final

from emlio.errors import ConfigError
from emlio_bench.harness.report import label
from emlio_bench.harness.results import Results
from emlio_bench.harness.subject import BARE, LIMITS
from emlio_bench.harness.summary import Row, summarise

__all__ = ["blank_figure", "check_plotting", "plain_logarithms", "plot_delivery", "png_bytes", "sheet", "svg_text"]

_COLOURS: Final = {
    "paper": "#b9bec7",
    "emlio-shard": "#7cb3d9",
    "emlio-global": "#1f6fa8",
    "emlio-shard-sealed": "#8cc79a",
    "emlio-global-sealed": "#2e8b57",
}
_OTHER_COLOUR: Final = "#8f79b8"
_LIMIT_COLOUR: Final = "#c0392b"
_BARE_COLOUR: Final = "#333333"
_ORDER: Final = tuple(_COLOURS)
_BAR: Final = 0.26
_GROUP: Final = 0.84
"""The largest share of its slot on the axis that a group may take, for any number of bars."""

_INK: Final = "#333333"
_FEW_DECADES: Final = 2.6


def check_plotting() -> None:
    """Raise before an hour of measuring, instead of after it, if matplotlib is missing."""
    if find_spec("matplotlib") is None:
        raise ConfigError("a picture needs matplotlib: pip install emlio-bench")


@contextmanager
def sheet(path: Path, *, width: float, height: float, panels: int = 1) -> Generator[tuple[Any, Any], None, None]:
    """Provide a matplotlib figure and its axes, and write the figure to `path` when the block ends.

    Args:
        path: file of the plot.
        width: width in inches.
        height: height in inches.
        panels: number of panels, side by side; with more than one the axes are an array.
    """
    check_plotting()
    matplotlib: Any = import_module("matplotlib")
    matplotlib.use("Agg")
    pyplot: Any = import_module("matplotlib.pyplot")
    figure, axes = pyplot.subplots(1, panels, figsize=(width, height), dpi=150)
    try:
        yield figure, axes
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)
    except OSError as error:
        raise ConfigError(f"a picture must go where files can be written: {path}: {error.strerror or error}") from error
    finally:
        pyplot.close(figure)


def blank_figure(width: float, height: float) -> tuple[Any, Any]:
    """Return a matplotlib figure and its axes. The caller need not close the figure.

    Args:
        width: width in inches.
        height: height in inches.
    """
    check_plotting()
    figure = import_module("matplotlib.figure").Figure(figsize=(width, height), dpi=150)
    return figure, figure.subplots()


def plain_logarithms(axis: Any) -> None:
    """Label a logarithmic axis with plain numbers: three in a decade, or one over many decades."""
    ticker: Any = import_module("matplotlib.ticker")
    low, high = axis.get_view_interval()
    subs = (1, 2, 5) if log10(high / low) <= _FEW_DECADES else (1,)
    axis.set_major_locator(ticker.LogLocator(base=10, subs=subs, numticks=30))
    axis.set_minor_locator(ticker.NullLocator())
    axis.set_major_formatter(ticker.FuncFormatter(_plainly))


def _plainly(value: float, place: int | None) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


def svg_text(figure: Any, name: str) -> str:
    """Return the figure as an svg element, with its words as text.

    The same figure and name give the same text. A different name gives different ids.
    """
    written = StringIO()
    matplotlib: Any = import_module("matplotlib")
    with matplotlib.rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):
        figure.savefig(written, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = written.getvalue()
    return text[text.index("<svg") :].strip()


def png_bytes(figure: Any) -> bytes:
    """Return the figure as a PNG file."""
    written = BytesIO()
    figure.savefig(written, format="png")
    return written.getvalue()


def plot_delivery(results: Results, path: Path) -> None:
    """Draw the throughput of the run."""
    rows = summarise(results)
    scenarios = list(dict.fromkeys(row.scenario for row in rows))
    names = sorted(
        {row.subject for row in rows} - {BARE, *LIMITS},
        key=lambda name: (_ORDER.index(name) if name in _ORDER else len(_ORDER), name),
    )
    bar = min(_BAR, _GROUP / max(len(names), 1))
    with sheet(path, width=max(2.4 + max(2.0, 0.4 * len(names)) * len(scenarios), 8.0), height=5.6) as (figure, axes):
        for place, name in enumerate(names):
            _bars(axes, rows, scenarios, name, bar, place - (len(names) - 1) / 2)
        half = max(len(names), 1) * bar / 2 + 0.06
        for name in (*LIMITS, BARE):
            _lines(axes, rows, scenarios, name, half)
        _dress(axes, rows, scenarios)
        _caption(figure, results)
        figure.tight_layout(rect=(0.01, 0.03, 0.99, 0.89))


def _bars(axes: Any, rows: Sequence[Row], scenarios: Sequence[str], name: str, bar: float, shift: float) -> None:
    chosen = [row for row in rows if row.subject == name]
    places = [scenarios.index(row.scenario) + shift * bar for row in chosen]
    heights = [row.bytes_per_s.median / 1e9 for row in chosen]
    axes.bar(places, heights, bar * 0.92, color=_COLOURS.get(name, _OTHER_COLOUR), label=label(name), zorder=2)
    for row, place, height in zip(chosen, places, heights, strict=True):
        low, high = row.bytes_per_s.least / 1e9, row.bytes_per_s.most / 1e9
        axes.vlines(place, low, high, color=_INK, linewidth=0.9, alpha=0.7, zorder=3)
        if row.of_bare is not None:
            axes.annotate(
                f"{row.of_bare.median:.0%}",
                (place, max(high, height)),
                xytext=(0, 3),
                textcoords="offset points",
                ha="center",
                fontsize=8,
                color=_INK,
                zorder=5,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6, "alpha": 0.85},
            )


def _lines(axes: Any, rows: Sequence[Row], scenarios: Sequence[str], name: str, half: float) -> None:
    """Draw a limit as one line over each group: it was measured in the same rounds as the bars."""
    chosen = [row for row in rows if row.subject == name]
    if not chosen:
        return
    colour, style = (_BARE_COLOUR, "-") if name == BARE else (_LIMIT_COLOUR, "--")
    places = [scenarios.index(row.scenario) for row in chosen]
    heights = [row.bytes_per_s.median / 1e9 for row in chosen]
    begins, ends = [place - half for place in places], [place + half for place in places]
    axes.hlines(heights, begins, ends, colors=colour, linestyles=style, linewidth=1.6, label=label(name), zorder=4)
    for row, begin, end in zip(chosen, begins, ends, strict=True):
        low, high = row.bytes_per_s.least / 1e9, row.bytes_per_s.most / 1e9
        axes.fill_between([begin, end], low, high, color=colour, alpha=0.08, linewidth=0, zorder=1)


def _dress(axes: Any, rows: Sequence[Row], scenarios: Sequence[str]) -> None:
    axes.set_xticks(range(len(scenarios)), [f"{name} records" for name in scenarios])
    axes.tick_params(axis="both", length=0)
    axes.set_ylabel("payload, GB/s")
    axes.set_ylim(0, 1.08 * max((row.bytes_per_s.most / 1e9 for row in rows), default=1.0))
    axes.set_xlim(-0.55, len(scenarios) - 0.45)
    axes.grid(axis="y", color="#e4e4e4", linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.07), ncols=3, frameon=False, fontsize=8.5)


def _caption(figure: Any, results: Results) -> None:
    world = results.environment
    rounds = min((row.rounds for row in summarise(results)), default=0)
    figure.text(0.02, 0.945, "Records delivered to a training process over loopback", fontsize=13)
    figure.text(
        0.02,
        0.89,
        f"Median of {rounds} interleaved rounds; whiskers and bands from least to most.\n"
        "Percentages: part of the bare pair's throughput in the same round.",
        fontsize=8.5,
        color="#666666",
    )
    figure.text(
        0.98,
        0.015,
        f"{world.cpu or 'unknown processor'}, {world.cores} cores, Linux {world.kernel}, {world.python}, "
        f"libzmq {world.libzmq}, emlio {world.commit or world.emlio}",
        ha="right",
        fontsize=6.5,
        color="#888888",
    )
