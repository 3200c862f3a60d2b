"""The picture of `emlio-bench scaling`: payload by number of daemons, a panel for each round trip."""

from typing import Any

from emlio_bench.harness.figures import by_name, rtt_text
from emlio_bench.harness.plot import BOUND, OURS, blank_figure, draw_spreads, dress, stamp
from emlio_bench.harness.results import Results
from emlio_bench.harness.spread import spread
from emlio_bench.scaling.figures import aggregate_name

__all__ = ["draw_scaling"]


def draw_scaling(results: Results) -> Any:
    """Return the figure."""
    figures, told = by_name(results), dict(results.settings)
    rtts, daemons = ([int(word) for word in told[name].split(",")] for name in ("rtts_ns", "daemons"))
    title = (
        f"Daemons behind lines of {int(told['rate_bits_per_s']) / 1e6:g} Mbit/s each, {told['ranks']} ranks, one slow"
    )
    figure, axes = blank_figure(max(4.4 * len(rtts), 8.0), 4.0, title=title, columns=len(rtts))
    for panel, rtt_ns in zip([axes] if len(rtts) == 1 else axes, rtts, strict=True):
        samples = [figures[aggregate_name(rtt_ns, count)].values for count in daemons]
        ideal = [count * spread(samples[0]).median for count in daemons]
        panel.plot(daemons, ideal, "--", color=BOUND, linewidth=1.4, label="as many times one daemon")
        draw_spreads(panel, daemons, samples, markersize=5, color=OURS, label="all ranks together")
        panel.set_title(f"round trip {rtt_text(rtt_ns)}", fontsize=9)
        panel.set_xlabel("daemons, each behind its own line")
        panel.set_ylabel("payload, Gbit/s")
        panel.set_xticks(daemons)
        panel.set_ylim(bottom=0)
        dress(panel)
        panel.legend(loc="upper left", fontsize=8, frameon=False)
    stamp(figure, results)
    return figure
