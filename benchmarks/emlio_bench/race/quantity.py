"""The measured quantities of a run, with their units.

Covers: computing each quantity of a run, cut runs as bounds, exactness in words. Pure. Does not
cover: several runs (emlio_bench.race.standing).
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from emlio_bench.race.censored_range import Beyond, Extent, Seen, extent
from emlio_bench.race.order import Epoch
from emlio_bench.race.outcome import Contest, Run

__all__ = ["MEANINGS", "Meaning", "Quantity", "exactness", "is_whole", "over_runs", "seen_of"]

_S: Final = 1e9


class Quantity(StrEnum):
    """The name of a quantity in results."""

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
        words: description.
        unit: unit of the values; empty for a plain number.
        less: whether less is better.
        read: computes the value of a run; None if it is unknown.
    """

    words: str
    unit: str
    less: bool
    read: Callable[[Contest, Run], Seen | None]


def seen_of(quantity: Quantity, contest: Contest, run: Run) -> Seen | None:
    """Return the value of a quantity in a run; None if it is unknown or the run failed."""
    return None if run.failure is not None else MEANINGS[quantity].read(contest, run)


def over_runs(quantity: Quantity, contest: Contest, runs: Sequence[Run]) -> Extent | None:
    """Return the values of several runs of one entrant; None if all are unknown."""
    seen = [one for run in runs if (one := seen_of(quantity, contest, run)) is not None]
    return extent(seen) if seen else None


def is_whole(run: Run) -> bool:
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
    if not any(epoch.records for epoch in later):
        return None
    return Seen(value=statistics.median(map(_seconds, later)), beyond=_of_cut(run))


def _first_batch(contest: Contest, run: Run) -> Seen | None:
    if run.epochs and run.epochs[0].batches:
        return Seen(value=(run.epochs[0].first_batch_ns - run.epochs[0].begun_ns) / _S)
    return None


def _records_rate(contest: Contest, run: Run) -> Seen | None:
    epoch = _first_of(run)
    if epoch is not None and epoch.cut:
        return Seen(value=contest.corpus.records / _seconds(epoch), beyond="<")
    return _rate(run.epochs[:1], lambda epoch: epoch.records)


def _bit_rate(contest: Contest, run: Run) -> Seen | None:
    epoch = _first_of(run)
    if epoch is not None and epoch.cut:
        return Seen(value=8 * contest.corpus.payload_bytes / _seconds(epoch), beyond="<")
    return _rate(run.epochs[:1], lambda epoch: 8 * epoch.payload_bytes)


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


def _rate(epochs: Sequence[Epoch], count: Callable[[Epoch], int]) -> Seen | None:
    seconds, counted = sum(map(_seconds, epochs)), sum(map(count, epochs))
    return Seen(value=counted / seconds) if seconds > 0 and counted else None


def _wait_share(contest: Contest, run: Run) -> Seen | None:
    seconds = sum(map(_seconds, run.epochs))
    if seconds <= 0 or not any(epoch.batches for epoch in run.epochs):
        return None
    return Seen(value=sum(epoch.wait_ns for epoch in run.epochs) / _S / seconds)


def _of_cut(run: Run) -> Beyond:
    """Return the side of a bound: a cut run did less work, so its cost is a lower bound."""
    return ">" if run.cut else ""


def _training_cpu(contest: Contest, run: Run) -> Seen | None:
    return None if run.finished is None else Seen(value=run.finished.cpu_ns / _S, beyond=_of_cut(run))


def _storage_cpu(contest: Contest, run: Run) -> Seen | None:
    return None if run.finished is None else Seen(value=run.storage_cpu_ns / _S, beyond=_of_cut(run))


def _peak_memory(contest: Contest, run: Run) -> Seen | None:
    if run.finished is None:
        return None
    return Seen(value=run.finished.peak_pss_bytes or run.finished.peak_rss_bytes, beyond=_of_cut(run))


def _wire_share(contest: Contest, run: Run) -> Seen | None:
    payload, wire = sum(epoch.payload_bytes for epoch in run.epochs), run.to_training_bytes + run.to_storage_bytes
    return Seen(value=wire / payload) if is_whole(run) and payload and wire else None


def _left_bytes(contest: Contest, run: Run) -> Seen | None:
    if run.finished is None:
        return None
    left = run.finished.cache_bytes
    return Seen(
        value=left, beyond=_of_cut(run) if left else ""
    )  # a system that keeps nothing so far keeps nothing of the rest either


def _energy(contest: Contest, run: Run) -> Seen | None:
    return None if run.energy is None else Seen(value=run.energy.joules, beyond=_of_cut(run))


def _train_energy(contest: Contest, run: Run) -> Seen | None:
    return _of_stage(run, run.energy.train_joules if run.energy is not None else None)


def _read_energy(contest: Contest, run: Run) -> Seen | None:
    return _of_stage(run, run.energy.read_joules if run.energy is not None else None)


def _of_stage(run: Run, joules: float | None) -> Seen | None:
    return None if joules is None else Seen(value=joules, beyond=_of_cut(run))


def _in_flight(contest: Contest, run: Run) -> Seen | None:
    return None if run.in_flight is None else Seen(value=run.in_flight.mean_bytes)


def _peak_in_flight(contest: Contest, run: Run) -> Seen | None:
    return None if run.in_flight is None else Seen(value=run.in_flight.peak_bytes)


def _blocks(contest: Contest, run: Run) -> Seen | None:
    batches = sum(epoch.batches for epoch in run.epochs)
    return Seen(value=sum(epoch.blocks * epoch.batches for epoch in run.epochs) / batches) if batches else None


def _meaning(words: str, unit: str, read: Callable[[Contest, Run], Seen | None], *, less: bool = True) -> Meaning:
    return Meaning(words=words, unit=unit, less=less, read=read)


MEANINGS: Final = {
    Quantity.FIRST_EPOCH: _meaning("first epoch, from before the loader's constructor", "s", _first_epoch),
    Quantity.LATER_EPOCHS: _meaning("each later epoch", "s", _later_epochs),
    Quantity.FIRST_BATCH: _meaning("time to the first batch, from before the constructor", "s", _first_batch),
    Quantity.RECORDS_RATE: _meaning("records a second of the first epoch", "records/s", _records_rate, less=False),
    Quantity.BIT_RATE: _meaning("payload of the first epoch", "bit/s", _bit_rate, less=False),
    Quantity.FLOW_BIT_RATE: _meaning("payload from the first batch to the end", "bit/s", _flow_bit_rate, less=False),
    Quantity.WAIT_SHARE: _meaning("share of the time the consumer was blocked", "", _wait_share),
    Quantity.TRAINING_CPU: _meaning("processor time at the training host, all epochs", "s", _training_cpu),
    Quantity.STORAGE_CPU: _meaning("processor time at the storage host, all epochs", "s", _storage_cpu),
    Quantity.PEAK_MEMORY: _meaning("most memory at the training host", "B", _peak_memory),
    Quantity.WIRE_SHARE: _meaning("bytes on the wire, headers counted, over payload", "", _wire_share),
    Quantity.LEFT_BYTES: _meaning("bytes left on the training host's disk", "B", _left_bytes),
    Quantity.ENERGY: _meaning("energy of both hosts, all epochs", "J", _energy),
    Quantity.TRAIN_ENERGY: _meaning("energy of both hosts while steps ran, all epochs", "J", _train_energy),
    Quantity.READ_ENERGY: _meaning("energy of both hosts while records were waited for", "J", _read_energy),
    Quantity.IN_FLIGHT: _meaning("bytes on their way to training, mean over epochs", "B", _in_flight, less=False),
    Quantity.PEAK_IN_FLIGHT: _meaning("the most bytes on their way to training", "B", _peak_in_flight, less=False),
    Quantity.BLOCKS: _meaning("storage blocks of 640 records among those of a batch", "", _blocks, less=False),
}
"""The description and computation of each quantity."""
