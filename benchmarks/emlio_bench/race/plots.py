"""The plots of a race.

Covers: the list of plots, each for a desktop and for a phone. Does not cover: drawing bars and
curves (emlio_bench.race.bars, emlio_bench.race.curves), matplotlib
(emlio_bench.harness.plot).
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Final

from emlio.units import format_duration
from emlio_bench.harness.plot import png_bytes, svg_text
from emlio_bench.race.bars import Bar, draw_bars, labelled, named
from emlio_bench.race.censored_range import Extent, number, text
from emlio_bench.race.curves import Curve, draw_curves
from emlio_bench.race.document import Picture
from emlio_bench.race.outcome import Contest, Race
from emlio_bench.race.quantity import Quantity
from emlio_bench.race.round_trips import fitted_laws, published_laws
from emlio_bench.race.standing import DEFAULT, OURS, Standing, best_of, by_distance, shown, standings

__all__ = ["Drawing", "draw_race", "drawings"]

_BARS_RTT_NS: Final = 30_000_000
"""The preferred round trip of bars.

Of contests that differ only in their round trip, the one nearest to this has bars.
"""
_STAGES: Final = (("train", Quantity.TRAIN_ENERGY), ("read", Quantity.READ_ENERGY))
_ID: Final = re.compile(r'\b(id="|xlink:href="#|url\(#)')
_SIZE: Final = re.compile(r'<svg [^>]*?viewBox="([^"]+)"[^>]*>', re.DOTALL)
_FONT: Final = re.compile(r"font: ([^;\"]*?)'DejaVu Sans'[^;\"]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """A plot that is not drawn yet.

    Attributes:
        name: name of its files.
        caption: caption.
        draw: returns a matplotlib figure; its argument is whether to draw for a phone.
    """

    name: str
    caption: str
    draw: Callable[[bool], Any]


def draw_race(race: Race) -> tuple[Picture, ...]:
    """Draw all plots.

    Raises:
        ConfigError: matplotlib is missing.
    """
    return tuple(map(_drawn, drawings(race)))


def _drawn(drawing: Drawing) -> Picture:
    wide, narrow = drawing.draw(False), drawing.draw(True)
    return Picture(
        name=drawing.name,
        caption=drawing.caption,
        wide=_svg(wide, drawing.name, drawing.caption),
        narrow=_svg(narrow, f"{drawing.name}-narrow", drawing.caption),
        png=png_bytes(wide),
    )


def _svg(figure: Any, name: str, caption: str) -> str:
    """Return an svg element that can be placed in a page beside other plots.

    It has unique ids, a size set by the page, and the reader's fonts.
    """
    said = _ID.sub(lambda match: f"{match[1]}{name}-", svg_text(figure, name))
    head = _SIZE.search(said)
    if head is None:
        return said
    _, _, width, height = head[1].split()
    fresh = (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="{head[1]}" '
        f'width="{float(width):g}pt" height="{float(height):g}pt" role="img" aria-label="{escape(caption)}">'
    )
    said = said[: head.start()] + fresh + said[head.end() :]
    return _FONT.sub(r"font: \1sans-serif", said)


def drawings(race: Race) -> tuple[Drawing, ...]:
    """Return all plots for which this race has figures."""
    rows = standings(race)
    found: list[Drawing] = []
    for place, group in enumerate(by_distance(race.contests)):
        own = [row for row in rows if row.contest in group and row.entrant.family != "limit"]
        found += _of_group(f"g{place}", group, own)
    return tuple(found)


def _of_group(prefix: str, group: Sequence[Contest], rows: Sequence[Standing]) -> list[Drawing]:
    run = [contest for contest in group if any(row.contest == contest for row in rows)]
    if not run:
        return []
    nearest = min(run, key=lambda contest: abs(contest.rtt_ns - _BARS_RTT_NS))
    chosen = shown([row for row in rows if row.contest == nearest])
    found: list[Drawing | None] = [_curves(prefix, run, rows) if len({one.rtt_ns for one in run}) > 1 else None]
    if found == [None]:
        found = [_bars(prefix, nearest, chosen, Quantity.FIRST_EPOCH, "First epoch", "seconds, logarithmic", log=True)]
    found += [
        _bars(prefix, nearest, chosen, Quantity.FIRST_BATCH, "Time to first batch", "seconds, logarithmic", log=True),
        _bars(
            prefix,
            nearest,
            chosen,
            Quantity.TRAINING_CPU,
            "Processor time: training host, storage host below it",
            "CPU seconds, all epochs",
            beside=Quantity.STORAGE_CPU,
        ),
        _bars(
            prefix,
            nearest,
            chosen,
            Quantity.IN_FLIGHT,
            "Bytes in flight to training: mean / most",
            "MB, during epochs",
            beside=Quantity.PEAK_IN_FLIGHT,
            joined=" / {}",
            scale=1e-6,
        ),
        _bars(prefix, nearest, chosen, Quantity.ENERGY, "Energy of both hosts", "joules, all epochs"),
        _stages(prefix, nearest, next((row for row in rows if row.contest == nearest and row.is_ours), None)),
    ]
    return [one for one in found if one is not None]


def _where(contest: Contest) -> str:
    rtt = format_duration(contest.rtt_ns) if contest.rtt_ns else "no distance"
    parts = [f"{contest.corpus.text} at {rtt}"]
    if contest.decode:
        parts.append("decoded")
    if contest.halves:
        parts.append("every second shard at home")
    if contest.step_ns:
        parts.append(f"steps of {format_duration(contest.step_ns)}")
    return ", ".join(parts)


def _bars(
    prefix: str,
    contest: Contest,
    rows: Sequence[Standing],
    quantity: Quantity,
    title: str,
    axis: str,
    *,
    log: bool = False,
    beside: Quantity | None = None,
    joined: str = " + {}",
    scale: float = 1.0,
) -> Drawing | None:
    bars: list[Bar] = []
    for row in rows:
        of = _scaled(row, quantity, scale)
        if of is None:
            continue
        best = best_of(other for other in rows if other.entrant.subject == row.entrant.subject) is row
        also = _scaled(row, beside, scale) if beside is not None else None
        said = text(of, number, spread=False) + (
            joined.format(text(also, number, spread=False)) if also is not None else ""
        )
        bars.append(
            Bar(
                label=named(row),
                subject=row.entrant.subject,
                pale=not (row.is_ours if row.entrant.subject == OURS else best),
                extent=of,
                beside=also,
                said=said,
            )
        )
    if not bars:
        return None
    name = f"{prefix}-{quantity.value.replace(' ', '-')}"
    where = _where(contest)
    pale = "; pale: a system's defaults, where another setting is better" if any(bar.pale for bar in bars) else ""
    return Drawing(
        name=name,
        caption=f"{title}: {where}; {axis}; a thin line goes from the least to the most round{pale}.",
        draw=lambda narrow: draw_bars(
            bars, title=_title(title, where, narrow=narrow), axis=axis, log=log, narrow=narrow
        ),
    )


def _stages(prefix: str, contest: Contest, ours: Standing | None) -> Drawing | None:
    """Return the plot of EMLIO's energy by stage.

    It shows one system only: the division into stages is a convention, so the figures are no
    comparison.
    """
    if ours is None:
        return None
    bars = [
        Bar(label=label, subject=OURS, pale=False, extent=of, beside=None, said=f"{text(of, number, spread=False)} J")
        for label, quantity in _STAGES
        if (of := ours.of(quantity)) is not None
    ]
    if not bars:
        return None
    title, where, axis = f"Energy of both hosts by stage, {labelled(OURS)}", _where(contest), "joules, all epochs"
    return Drawing(
        name=f"{prefix}-energy-by-stage",
        caption=f"{title}: {where}; {axis}. A moment belongs to one stage with all that was drawn in it: to train while a step "
        "ran, else to read. What decodes works beside, and is not told apart.",
        draw=lambda narrow: draw_bars(
            bars, title=_title(title, where, narrow=narrow), axis=axis, log=False, narrow=narrow
        ),
    )


def _scaled(row: Standing, quantity: Quantity, scale: float) -> Extent | None:
    of = row.of(quantity)
    return None if of is None else of.scaled(scale)


def _curves(prefix: str, group: Sequence[Contest], rows: Sequence[Standing]) -> Drawing | None:
    curves: list[Curve] = []
    for subject in dict.fromkeys(row.entrant.subject for row in rows):
        own = [row for row in rows if row.entrant.subject == subject]
        best = [best_of(row for row in own if row.contest == contest) for contest in group]
        defaults = [row for row in own if row.entrant.setting == DEFAULT]
        # A system that waits for each request shows this best at its defaults, which are also the
        # paper's baseline.
        both = own[0].entrant.family == "files" and any(row not in defaults for row in best if row is not None)
        if own[0].is_ours:
            best, both = list(defaults), False
        curves.append(_curve(labelled(subject), subject, [row for row in best if row is not None], pale=False))
        if both:
            curves.append(_curve(f"{subject} default", subject, defaults, pale=True))
    curves = [curve for curve in curves if curve.points]
    if not curves:
        return None
    laws = [law for law in fitted_laws(rows, group) if law.setting == DEFAULT]
    laws += published_laws()[:1]
    title = "First epoch against the round trip"
    told = "; ".join(f"{law.subject}: N = {law.round_trips:,.0f}, {law.source}" for law in laws)
    where = group[0].corpus.text + (", decoded" if group[0].decode else "")
    return Drawing(
        name=f"{prefix}-epochs",
        caption=f"{title}: {where}; both axes logarithmic. Each at the setting that is its best there, ours at its "
        f"defaults. Computed lines, N x RTT: {told}.",
        draw=lambda narrow: draw_curves(
            curves,
            laws,
            title=_title(title, where, narrow=narrow),
            axis="first epoch, s",
            narrow=narrow,
        ),
    )


def _curve(label: str, subject: str, rows: Sequence[Standing], *, pale: bool) -> Curve:
    points = [(row.contest.rtt_ns, of) for row in rows if (of := row.of(Quantity.FIRST_EPOCH)) is not None]
    return Curve(label=label, subject=subject, pale=pale, points=tuple(sorted(points, key=lambda point: point[0])))


def _title(title: str, where: str, *, narrow: bool) -> str:
    if not narrow:
        return f"{title}: {where}"
    head, _, rest = title.partition(": ")
    return "\n".join(filter(None, (head, rest, where)))
