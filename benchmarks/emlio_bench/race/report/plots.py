"""The plots of a race.

Covers: the list of plots and their contents. Does not cover: drawing bars and curves
(emlio_bench.race.report.bars, emlio_bench.race.report.curves), matplotlib
(emlio_bench.harness.plot).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from emlio.units import format_duration
from emlio_bench.harness.page import Picture
from emlio_bench.harness.plot import Drawing
from emlio_bench.harness.spread import Spread, text
from emlio_bench.race.outcome import Contest, Race
from emlio_bench.race.report.bars import Bar, draw_bars, labelled, named
from emlio_bench.race.report.curves import Curve, draw_curves
from emlio_bench.race.report.quantity import Quantity
from emlio_bench.race.report.round_trips import fitted_laws, published_laws
from emlio_bench.race.report.standing import DEFAULT, OURS, Standing, best_of, by_distance, shown, standings
from emlio_bench.race.report.verdict import is_plain, our_row

__all__ = ["draw_race", "drawings"]

_BARS_RTT_NS: Final = 30_000_000
"""The preferred round trip of bars.

Of contests that differ only in their round trip, the one nearest to this has bars.
"""
_STAGES: Final = (("train", Quantity.TRAIN_ENERGY), ("read", Quantity.READ_ENERGY))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Panel:
    """The description of a plot of bars.

    Attributes:
        quantity: quantity of the bars.
        title: title.
        axis: quantity of the axis, with its unit.
        beside: quantity of a thinner bar below each bar.
        joined: form of the second figure beside a bar.
        scale: factor from the quantity's unit to the axis's.
    """

    quantity: Quantity
    title: str
    axis: str
    beside: Quantity | None = None
    joined: str = " + {}"
    scale: float = 1.0

    def values(self, row: Standing) -> list[Spread | None]:
        """Return the values of both bars of a row."""
        found = [None if quantity is None else row.of(quantity) for quantity in (self.quantity, self.beside)]
        return [None if of is None else of.scaled(self.scale) for of in found]


_EPOCH: Final = _Panel(quantity=Quantity.FIRST_EPOCH, title="First epoch", axis="seconds")
_FIVE: Final = {
    OURS: "EMLIO",
    "webdataset": "WebDataset",
    "tfdata-service": "tf.data service",
    "mosaic": "MosaicML Streaming",
    "pytorch-files": "PyTorch DataLoader, mounted folder",
}
"""The bars for a reader who knows no command of the benchmark, with that reader's names."""
_PANELS: Final = (
    _Panel(quantity=Quantity.FIRST_BATCH, title="Time to first batch", axis="seconds"),
    _Panel(
        quantity=Quantity.TRAINING_CPU,
        title="Processor time: training host, storage host below it",
        axis="CPU seconds, all epochs",
        beside=Quantity.STORAGE_CPU,
    ),
    _Panel(
        quantity=Quantity.IN_FLIGHT,
        title="Bytes in flight to training: mean / most",
        axis="MB, during epochs",
        beside=Quantity.PEAK_IN_FLIGHT,
        joined=" / {}",
        scale=1e-6,
    ),
    _Panel(quantity=Quantity.ENERGY, title="Energy of both hosts", axis="joules, all epochs"),
)


def draw_race(race: Race) -> tuple[Picture, ...]:
    """Draw all plots."""
    return tuple(drawing.picture() for drawing in drawings(race))


def drawings(race: Race) -> tuple[Drawing, ...]:
    """Return all plots for which this race has figures."""
    rows = standings(race)
    found: list[Drawing | None] = []
    for place, group in enumerate(by_distance(race.contests)):
        own = [row for row in rows if row.contest in group and row.entrant.family != "limit"]
        run = [contest for contest in group if any(row.contest == contest for row in own)]
        if run:
            found += _of_group(f"g{place}", run, own)
    return tuple(one for one in found if one is not None)


def _of_group(prefix: str, run: Sequence[Contest], rows: Sequence[Standing]) -> list[Drawing | None]:
    nearest = min(run, key=lambda contest: abs(contest.rtt_ns - _BARS_RTT_NS))
    own = [row for row in rows if row.contest == nearest]
    curves = _curves(prefix, run, rows) if len({one.rtt_ns for one in run}) > 1 else None
    panels = _PANELS if curves is not None else (_EPOCH, *_PANELS)
    ours = next((row for row in own if row.is_ours), None)
    return [
        _five(nearest, own),
        curves,
        *(_bars(prefix, nearest, shown(own), panel) for panel in panels),
        _stages(prefix, nearest, ours),
    ]


def _five(contest: Contest, rows: Sequence[Standing]) -> Drawing | None:
    """Return the plot of EMLIO beside four well-known systems at their best settings; None without two of them."""
    if not is_plain(contest):
        return None
    found = [best_of(row for row in rows if row.entrant.subject == subject) for subject in _FIVE if subject != OURS]
    others = sorted((row for row in found if row is not None), key=lambda row: row.order)
    ours = our_row(rows, contest)
    if ours is None or ours.of(Quantity.FIRST_EPOCH) is None or len(others) < 2:
        return None
    bars = [
        Bar(
            label=_FIVE[row.entrant.subject],
            subject=row.entrant.subject,
            pale=False,
            of=of,
            beside=None,
            said=_in_seconds(of),
        )
        for row in (ours, *others)
        if (of := row.of(Quantity.FIRST_EPOCH)) is not None
    ]
    return Drawing(
        name="five-loaders",
        title=f"First epoch over {format_duration(contest.rtt_ns)}: EMLIO {bars[0].said}, {bars[1].label} {bars[1].said}",
        where=contest.corpus.text,
        caption="each at its best settings; a thin line goes from the shortest to the longest run; "
        "a triangle marks runs that were stopped",
        draw=partial(draw_bars, bars, axis="seconds until the end of the first epoch"),
    )


def _in_seconds(of: Spread) -> str:
    return f"{text(of, spread=False)} s"


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


def _bars(prefix: str, contest: Contest, rows: Sequence[Standing], panel: _Panel) -> Drawing | None:
    bars: list[Bar] = []
    for row in rows:
        subject, (of, also) = row.entrant.subject, panel.values(row)
        if of is None:
            continue
        best = best_of(other for other in rows if other.entrant.subject == subject) is row
        said = text(of, spread=False) + (panel.joined.format(text(also, spread=False)) if also is not None else "")
        pale = not (row.is_ours if subject == OURS else best)
        bars.append(Bar(label=named(row), subject=subject, pale=pale, of=of, beside=also, said=said))
    if not bars:
        return None
    which = "; pale: a system's defaults, where another setting is better" if any(bar.pale for bar in bars) else ""
    return Drawing(
        name=f"{prefix}-{panel.quantity.value.replace(' ', '-')}",
        title=panel.title,
        where=_where(contest),
        caption=f"{panel.axis}; a thin line goes from the least to the most round{which}.",
        draw=partial(draw_bars, bars, axis=panel.axis),
    )


def _stages(prefix: str, contest: Contest, ours: Standing | None) -> Drawing | None:
    """Return the plot of EMLIO's energy by stage.

    It shows one system only: the division into stages is a convention, so the figures are no
    comparison.
    """
    bars = [
        Bar(label=label, subject=OURS, pale=False, of=of, beside=None, said=f"{text(of, spread=False)} J")
        for label, quantity in _STAGES
        if ours is not None and (of := ours.of(quantity)) is not None
    ]
    if not bars:
        return None
    axis = "joules, all epochs"
    return Drawing(
        name=f"{prefix}-energy-by-stage",
        title=f"Energy of both hosts by stage, {labelled(OURS)}",
        where=_where(contest),
        caption=f"{axis}. A moment belongs to one stage with all that was drawn in it: to train while a step "
        "ran, else to read. Decoding runs in parallel and is not counted separately.",
        draw=partial(draw_bars, bars, axis=axis),
    )


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
    told = "; ".join(f"{law.subject}: N = {law.round_trips:,.0f}, {law.source}" for law in laws)
    return Drawing(
        name=f"{prefix}-epochs",
        title="First epoch against the round trip",
        where=group[0].corpus.text + (", decoded" if group[0].decode else ""),
        caption="both axes logarithmic. Each at the setting that is its best there, ours at its "
        f"defaults. Computed lines, N x RTT: {told}.",
        draw=partial(draw_curves, curves, laws),
    )


def _curve(label: str, subject: str, rows: Sequence[Standing], *, pale: bool) -> Curve:
    points = [(row.contest.rtt_ns, of) for row in rows if (of := row.of(Quantity.FIRST_EPOCH)) is not None]
    return Curve(label=label, subject=subject, pale=pale, points=tuple(sorted(points, key=lambda point: point[0])))
