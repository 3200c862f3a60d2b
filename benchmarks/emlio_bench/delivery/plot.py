"""The picture of `emlio-bench delivery`: bars of payload a second, with the limits as lines."""

from typing import Any, Final

from emlio_bench.harness.plot import BOUND, INK, blank_figure, colour, dress, stamp
from emlio_bench.harness.report import label
from emlio_bench.harness.results import Results
from emlio_bench.harness.subject import BARE, LIMITS
from emlio_bench.harness.summary import summarise

__all__ = ["draw_delivery"]

_GROUP: Final = 0.84


def draw_delivery(results: Results) -> Any:
    """Return the figure; a percentage is the part of the bare pair's throughput in the same round."""
    rows = summarise(results)
    scenarios = list(dict.fromkeys(row.scenario for row in rows))
    names = list(dict.fromkeys(row.subject for row in rows if row.subject not in (BARE, *LIMITS)))
    bar = _GROUP / max(len(names), 1)
    figure, axes = blank_figure(max(2.4 + 0.5 * len(names) * len(scenarios), 8.0), 5.2, title="Records delivered")
    for row in rows:
        middle, height, label_of = scenarios.index(row.scenario), row.bytes_per_s.median / 1e9, label(row.subject)
        told = label_of if row.scenario == scenarios[0] else None
        if row.subject in (BARE, *LIMITS):
            shade = INK if row.subject == BARE else BOUND
            axes.hlines(height, middle - _GROUP / 2, middle + _GROUP / 2, colors=shade, linewidth=1.6, label=told)
            continue
        place = middle + (names.index(row.subject) - (len(names) - 1) / 2) * bar
        axes.bar(place, height, bar * 0.92, color=colour(row.subject), label=told, zorder=2)
        axes.vlines(place, row.bytes_per_s.least / 1e9, row.bytes_per_s.most / 1e9, color=INK, linewidth=0.9, zorder=3)
        if row.of_bare is not None:
            axes.annotate(f"{row.of_bare.median:.0%}", (place, height), ha="center", va="bottom", fontsize=7)
    axes.set_xticks(range(len(scenarios)), [f"{name} records" for name in scenarios])
    axes.set_ylabel("payload, GB/s")
    dress(axes)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.07), ncols=3, frameon=False, fontsize=8)
    stamp(figure, results)
    return figure
