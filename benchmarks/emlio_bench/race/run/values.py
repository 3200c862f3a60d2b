"""The values of a run, from what the consumer told and the hosts used."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from emlio_bench.harness.contest import Contest
from emlio_bench.harness.spread import Beyond, Value
from emlio_bench.link.contract import STRETCH_NS
from emlio_bench.race.quantity import Quantity
from emlio_bench.race.records.order import Epoch, Finished
from emlio_bench.race.run.joules import Energy
from emlio_bench.race.run.one_machine import Traffic

__all__ = ["Heard", "exactness", "values_of"]

_S: Final = 1e9


@dataclass(slots=True, kw_only=True)
class Heard:
    """Everything known of a run when it ends, however it ends."""

    epochs: list[Epoch] = field(default_factory=list[Epoch])
    steps: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    finished: Finished | None = None
    storage_cpu_ns: int = 0
    traffic: Traffic = field(default_factory=Traffic)
    elapsed_ns: int = 0
    failure: str | None = None

    @property
    def cut(self) -> bool:
        """True if an epoch was cut at its limit."""
        return any(epoch.cut for epoch in self.epochs)


def values_of(contest: Contest, heard: Heard, energy: Energy | None) -> dict[str, Value]:
    """Return the values of a run."""
    found: dict[str, Value] = {}

    def add(quantity: Quantity, value: float | None, beyond: Beyond = "") -> None:
        if value is not None:
            found[quantity] = Value(value=value, beyond=beyond)

    add(Quantity.ELAPSED, heard.elapsed_ns / _S)
    if heard.failure is not None or not heard.epochs:
        return found
    cost: Beyond = ">" if heard.cut else ""
    first, epochs, end = heard.epochs[0], heard.epochs, heard.finished
    seconds = sum(map(_seconds, epochs))
    if first.records or first.cut:
        add(Quantity.FIRST_EPOCH, _seconds(first), ">" if first.cut else "")
    if any(epoch.records for epoch in epochs[1:]):
        add(Quantity.LATER_EPOCHS, statistics.median(map(_seconds, epochs[1:])), cost)
    if first.batches:
        add(Quantity.FIRST_BATCH, (first.first_batch_ns - first.begun_ns) / _S)
    for quantity, planned, counted in (
        (Quantity.RECORDS_RATE, contest.corpus.records, first.records),
        (Quantity.BIT_RATE, 8 * contest.corpus.payload_bytes, 8 * first.payload_bytes),
    ):
        if _seconds(first) > 0 and (first.cut or counted):
            add(quantity, (planned if first.cut else counted) / _seconds(first), "<" if first.cut else "")
    add(Quantity.FLOW_BIT_RATE, None if heard.cut else _flow(epochs))
    if seconds > 0 and any(epoch.batches for epoch in epochs):
        add(Quantity.WAIT_SHARE, sum(epoch.wait_ns for epoch in epochs) / _S / seconds)
    if end is not None:
        add(Quantity.TRAINING_CPU, end.cpu_ns / _S, cost)
        add(Quantity.STORAGE_CPU, heard.storage_cpu_ns / _S, cost)
        add(Quantity.PEAK_MEMORY, end.peak_pss_bytes or end.peak_rss_bytes, cost)
        # A system that keeps nothing so far keeps nothing of the rest either.
        add(Quantity.LEFT_BYTES, end.cache_bytes, cost if end.cache_bytes else "")
        wire, payload = heard.traffic.wire_bytes, sum(epoch.payload_bytes for epoch in epochs)
        if wire and payload and not heard.cut:
            add(Quantity.WIRE_SHARE, wire / payload)
    _add_energy(add, energy, len(epochs), cost)
    _add_flight(add, heard)
    batches = sum(epoch.batches for epoch in epochs)
    if batches:
        add(Quantity.BLOCKS, sum(epoch.blocks * epoch.batches for epoch in epochs) / batches)
    add(Quantity.RECORDS, first.records)
    add(Quantity.DROPPED, heard.traffic.dropped_packets)
    return found


_Add = Callable[[Quantity, float | None, Beyond], None]


def _add_energy(add: _Add, energy: Energy | None, epochs: int, cost: Beyond) -> None:
    if energy is None:
        return
    # Where hosts have figures of their own, each has the power at rest of a machine.
    whole = sum(one.joules for one in energy.hosts) if energy.hosts else energy.joules
    add(Quantity.ENERGY, whole / epochs, cost)
    for quantity, joules in (
        (Quantity.STEP_ENERGY, energy.train_joules),
        (Quantity.WAIT_ENERGY, energy.read_joules),
    ):
        add(quantity, None if joules is None else joules / epochs, cost)
    if energy.hosts:
        add(Quantity.REST_ENERGY, sum(one.idle_joules for one in energy.hosts) / epochs, cost)
        for quantity, host in ((Quantity.COMPUTE_ENERGY, "compute"), (Quantity.STORAGE_ENERGY, "storage")):
            add(quantity, sum(one.joules for one in energy.hosts if one.host == host) / epochs, cost)


def _add_flight(add: _Add, heard: Heard) -> None:
    """Add what the link held on its way to the training host while an epoch ran."""
    inside = [
        (stretch, span_ns)
        for stretch in heard.traffic.held
        if (span_ns := sum(_common_ns(stretch.number * STRETCH_NS, epoch) for epoch in heard.epochs)) > 0
    ]
    if inside:
        whole_ns = sum(span_ns for _, span_ns in inside)
        add(Quantity.IN_FLIGHT, sum(stretch.mean_bytes * span_ns for stretch, span_ns in inside) // whole_ns, "")
        add(Quantity.PEAK_IN_FLIGHT, max(stretch.most_bytes for stretch, _ in inside), "")


def _common_ns(begun_ns: int, epoch: Epoch) -> int:
    return max(min(begun_ns + STRETCH_NS, epoch.ended_ns) - max(begun_ns, epoch.begun_ns), 0)


def _seconds(epoch: Epoch) -> float:
    return (epoch.ended_ns - epoch.begun_ns) / _S


def _flow(epochs: Sequence[Epoch]) -> float | None:
    # Over all epochs. When a later epoch begins, a part of it has already arrived, so an epoch alone
    # would look faster than its flow.
    first = epochs[0]
    if not first.batches:
        return None
    here_bytes = first.payload_bytes // first.batches
    seconds = sum(map(_seconds, epochs)) - (first.first_batch_ns - first.begun_ns) / _S
    carried = sum(epoch.payload_bytes for epoch in epochs) - here_bytes
    return 8 * carried / seconds if seconds > 0 and carried > 0 else None


def exactness(contest: Contest, epochs: Sequence[Epoch]) -> str:
    """Return "yes" if each record came once in each whole epoch, what is wrong, or "" if no epoch is whole."""
    whole = [epoch for epoch in epochs if not epoch.cut]
    if not any(epoch.records for epoch in whole):
        return ""
    wrong = [epoch for epoch in whole if not epoch.is_exact(contest.corpus)]
    if not wrong:
        return "yes"
    lost = max(contest.corpus.records - epoch.distinct for epoch in wrong)
    repeated = max(epoch.records - epoch.distinct for epoch in wrong)
    told = [f"{count:,} {what}" for count, what in ((lost, "lost"), (repeated, "repeated")) if count > 0]
    return f"no: {' and '.join(told) or 'other records than planned'}"
