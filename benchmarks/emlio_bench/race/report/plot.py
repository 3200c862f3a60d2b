"""The picture of a race: first epochs, as bars of each contest or as curves over round trips."""

from collections.abc import Sequence
from typing import Any, Final

from emlio.units import format_duration
from emlio_bench.harness.contest import Contest
from emlio_bench.harness.plot import MUTED, blank_figure, colour, draw_bars, dress, stamp
from emlio_bench.harness.results import Results
from emlio_bench.race.quantity import Quantity
from emlio_bench.race.report.standing import DEFAULT, OURS, Standing, best_of, by_distance, our_row, shown, standings

__all__ = ["draw_race", "labelled"]

_LABELS: Final = {
    "dali-file": "DALI, mounted files",
    "dali-local": "DALI on one host",
    "dali-tfrecord": "DALI, mounted TFRecord files",
    "emlio": "EMLIO",
    "emlio-local": "EMLIO on one host",
    "emlio-streams-1": "EMLIO, one connection",
    "emlio-streams-2": "EMLIO, two connections",
    "grain": "Grain, mounted ArrayRecord files",
    "hf-datasets": "Hugging Face datasets",
    "litdata": "LitData",
    "mosaic": "MosaicML Streaming",
    "paper": "the paper's method",
    "pytorch-files": "DataLoader, mounted files",
    "spdl": "SPDL, mounted files",
    "tfdata-service": "tf.data service",
    "webdataset": "WebDataset",
}

_NO_RTT_MS: Final = 0.04
_ROW: Final = 0.26


def labelled(row: Standing) -> str:
    """Return the name of a row in a picture."""
    subject = _LABELS.get(row.entrant.subject, row.entrant.subject)
    setting = (
        row.entrant.setting.replace("workers", "threads") if row.entrant.subject == "paper" else row.entrant.setting
    )
    return subject if setting == DEFAULT else f"{subject}, {setting}"


def draw_race(race: Results) -> Any:
    """Return a figure with a panel for each group of contests that differ in their round trip alone."""
    rows = [row for row in standings(race) if row.of(Quantity.FIRST_EPOCH) is not None]
    groups = [
        [contest for contest in group if any(row.contest == contest for row in rows)]
        for group in by_distance(race.contests)
    ]
    groups = [group for group in groups if group]
    if not groups:
        return None
    heights = [3.6 if len(group) > 1 else 1.0 + _ROW * len(_bars(rows, group[0])) for group in groups]
    figure, axes = blank_figure(8.6, sum(heights), title="First epoch", rows=len(groups))
    for place, group in enumerate(groups):
        panel = axes[place] if len(groups) > 1 else axes
        if len(group) > 1:
            _curves(panel, rows, group)
        else:
            draw_bars(panel, _bars(rows, group[0]), "seconds until the end of the first epoch; a triangle: longer than")
        panel.set_title(_where(group), loc="left", fontsize=9, color=MUTED)
    stamp(figure, race)
    return figure


def _where(group: Sequence[Contest]) -> str:
    first = group[0]
    parts = [first.name if len(group) == 1 else first.name.rpartition("-")[0], first.corpus.text]
    parts += ["decoded"] * first.decode + ["every second shard at home"] * first.halves
    parts += [f"steps of {format_duration(first.step_ns)}"] if first.step_ns else []
    return ", ".join(parts)


def _bars(rows: Sequence[Standing], contest: Contest) -> list[tuple[str, str, Any]]:
    """Return each system at its best setting, ours at its defaults."""
    best: dict[str, Standing] = {}
    for row in shown([row for row in rows if row.contest == contest]):
        best.setdefault(row.entrant.subject, row)
    return [(labelled(row), subject, row.of(Quantity.FIRST_EPOCH)) for subject, row in best.items()]


def _curves(axes: Any, rows: Sequence[Standing], group: Sequence[Contest]) -> None:
    """Draw each system at the setting that is its best at each round trip, ours at its defaults."""
    axes.set_xscale("log")
    axes.set_yscale("log")
    for subject in dict.fromkeys(row.entrant.subject for row in rows if row.entrant.family != "limit"):
        points: list[tuple[float, float, bool]] = []
        for contest in group:
            own = [row for row in rows if row.contest == contest and row.entrant.subject == subject]
            row = our_row(own, contest) if subject == OURS else best_of(own)
            if row is not None and (of := row.of(Quantity.FIRST_EPOCH)) is not None:
                points.append((contest.rtt_ns / 1e6 or _NO_RTT_MS, of.median, of.bound))
        style: dict[str, Any] = {"color": colour(subject), "linewidth": 2.6 if subject == OURS else 1.2}
        axes.plot(
            [rtt for rtt, _, _ in points],
            [epoch for _, epoch, _ in points],
            marker="o",
            markersize=4,
            label=_LABELS.get(subject, subject),
            **style,
        )
        cut = [(rtt, epoch) for rtt, epoch, bound in points if bound]
        axes.plot(*zip(*cut, strict=True) if cut else ([], []), "^", markersize=8, markerfacecolor="none", **style)
    axes.set_xlabel("round trip of the link, ms (a triangle: longer than)")
    axes.set_ylabel("first epoch, s")
    dress(axes, grid="both")
    axes.legend(fontsize=7, frameon=False, ncols=2, loc="center left", bbox_to_anchor=(1.0, 0.5))
