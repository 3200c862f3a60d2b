"""The paper's claims, and what was measured of them."""

from collections.abc import Iterator, Sequence
from typing import Final

from emlio.units import format_duration
from emlio_bench.harness.results import Results
from emlio_bench.harness.spread import Value, spread, text
from emlio_bench.paper.curves import NOT_RUN, loss_claims
from emlio_bench.paper.figures import (
    DALI_LOCAL,
    HALF_LOCAL,
    NEAREST_NS,
    OUR_LOCAL,
    OURS,
    RESNET,
    VGG,
    Subject,
    Training,
)
from emlio_bench.paper.scale import Scale
from emlio_bench.race.quantity import Quantity
from emlio_bench.race.report.check import Check, Outcome, Requirement
from emlio_bench.race.report.standing import Standing, energy_ratio, same_round_ratio, standings

__all__ = ["claims", "row_of", "seconds"]

_FAR_NS: Final = 30_000_000
_FILES: Final[Subject] = ("dali-file", "default")
_SHARDS: Final[Subject] = ("dali-tfrecord", "default")
_CALLED: Final[dict[Subject, str]] = {_FILES: "a file for each record", _SHARDS: "TFRecord files"}
_PERCENT_FLAT: Final = 1.0
_PERCENT_LOCAL: Final = 1.0
_TIMES_ENERGY: Final = 10.9
_OF_TIME: Final = 0.9
"""Above this share at rest, a ratio of energies says no more than the ratio of the epochs."""


def claims(race: Results) -> tuple[Check, ...]:
    """Return all claims, also those of which nothing was measured."""
    rows = standings(race)
    found = (*_all(rows), *loss_claims(race))
    if ("scale", str(Scale.TINY)) not in race.settings:
        return found
    return tuple(
        check if check.why.startswith(NOT_RUN) else check.required.unknown("two batches measure nothing")
        for check in found
    )


def _all(rows: Sequence[Standing]) -> Iterator[Check]:
    for task, training in (("resnet-long", RESNET), ("vgg-long", VGG)):
        yield _flat(rows, task, training)
    for task, training in (("resnet", RESNET), ("vgg", VGG)):
        for baseline in (_FILES, _SHARDS):
            yield _speed_up(rows, task, training, baseline)
    yield _speed_up(rows, "halves", HALF_LOCAL, _SHARDS)
    for ours in (OURS, OUR_LOCAL):
        yield _local(rows, ours)
    yield _no_plateau(rows)
    for baseline in (_FILES, _SHARDS):
        yield _energy(rows, baseline)


def row_of(rows: Sequence[Standing], task: str, rtt_ns: int, subject: Subject) -> Standing | None:
    """Return the row of a subject in a task at a round trip."""
    name = f"{task}-{format_duration(rtt_ns).replace(' ', '')}"
    return next((row for row in rows if row.contest.name == name and row.who == subject), None)


def seconds(row: Standing) -> str:
    """Return the length of an epoch, for a sentence."""
    return f"{text(row.of(Quantity.FIRST_EPOCH), spread=False)} s"


def _flat(rows: Sequence[Standing], task: str, training: Training) -> Check:
    required = Requirement(
        name=f"the same at any distance, {training.name}",
        words=f"{training.name}: our epochs differ by {_PERCENT_FLAT:g} % at most over round trips (the paper: 0.3 %)",
        most=_PERCENT_FLAT,
        unit="%",
    )
    ours = [row for row in rows if row.contest.name.rpartition("-")[0] == task and row.who == OURS]
    if not {NEAREST_NS, _FAR_NS} <= {row.contest.rtt_ns for row in ours}:
        return required.unknown(f"{NOT_RUN} at both {format_duration(NEAREST_NS)} and {format_duration(_FAR_NS)}")
    epochs = [epoch for row in ours if (epoch := row.of(Quantity.FIRST_EPOCH)) is not None]
    if len(epochs) < len(ours) or any(row.is_wrong or row.failures for row in ours):
        return required.unknown("a run failed, or lost or repeated records")
    shortest, longest = (choose(epochs, key=lambda epoch: epoch.median) for choose in (min, max))
    cut = any(epoch.bound for epoch in epochs)
    return required.check(
        spread([Value(value=100 * (longest.median / shortest.median - 1), beyond=">" if cut else "")]),
        f"{task}, all round trips",
        note=f"{text(shortest, spread=False)} to {text(longest, spread=False)} s",
    )


def _speed_up(rows: Sequence[Standing], task: str, training: Training, baseline: Subject) -> Check:
    bound = training.speed_up(_FAR_NS)
    required = Requirement(
        name=f"speed-up, {training.name}, {baseline[0]}",
        words=(
            f"{training.name} over 30 ms: an epoch of DALI over a remote folder ({_CALLED[baseline]}) takes {bound:.1f} times "
            "as long as ours (the paper's ratio)"
        ),
        least=round(bound, 1),
    )
    ours, other = (row_of(rows, task, _FAR_NS, subject) for subject in (OURS, baseline))
    if ours is None or other is None:
        return required.unknown(f"{NOT_RUN} at 30 ms")
    why = _by_arithmetic(row_of(rows, task, NEAREST_NS, baseline), other, training)
    note = f"{seconds(other)} beside {seconds(ours)}"
    return required.check(same_round_ratio(other, ours, Quantity.FIRST_EPOCH), ours.contest.name, why=why, note=note)


def _by_arithmetic(near: Standing | None, far: Standing, training: Training) -> str:
    """Return how many round trips of a record the baseline waits for, and what a step takes."""
    epochs = [None if row is None else row.of(Quantity.FIRST_EPOCH) for row in (near, far)]
    known = [epoch.median for epoch in epochs if epoch is not None and not epoch.bound]
    if len(known) < len(epochs):
        return ""
    trips = (known[1] - known[0]) / ((_FAR_NS - NEAREST_NS) / 1e9) / far.contest.corpus.records
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
    return required.check(times, mine.contest.name, note=f"{rounds} rounds, {seconds(mine)} beside {seconds(dali)}")


def _no_plateau(rows: Sequence[Standing]) -> Check:
    required = Requirement(
        name="2 MB, no plateau",
        words="records of 2 MB over 30 ms: automatic connections are at least as fast as two (the paper needs two threads)",
        most=1.0,
    )
    ours, two = (row_of(rows, "large-two", _FAR_NS, subject) for subject in (OURS, ("emlio-streams-2", "default")))
    if ours is None or two is None:
        return required.unknown(f"{NOT_RUN} at 30 ms")
    note = f"automatic {seconds(ours)}, two {seconds(two)}"
    return required.check(same_round_ratio(ours, two, Quantity.FIRST_EPOCH), ours.contest.name, note=note)


def _energy(rows: Sequence[Standing], baseline: Subject) -> Check:
    required = Requirement(
        name=f"energy, {RESNET.name}, {baseline[0]}",
        words=(
            f"{RESNET.name} over 30 ms: both hosts use {_TIMES_ENERGY:g} times as much energy in an epoch of DALI over a remote "
            f"folder ({_CALLED[baseline]}) as in ours (the paper: up to {_TIMES_ENERGY:g})"
        ),
        least=_TIMES_ENERGY,
    )
    ours, other = (row_of(rows, "resnet", _FAR_NS, subject) for subject in (OURS, baseline))
    if ours is None or other is None:
        return required.unknown(f"{NOT_RUN} at 30 ms")
    times, contest = energy_ratio(other, ours), ours.contest.name
    if times is None:
        return required.unknown("the energy of an epoch is not known for both")
    more, rest = (
        (mine.median if (mine := other.of(of)) else 0.0) - (its.median if (its := ours.of(of)) else 0.0)
        for of in (Quantity.ENERGY, Quantity.REST_ENERGY)
    )
    if rest >= _OF_TIME * more > 0:
        epochs = text(same_round_ratio(other, ours, Quantity.FIRST_EPOCH), spread=False)
        why = f"nearly all of the difference is power at rest, drawn for longer: it repeats the ratio of the epochs, {epochs}"
        return Check(required=required, outcome=Outcome.FOLLOWS, contest=contest, figure=times, why=why)
    return required.check(times, contest, note=f"{more:.0f} J more, of which {rest:.0f} at rest")
