"""The plots of `emlio-bench formats`: seconds of the first epoch, a group of bars for each contest.

Covers: a drawing of the formats, one of their own loaders. Does not cover: matplotlib and its files (emlio_bench.harness.plot).
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from emlio_bench.formats.outcome import BESIDE, FIRST_EPOCH, FormatsResults
from emlio_bench.harness.page import Picture
from emlio_bench.harness.palette import INK, colour
from emlio_bench.harness.plot import NARROW, Drawing, Sheet, blank_figure, dress
from emlio_bench.harness.spread import Spread, spread, text
from emlio_bench.race.outcome import Contest

__all__ = ["draw_formats"]

_ROW: Final = 0.27
_HEAD: Final = 0.45
_FOOT: Final = 0.6
_GAP: Final = 1.4
"""The distance between two contests, in rows."""
_ROOM: Final = {False: 1.3, True: 1.75}


def draw_formats(results: FormatsResults) -> tuple[Picture, ...]:
    """Return a plot of the formats, and one of EMLIO beside the formats' own loaders; none of what did not run."""
    beside = [contest for contest in results.contests if contest.name == BESIDE]
    formats = [contest for contest in results.contests if contest.name != BESIDE]
    return tuple(
        _drawing(results, contests, name, title).picture()
        for contests, name, title in (
            (formats, "formats", "Formats: first epoch"),
            (beside, "beside", "Own loaders and EMLIO: first epoch"),
        )
        if any(results.of(contest, subject) for contest in contests for subject in results.subjects(contest))
    )


def _drawing(results: FormatsResults, contests: Sequence[Contest], name: str, title: str) -> Drawing:
    return Drawing(
        name=name,
        title=title,
        where=", ".join(dict.fromkeys(contest.corpus.text for contest in contests)),
        caption="medians, the line from the least to the most of all rounds; > for runs that were cut",
        draw=partial(_draw, results, contests),
    )


def _draw(results: FormatsResults, contests: Sequence[Contest], chosen: Sheet, title: str) -> Any:
    rows: list[tuple[float, str, Spread]] = []
    heads: list[tuple[float, str]] = []
    place = 0.0
    for contest in contests:
        ran = [(name, runs) for name in results.subjects(contest) if (runs := results.of(contest, name))]
        if ran:
            heads.append((place, contest.name))
            place += 1
        for name, runs in ran:
            rows.append((place, name, spread(FIRST_EPOCH.of(runs))))
            place += 1
        place += _GAP - 1 if ran else 0
    height = _HEAD + _FOOT + _ROW * place
    figure, axes = blank_figure(chosen.width, height, title=title, font=chosen.font)
    most = max(of.most for _, _, of in rows)
    axes.set_xlim(0, most * _ROOM[chosen is NARROW])
    axes.set_ylim(place - 0.5, -0.6)
    for at, name, of in rows:
        subject = "emlio" if name.startswith("emlio") else name
        axes.barh(at, of.median, 0.7, color=colour(subject), zorder=2)
        axes.hlines(at, of.least, of.most, color=INK, linewidth=1.0, zorder=3)
        words: dict[str, Any] = {"textcoords": "offset points", "va": "center", "fontsize": chosen.font, "color": INK}
        axes.annotate(text(of, spread=False), (of.most, at), xytext=(4, 0), **words)
    across = axes.get_yaxis_transform()
    for at, head in heads:
        axes.text(
            0.005, at + 0.1, head, transform=across, va="center", fontsize=chosen.font, fontweight="bold", color=INK
        )
    axes.set_xlabel("seconds")
    axes.set_yticks([at for at, _, _ in rows], [name for _, name, _ in rows])
    dress(axes, chosen.font, grid="x")
    total = figure.get_figheight()
    letters = max(len(name) for _, name, _ in rows)
    left = min((0.57 * chosen.font / 72 * letters + 0.2) / chosen.width, 0.5)
    figure.subplots_adjust(left=left, right=0.98, bottom=_FOOT / total, top=(_FOOT + _ROW * place) / total)
    return figure
