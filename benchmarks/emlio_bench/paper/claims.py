"""The paper's claims, each beside what was measured here.

Covers: finding the runs that belong to a claim, the checks. Pure. Does not cover: the paper's
numbers (emlio_bench.paper.published), losses (emlio_bench.paper.losses), tables
(emlio_bench.paper.report).
"""

from collections.abc import Sequence
from typing import Final

from emlio.units import format_duration
from emlio_bench.harness.spread import Seen, spread, text
from emlio_bench.harness.table import Table
from emlio_bench.paper.figures import DALI_LOCAL, NEAREST_NS, OUR_LOCAL, OURS, Subject
from emlio_bench.paper.losses.claims import NOT_RUN, loss_claims
from emlio_bench.paper.published import HALF_LOCAL, RESNET, VGG, Training
from emlio_bench.paper.scale import Scale
from emlio_bench.race.outcome import Contest, Race
from emlio_bench.race.report.check import Check, Outcome, Requirement, same_round_ratio
from emlio_bench.race.report.energy_ratio import energy_ratio
from emlio_bench.race.report.quantity import Quantity
from emlio_bench.race.report.standing import Standing, standings
from emlio_bench.race.report.verdict import is_plain, our_row

__all__ = ["claims", "papers_claims", "row_of"]

_FAR_NS: Final = 30_000_000
_FILES: Final[Subject] = ("dali-file", "default")
_SHARDS: Final[Subject] = ("dali-tfrecord", "default")
_PERCENT_FLAT: Final = 1.0
_PERCENT_LOCAL: Final = 1.0
_OF_TIME: Final = 0.9
"""A ratio of energy follows from time alone where at least this part of the difference is energy at rest."""


def claims(race: Race) -> tuple[Check, ...]:
    """Return all claims, also those of figures that were not measured."""
    rows = standings(race)
    found = (
        _flat(rows, "resnet-long", RESNET),
        _flat(rows, "vgg-long", VGG),
        *(_speed_up(rows, "resnet", RESNET, baseline) for baseline in (_FILES, _SHARDS)),
        *(_speed_up(rows, "vgg", VGG, baseline) for baseline in (_FILES, _SHARDS)),
        _speed_up(rows, "halves", HALF_LOCAL, _SHARDS),
        *(_local(rows, ours) for ours in (OURS, OUR_LOCAL)),
        _no_plateau(rows),
        *(_energy(rows, "resnet", RESNET, baseline) for baseline in (_FILES, _SHARDS)),
        *loss_claims(race),
    )
    if ("scale", str(Scale.TINY)) in race.settings:
        return tuple(
            check if check.why.startswith(NOT_RUN) else check.required.unknown("two batches measure nothing")
            for check in found
        )
    return found


def papers_claims(race: Race) -> list[Table]:
    """Return, for each plain contest of a race, the systems of the paper's figure 5 beside the paper's ratios."""
    rows = standings(race)
    return [
        _figure_5(contest, own)
        for contest in race.contests
        if is_plain(contest) and (own := [row for row in rows if row.contest == contest])
    ]


def _figure_5(contest: Contest, rows: Sequence[Standing]) -> Table:
    """Return the table of one contest: its systems read without steps, the paper's with those of ResNet-50."""
    known = dict(RESNET.baseline_s)
    said = f"{known[contest.rtt_ns] / RESNET.ours_s:.1f}" if contest.rtt_ns in known else "-"
    ours = our_row(rows, contest)
    cells: list[tuple[str, ...]] = []
    for subject, words, paper in (
        (OURS[0], "EMLIO", "1"),
        ("paper", "the paper's method, one thread", "1"),
        ("dali-file", "DALI on a mounted folder, files", said),
        ("dali-tfrecord", "DALI on a mounted folder, TFRecord", said),
        ("pytorch-files", "PyTorch DataLoader on a mounted folder", "-"),
    ):
        row = next((row for row in rows if (row.entrant.subject, row.entrant.setting) == (subject, "default")), None)
        times = same_round_ratio(row, ours, Quantity.FIRST_EPOCH) if row is not None and ours is not None else None
        epoch = None if row is None else row.of(Quantity.FIRST_EPOCH)
        cells.append((words, text(epoch, spread=False), text(times, spread=False), paper))
    return Table(
        title=f"The systems of the paper's figure 5 over {format_duration(contest.rtt_ns) if contest.rtt_ns else '0 ms'}",
        header=("system", "first epoch, s", "times EMLIO's", "in the paper, with ResNet-50"),
        rows=tuple(cells),
        names=1,
        ours=frozenset({0}),
    )


def row_of(rows: Sequence[Standing], task: str, rtt_ns: int, subject: Subject) -> Standing | None:
    """Return the standing of a subject in a task at a round trip, or None."""
    name = f"{task}-{format_duration(rtt_ns).replace(' ', '')}"
    return next(
        (row for row in rows if row.contest.name == name and (row.entrant.subject, row.entrant.setting) == subject),
        None,
    )


def _flat(rows: Sequence[Standing], task: str, training: Training) -> Check:
    required = Requirement(
        name=f"the same at any distance, {training.name}",
        words=f"{training.name}: our epochs differ by {_PERCENT_FLAT:g} % at most over round trips (the paper: 0.3 %)",
        most=_PERCENT_FLAT,
        unit="%",
    )
    ours = [
        row
        for row in rows
        if row.contest.name.rpartition("-")[0] == task and (row.entrant.subject, row.entrant.setting) == OURS
    ]
    if not {NEAREST_NS, _FAR_NS} <= {row.contest.rtt_ns for row in ours}:
        return required.unknown(f"{NOT_RUN} at both {format_duration(NEAREST_NS)} and {format_duration(_FAR_NS)}")
    found = [row.of(Quantity.FIRST_EPOCH) for row in ours]
    epochs = [epoch for epoch in found if epoch is not None]
    if len(epochs) < len(ours) or any(row.is_wrong or row.failures for row in ours):
        return required.unknown("a run failed, or lost or repeated records")
    shortest, longest = (choose(epochs, key=lambda epoch: epoch.median) for choose in (min, max))
    starts = ", ".join(
        f"{format_duration(row.contest.rtt_ns)}: {text(row.of(Quantity.FIRST_BATCH), spread=False)} s" for row in ours
    )
    cut = any(epoch.bound for epoch in epochs)
    return required.check(
        spread([Seen(value=100 * (longest.median / shortest.median - 1), beyond=">" if cut else "")]),
        f"{task}, all round trips",
        why=f"epochs count from before the constructor, and the first batch came after {starts}",
        note=f"{text(shortest, spread=False)} to {text(longest, spread=False)} s",
    )


def _speed_up(rows: Sequence[Standing], task: str, training: Training, baseline: Subject) -> Check:
    bound = training.speed_up(_FAR_NS)
    required = Requirement(
        name=f"speed-up, {training.name}, {baseline[0]}",
        words=(
            f"{training.name} over 30 ms: an epoch of DALI over a remote folder ({_called(baseline)}) takes {bound:.1f} times "
            "as long as ours (the paper's ratio)"
        ),
        least=round(bound, 1),
    )
    ours, other = (row_of(rows, task, _FAR_NS, subject) for subject in (OURS, baseline))
    if ours is None or other is None:
        return required.unknown(f"{NOT_RUN} at 30 ms")
    times = same_round_ratio(other, ours, Quantity.FIRST_EPOCH)
    return required.check(
        times,
        ours.contest.name,
        why=_by_arithmetic(rows, task, training, baseline),
        note=f"{_seconds(other)} beside {_seconds(ours)}",
    )


def _by_arithmetic(rows: Sequence[Standing], task: str, training: Training, baseline: Subject) -> str:
    """Return how many round trips the baseline waits for each record, here and in the paper."""
    near, far = (row_of(rows, task, rtt_ns, baseline) for rtt_ns in (NEAREST_NS, _FAR_NS))
    if near is None or far is None:
        return ""
    epochs = [row.of(Quantity.FIRST_EPOCH) for row in (near, far)]
    if any(epoch is None or epoch.bound for epoch in epochs):
        return ""
    near_s, far_s = (epoch.median for epoch in epochs if epoch is not None)
    trips = (far_s - near_s) / ((_FAR_NS - NEAREST_NS) / 1e9) / far.contest.corpus.records
    step_ms = training.step_ns / 1e6 / far.contest.batch
    return (
        f"it waits for {trips:.2f} round trips of each record here, which is {trips * _FAR_NS / 1e6:.1f} ms where a step takes "
        f"{step_ms:.2f} ms of each; the paper's table fits one round trip and {training.requests:,.0f} records"
    )


def _local(rows: Sequence[Standing], ours: Subject) -> Check:
    where = "a daemon nearby" if ours == OURS else "our local mode"
    required = Requirement(
        name=f"beside DALI's own reader, {ours[0]}",
        words=(
            f"on one host: an epoch by {where} takes at most {_PERCENT_LOCAL:g} % longer than DALI's own reader with the same "
            f"steps (the paper's takes {100 * (RESNET.ours_s / (RESNET.local_s or RESNET.ours_s) - 1):.1f} % longer)"
        ),
        most=1 + _PERCENT_LOCAL / 100,
    )
    # It has one round trip: the nearest, or that of a real network.
    rtt_ns = next((row.contest.rtt_ns for row in rows if row.contest.name.startswith("local-")), NEAREST_NS)
    mine, dali = (row_of(rows, "local", rtt_ns, subject) for subject in (ours, DALI_LOCAL))
    if mine is None or dali is None:
        return required.unknown(NOT_RUN)
    times = same_round_ratio(mine, dali, Quantity.FIRST_EPOCH)
    rounds = 0 if times is None else times.count
    return required.check(times, mine.contest.name, note=f"{rounds} rounds, {_seconds(mine)} beside {_seconds(dali)}")


def _no_plateau(rows: Sequence[Standing]) -> Check:
    required = Requirement(
        name="2 MB, no plateau",
        words="records of 2 MB over 30 ms: automatic connections are at least as fast as two (the paper needs two threads)",
        most=1.0,
    )
    ours, two = (
        row_of(rows, "large-two", _FAR_NS, OURS),
        row_of(rows, "large-two", _FAR_NS, ("emlio-streams-2", "default")),
    )
    if ours is None or two is None:
        return required.unknown(f"{NOT_RUN} at 30 ms")
    one = row_of(rows, "large-one", _FAR_NS, ("emlio-streams-1", "default"))
    note = f"automatic {_seconds(ours)}, two {_seconds(two)}"
    if one is not None:
        note += f", one {_seconds(one)}"
    return required.check(same_round_ratio(ours, two, Quantity.FIRST_EPOCH), ours.contest.name, note=note)


def _energy(rows: Sequence[Standing], task: str, training: Training, baseline: Subject) -> Check:
    bound = 10.9
    required = Requirement(
        name=f"energy, {training.name}, {baseline[0]}",
        words=(
            f"{training.name} over 30 ms: both hosts use {bound:g} times as much energy in an epoch of DALI over a remote folder "
            f"({_called(baseline)}) as in ours (the paper: up to {bound:g})"
        ),
        least=bound,
    )
    ours, other = (row_of(rows, task, _FAR_NS, subject) for subject in (OURS, baseline))
    if ours is None or other is None:
        return required.unknown(f"{NOT_RUN} at 30 ms")
    found = energy_ratio(other, ours)
    if found is None:
        return required.unknown(_why_no_ratio(ours, other))
    note = f"{found.text} more at rest + above rest"
    outcome, why = None, ""
    if found.rest_joules >= _OF_TIME * (found.rest_joules + abs(found.work_joules)):
        times = same_round_ratio(other, ours, Quantity.FIRST_EPOCH)
        outcome = Outcome.FOLLOWS
        why = (
            "nearly all of the difference is power at rest, drawn for longer: the ratio repeats that of the epochs, "
            f"{text(times, spread=False)}"
        )
    elif not found.times.bound and found.times.least < bound <= found.times.most:
        outcome, why = Outcome.NOT_MEASURED, "its error allows both"
    if outcome is None:
        return required.check(found.times, ours.contest.name, note=note)
    return Check(required=required, outcome=outcome, contest=ours.contest.name, figure=found.times, why=why, note=note)


def _why_no_ratio(ours: Standing, other: Standing) -> str:
    if any(run.cut for run in ours.runs):
        return "our run was cut"
    if ours.is_wrong or other.is_wrong:
        return "records were lost or repeated"
    return "the energy of the same parts of both hosts was not recorded for both"


def _called(baseline: Subject) -> str:
    return "a file for each record" if baseline == _FILES else "TFRecord files"


def _seconds(row: Standing) -> str:
    return f"{text(row.of(Quantity.FIRST_EPOCH), spread=False)} s"
