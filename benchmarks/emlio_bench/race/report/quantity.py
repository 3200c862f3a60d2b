"""The measured quantities of a run, with their units.

Covers: computing each quantity of a run, cut runs as bounds, exactness in words. Pure. Does not
cover: several runs (emlio_bench.race.report.standing).
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from emlio_bench.harness.spread import Seen, Spread, spread
from emlio_bench.race.outcome import Contest, Energy, InFlight, Run
from emlio_bench.race.records.order import Epoch, Finished

__all__ = ["MEANINGS", "Meaning", "Quantity", "exactness", "is_wrong", "over_runs", "seen_of"]

_S: Final = 1e9
_Read = Callable[[Contest, Run], Seen | None]


class Quantity(StrEnum):
    """The name of a quantity in results.

    Epochs count from before the loader's constructor. Costs and energy are of all epochs, and energy
    is of both hosts. Memory and what is left on disk are of the training host. The share of the wire
    is of all bytes, headers counted, over payload. Blocks are the storage blocks of 640 records among
    those of a batch.
    """

    FIRST_EPOCH = "first epoch"
    LATER_EPOCHS = "later epochs"
    FIRST_BATCH = "first batch"
    RECORDS_RATE = "records rate"
    BIT_RATE = "bit rate"
    FLOW_BIT_RATE = "flow bit rate"
    WAIT_SHARE = "wait share"
    TRAINING_CPU = "training cpu"
    STORAGE_CPU = "storage cpu"
    PEAK_MEMORY = "peak memory"
    WIRE_SHARE = "wire share"
    LEFT_BYTES = "left on disk"
    ENERGY = "energy"
    TRAIN_ENERGY = "energy of steps"
    READ_ENERGY = "energy of waiting"
    IN_FLIGHT = "in flight"
    PEAK_IN_FLIGHT = "peak in flight"
    BLOCKS = "blocks"


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """The description of a quantity.

    Attributes:
        unit: unit of the values; empty for a plain number.
        less: whether less is better.
        read: computes the value of a run; None if it is unknown.
    """

    unit: str
    less: bool
    read: _Read


def seen_of(quantity: Quantity, contest: Contest, run: Run) -> Seen | None:
    """Return the value of a quantity in a run; None if it is unknown or the run failed."""
    return None if run.failure is not None else MEANINGS[quantity].read(contest, run)


def over_runs(quantity: Quantity, contest: Contest, runs: Sequence[Run]) -> Spread | None:
    """Return the values of several runs of one entrant; None if all are unknown."""
    seen = [one for run in runs if (one := seen_of(quantity, contest, run)) is not None]
    return spread(seen) if seen else None


def _is_whole(run: Run) -> bool:
    """Return whether a run completed its whole task."""
    return run.failure is None and not run.cut and run.finished is not None and bool(run.epochs)


def exactness(contest: Contest, runs: Sequence[Run]) -> str:
    """Return whether each record arrived once in each epoch, in words.

    If not, the result describes the worst epoch. It is empty if no complete epoch counted records.
    """
    epochs = [epoch for run in runs if run.failure is None for epoch in run.epochs if not epoch.cut]
    if not epochs or not any(epoch.records for epoch in epochs):
        return ""
    wrong = [epoch for epoch in epochs if not epoch.is_exact(contest.corpus)]
    if not wrong:
        return "yes"
    lost = max(contest.corpus.records - epoch.distinct for epoch in wrong)
    repeated = max(epoch.records - epoch.distinct for epoch in wrong)
    told = [f"{count:,} {what}" for count, what in ((lost, "lost"), (repeated, "repeated")) if count > 0]
    return f"no: {' and '.join(told) or 'other records than planned'}"


def is_wrong(contest: Contest, run: Run) -> bool:
    """Return True if a complete epoch lost or repeated records: its time is not that of the same work."""
    return exactness(contest, [run]).startswith("no")


def _seconds(epoch: Epoch) -> float:
    return (epoch.ended_ns - epoch.begun_ns) / _S


def _first_of(run: Run) -> Epoch | None:
    """Return the first epoch; None if the subject has no records or nothing arrived."""
    return run.epochs[0] if run.epochs and (run.epochs[0].records or run.epochs[0].cut) else None


def _first_epoch(contest: Contest, run: Run) -> Seen | None:
    epoch = _first_of(run)
    return None if epoch is None else Seen(value=_seconds(epoch), beyond=">" if epoch.cut else "")


def _later_epochs(contest: Contest, run: Run) -> Seen | None:
    later = run.epochs[1:]
    return _cost(run, statistics.median(map(_seconds, later)) if any(epoch.records for epoch in later) else None)


def _first_batch(contest: Contest, run: Run) -> Seen | None:
    if run.epochs and run.epochs[0].batches:
        return Seen(value=(run.epochs[0].first_batch_ns - run.epochs[0].begun_ns) / _S)
    return None


def _rate(run: Run, planned: int, counted: Callable[[Epoch], int]) -> Seen | None:
    """Return a rate over the first epoch; a cut epoch would have been slower still."""
    epoch = run.epochs[0] if run.epochs else None
    if epoch is None or _seconds(epoch) <= 0:
        return None
    if epoch.cut:
        return Seen(value=planned / _seconds(epoch), beyond="<")
    return Seen(value=counted(epoch) / _seconds(epoch)) if counted(epoch) else None


def _records_rate(contest: Contest, run: Run) -> Seen | None:
    return _rate(run, contest.corpus.records, lambda epoch: epoch.records)


def _bit_rate(contest: Contest, run: Run) -> Seen | None:
    return _rate(run, 8 * contest.corpus.payload_bytes, lambda epoch: 8 * epoch.payload_bytes)


def _flow_bit_rate(contest: Contest, run: Run) -> Seen | None:
    # This covers all epochs. When a later epoch begins, a part of it has already arrived, so an
    # epoch alone would look faster than its flow.
    if run.cut or not run.epochs or not run.epochs[0].batches:
        return None
    first = run.epochs[0]
    here_bytes = first.payload_bytes // first.batches
    seconds = sum(map(_seconds, run.epochs)) - (first.first_batch_ns - first.begun_ns) / _S
    carried = sum(epoch.payload_bytes for epoch in run.epochs) - here_bytes
    return Seen(value=8 * carried / seconds) if seconds > 0 and carried > 0 else None


def _wait_share(contest: Contest, run: Run) -> Seen | None:
    seconds = sum(map(_seconds, run.epochs))
    if seconds <= 0 or not any(epoch.batches for epoch in run.epochs):
        return None
    return Seen(value=sum(epoch.wait_ns for epoch in run.epochs) / _S / seconds)


def _cost(run: Run, value: float | None) -> Seen | None:
    """Return a cost; that of a cut run, which did less work, is a lower bound."""
    return None if value is None else Seen(value=value, beyond=">" if run.cut else "")


def _of_finished(read: Callable[[Run, Finished], float]) -> _Read:
    """Return a function for a cost that is known once the consumer has finished."""
    return lambda contest, run: _cost(run, None if run.finished is None else read(run, run.finished))


def _of_energy(read: Callable[[Energy], float | None]) -> _Read:
    return lambda contest, run: _cost(run, None if run.energy is None else read(run.energy))


def _of_flight(read: Callable[[InFlight], int]) -> _Read:
    return lambda contest, run: None if run.in_flight is None else Seen(value=read(run.in_flight))


def _wire_share(contest: Contest, run: Run) -> Seen | None:
    payload, wire = sum(epoch.payload_bytes for epoch in run.epochs), run.to_training_bytes + run.to_storage_bytes
    return Seen(value=wire / payload) if _is_whole(run) and payload and wire else None


def _left_bytes(contest: Contest, run: Run) -> Seen | None:
    left = None if run.finished is None else run.finished.cache_bytes
    # A system that keeps nothing so far keeps nothing of the rest either.
    return _cost(run, left) if left else None if left is None else Seen(value=0)


def _blocks(contest: Contest, run: Run) -> Seen | None:
    batches = sum(epoch.batches for epoch in run.epochs)
    return Seen(value=sum(epoch.blocks * epoch.batches for epoch in run.epochs) / batches) if batches else None


def _meaning(unit: str, read: _Read, *, less: bool = True) -> Meaning:
    return Meaning(unit=unit, less=less, read=read)


MEANINGS: Final = {
    Quantity.FIRST_EPOCH: _meaning("s", _first_epoch),
    Quantity.LATER_EPOCHS: _meaning("s", _later_epochs),
    Quantity.FIRST_BATCH: _meaning("s", _first_batch),
    Quantity.RECORDS_RATE: _meaning("records/s", _records_rate, less=False),
    Quantity.BIT_RATE: _meaning("bit/s", _bit_rate, less=False),
    Quantity.FLOW_BIT_RATE: _meaning("bit/s", _flow_bit_rate, less=False),
    Quantity.WAIT_SHARE: _meaning("", _wait_share),
    Quantity.TRAINING_CPU: _meaning("s", _of_finished(lambda run, finished: finished.cpu_ns / _S)),
    Quantity.STORAGE_CPU: _meaning("s", _of_finished(lambda run, finished: run.storage_cpu_ns / _S)),
    Quantity.PEAK_MEMORY: _meaning("B", _of_finished(lambda run, end: end.peak_pss_bytes or end.peak_rss_bytes)),
    Quantity.WIRE_SHARE: _meaning("", _wire_share),
    Quantity.LEFT_BYTES: _meaning("B", _left_bytes),
    Quantity.ENERGY: _meaning("J", _of_energy(lambda energy: energy.joules)),
    Quantity.TRAIN_ENERGY: _meaning("J", _of_energy(lambda energy: energy.train_joules)),
    Quantity.READ_ENERGY: _meaning("J", _of_energy(lambda energy: energy.read_joules)),
    Quantity.IN_FLIGHT: _meaning("B", _of_flight(lambda flight: flight.mean_bytes), less=False),
    Quantity.PEAK_IN_FLIGHT: _meaning("B", _of_flight(lambda flight: flight.peak_bytes), less=False),
    Quantity.BLOCKS: _meaning("", _blocks, less=False),
}
"""The unit and the computation of each quantity."""
