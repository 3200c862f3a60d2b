"""The plot of a scaling run.

Covers: the throughput of all ranks over the number of daemons, beside multiples of one daemon's
throughput; a panel for each round trip. Does not cover: measuring (emlio_bench.scaling.run),
matplotlib (emlio_bench.harness.plot).
"""

from pathlib import Path
from typing import Any

from emlio_bench.experiment.drawing import BOUND, INK, OURS, draw_spreads, dress, stamp
from emlio_bench.experiment.figures import by_name, rtt_text
from emlio_bench.harness.plot import sheet
from emlio_bench.harness.results import Figure, Results
from emlio_bench.harness.spread import spread
from emlio_bench.scaling.figures import aggregate_name, ratio_name

__all__ = ["plot_scaling"]


def plot_scaling(results: Results, path: Path) -> None:
    """Draw a panel for each round trip."""
    figures = by_name(results)
    told = dict(results.settings)
    rtts, daemons = ([int(word) for word in told[name].split(",")] for name in ("rtts_ns", "daemons"))
    with sheet(path, width=max(4.4 * len(rtts), 8.0), height=4.4, panels=len(rtts)) as (figure, panels):
        for axes, rtt_ns in zip([panels] if len(rtts) == 1 else panels, rtts, strict=True):
            _draw(axes, figures, rtt_ns, daemons)
        title = f"Daemons behind lines of {int(told['rate_bits_per_s']) / 1e6:g} Mbit/s each, {told['ranks']} ranks, "
        figure.text(0.015, 0.93, f"{title}one of them slow", fontsize=12)
        stamp(figure, results, before="medians, least to most; ", software=())
        figure.tight_layout(rect=(0.005, 0.05, 0.995, 0.88), w_pad=2.0)


def _draw(axes: Any, figures: dict[str, Figure], rtt_ns: int, daemons: list[int]) -> None:
    samples = [figures[aggregate_name(rtt_ns, count)].values for count in daemons]
    of = [spread(values) for values in samples]
    ideal = [count * of[0].median for count in daemons]
    axes.plot(daemons, ideal, "--", color=BOUND, linewidth=1.4, label="as many times one daemon")
    draw_spreads(axes, daemons, samples, markersize=5, color=OURS, label="all ranks together")
    for count, one in zip(daemons[1:], of[1:], strict=True):
        share = spread(figures[ratio_name(rtt_ns, count)].values).median
        axes.annotate(
            f"{share:.1%}",
            (count, one.median),
            xytext=(6, -12),
            textcoords="offset points",
            fontsize=8.5,
            color=INK,
        )
    axes.set_title(f"round trip {rtt_text(rtt_ns)}", fontsize=10, color=INK)
    axes.set_xlabel("daemons, each behind its own line", fontsize=8.5)
    axes.set_ylabel("payload, Gbit/s", fontsize=8.5)
    axes.set_xticks(daemons)
    axes.set_xlim(0, daemons[-1] * 1.18)
    axes.set_ylim(0, 1.12 * max(*ideal, *(one.most for one in of)))
    dress(axes)
    axes.legend(loc="upper left", fontsize=8.5, frameon=False)
