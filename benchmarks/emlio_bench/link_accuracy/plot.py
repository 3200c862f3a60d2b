"""The plot of a link's accuracy.

Covers: the deviation of round trips from the request, and the throughput of streams. Does not
cover: measuring (emlio_bench.link_accuracy.run), matplotlib (emlio_bench.harness.plot).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from emlio.units import format_duration
from emlio_bench.harness.plot import sheet
from emlio_bench.harness.results import Figure, Results
from emlio_bench.harness.summary import spread
from emlio_bench.link.accuracy import LEAST_BITS_PER_S, LEAST_STREAMS, rtt_bounds_ns, summarise_pings
from emlio_bench.link_accuracy.figures import link_streams, ping_name, stream_name

__all__ = ["plot_link"]

_COLOURS: Final = ("#9aa3b0", "#7cb3d9", "#1f6fa8", "#2e8b57", "#b98a1e", "#b0566b", "#8f79b8")
_BOUND: Final = "#c0392b"
_GRID: Final = "#e4e4e4"
_MS: Final = 1e6


def plot_link(results: Results, path: Path) -> None:
    """Draw both panels."""
    figures = {figure.name: figure for figure in results.figures}
    rtts, streams = link_streams(results)
    with sheet(path, width=11, height=4.2, panels=2) as (figure, (left, right)):
        _draw_round_trips(left, figures, rtts)
        _draw_streams(right, figures, rtts, streams)
        for axes in (left, right):
            axes.grid(axis="y", color=_GRID, linewidth=0.8)
            axes.set_axisbelow(True)
            axes.tick_params(length=0, labelsize=8)
            for side in ("top", "right"):
                axes.spines[side].set_visible(False)
        _caption(figure, results)
        figure.tight_layout(rect=(0.005, 0.05, 0.995, 0.92), w_pad=2.5)


def _draw_round_trips(axes: Any, figures: dict[str, Figure], rtts: Sequence[int]) -> None:
    for place, rtt_ns in enumerate(rtts):
        found = summarise_pings([round(value * _MS) for value in figures[ping_name(rtt_ns)].values])
        low, high = rtt_bounds_ns(rtt_ns)
        axes.bar([place], [(high - low) / _MS], width=0.4, bottom=(low - rtt_ns) / _MS, color=_BOUND, alpha=0.15)
        axes.plot([place, place], [(found.low - rtt_ns) / _MS, (found.high - rtt_ns) / _MS], color=_COLOURS[2])
        axes.plot([place], [(found.median - rtt_ns) / _MS], "o", color=_COLOURS[2], markersize=6, mew=0)
    axes.set_xticks(range(len(rtts)), [format_duration(rtt_ns) if rtt_ns else "0 ms" for rtt_ns in rtts])
    axes.set_xlim(-0.5, len(rtts) - 0.5)
    axes.set_xlabel("round trip that was asked for", fontsize=8)
    axes.set_ylabel("measured minus asked, ms", fontsize=8)
    axes.set_title("median, 5th to 95th of 100; shaded: where the median must be", fontsize=9)


def _draw_streams(axes: Any, figures: dict[str, Figure], rtts: Sequence[int], streams: Sequence[int]) -> None:
    for place, rtt_ns in enumerate(rtts):
        of = [spread(figures[stream_name(rtt_ns, count)].values) for count in streams]
        middle = [one.median for one in of]
        beyond = [[one.median - one.least for one in of], [one.most - one.median for one in of]]
        label = format_duration(rtt_ns) if rtt_ns else "0 ms"
        colour = _COLOURS[place % len(_COLOURS)]
        axes.errorbar(range(len(streams)), middle, yerr=beyond, marker="o", markersize=4, color=colour, label=label)
    if LEAST_STREAMS in streams:
        place = list(streams).index(LEAST_STREAMS)
        least = LEAST_BITS_PER_S / 1e9
        axes.plot([place - 0.3, place + 0.3], [least, least], color=_BOUND, linewidth=2)
    axes.set_xticks(range(len(streams)), [str(count) for count in streams])
    axes.set_xlabel("TCP streams at once", fontsize=8)
    axes.set_ylabel("Gbit/s", fontsize=8)
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=8, frameon=False)
    axes.set_title("throughput; the red mark is the least for 16 streams up to 30 ms", fontsize=9)


def _caption(figure: Any, results: Results) -> None:
    world, told = results.environment, dict(results.settings)
    buffers = "64 MB" if told["tuned"] == "true" else f"stock ({world.tcp_wmem})"
    figure.text(0.01, 0.95, f"The link by itself: {told['kind']}, TCP buffers {buffers}", fontsize=12)
    figure.text(
        0.99,
        0.015,
        f"{world.cpu or 'unknown processor'}, {world.cores} cores, Linux {world.kernel}, emlio {world.commit or world.emlio}",
        ha="right",
        fontsize=6.5,
        color="#888888",
    )
