"""The plot of a scaling run.

Covers: the throughput of all ranks over the number of daemons, beside multiples of one daemon's
throughput; a panel for each round trip. Does not cover: measuring (emlio_bench.scaling.run),
matplotlib (emlio_bench.harness.plot).
"""

from pathlib import Path
from typing import Any, Final

from emlio.units import format_duration
from emlio_bench.harness.plot import sheet
from emlio_bench.harness.results import Figure, Results
from emlio_bench.harness.summary import spread
from emlio_bench.scaling.figures import aggregate_name, ratio_name

__all__ = ["plot_scaling"]

_OURS: Final = "#1f6fa8"
_IDEAL: Final = "#c0392b"
_INK: Final = "#333333"
_GRID: Final = "#e4e4e4"


def plot_scaling(results: Results, path: Path) -> None:
    """Draw a panel for each round trip."""
    figures = {figure.name: figure for figure in results.figures}
    told = dict(results.settings)
    rtts, daemons = ([int(word) for word in told[name].split(",")] for name in ("rtts_ns", "daemons"))
    with sheet(path, width=max(4.4 * len(rtts), 8.0), height=4.4, panels=len(rtts)) as (figure, panels):
        for axes, rtt_ns in zip([panels] if len(rtts) == 1 else panels, rtts, strict=True):
            _draw(axes, figures, rtt_ns, daemons)
        _caption(figure, results)
        figure.tight_layout(rect=(0.005, 0.05, 0.995, 0.88), w_pad=2.0)


def _draw(axes: Any, figures: dict[str, Figure], rtt_ns: int, daemons: list[int]) -> None:
    of = [spread(figures[aggregate_name(rtt_ns, count)].values) for count in daemons]
    ideal = [count * of[0].median for count in daemons]
    axes.plot(daemons, ideal, "--", color=_IDEAL, linewidth=1.4, label="as many times one daemon")
    beyond = [[one.median - one.least for one in of], [one.most - one.median for one in of]]
    middle = [one.median for one in of]
    axes.errorbar(daemons, middle, yerr=beyond, marker="o", markersize=5, color=_OURS, label="all ranks together")
    for count, one in zip(daemons[1:], of[1:], strict=True):
        share = spread(figures[ratio_name(rtt_ns, count)].values).median
        axes.annotate(
            f"{share:.1%}",
            (count, one.median),
            xytext=(6, -12),
            textcoords="offset points",
            fontsize=8.5,
            color=_INK,
        )
    axes.set_title(f"round trip {format_duration(rtt_ns) if rtt_ns else '0 ms'}", fontsize=10, color=_INK)
    axes.set_xlabel("daemons, each behind its own line", fontsize=8.5)
    axes.set_ylabel("payload, Gbit/s", fontsize=8.5)
    axes.set_xticks(daemons)
    axes.set_xlim(0, daemons[-1] * 1.18)
    axes.set_ylim(0, 1.12 * max(*ideal, *(one.most for one in of)))
    axes.grid(axis="y", color=_GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, labelsize=8.5)
    axes.legend(loc="upper left", fontsize=8.5, frameon=False)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _caption(figure: Any, results: Results) -> None:
    world, told = results.environment, dict(results.settings)
    rate = int(told["rate_bits_per_s"]) / 1e6
    title = f"Daemons behind lines of {rate:g} Mbit/s each, {told['ranks']} ranks, one of them slow"
    figure.text(0.015, 0.93, title, fontsize=12)
    figure.text(
        0.99,
        0.015,
        f"medians, least to most; {world.cpu or 'unknown processor'}, {world.cores} cores, Linux {world.kernel}, "
        f"emlio {world.commit or world.emlio}",
        ha="right",
        fontsize=6.5,
        color="#888888",
    )
