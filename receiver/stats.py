"""The figures of a run and what bounds it, in numbers and in one line.

Covers: the value that `EmlioLoader.stats()` returns, its collection, its verdict. Does not cover:
counting (emlio.receiver.iteration.tally, emlio.receiver.machine.figures).
"""

from dataclasses import asdict, dataclass
from typing import Self

from emlio.receiver.iteration.tally import Tally
from emlio.receiver.machine.figures import ReceivingFigures
from emlio.units import format_duration, format_size

__all__ = ["LoaderStats"]

_SELDOM = 0.05
"""Below this share of waiting, the loader keeps up and the consumer of batches is the limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderStats:
    """Totals since the loader was made. Times are of this process unless stated otherwise.

    Attributes:
        batches: batches handed to the user.
        records: records handed to the user.
        received_bytes: bytes received from daemons, also those of batches not yet handed out.
        local_bytes: bytes read from this host's disks, likewise.
        wait_ns: time the user's thread waited for a batch.
        busy_ns: time the user's thread was busy between batches.
        assemble_ns: time the assembling thread worked.
        receive_ns: time the receive thread worked.
        network_blocked_ns: time in which daemons had messages ready, or no memory for more, but no
            lane or no credit; summed over daemons.
        storage_starved_ns: time in which daemons had room on a lane but nothing read; summed over
            daemons.
        first_batch_ns: from the construction to the first batch, or None before it.
        round_trip_ns: measured over the control connections.
        lanes: data connections that are up.
        window_bytes: bytes that may be received or in flight now: `prefetch`.
        peak_window_bytes: the most bytes that were ever received and not yet handed out.
        bad_records: received records that failed their check.
        skipped_records, replaced_records: how bad records were handled, in the batches handed to
            the user.
        repeated_records: records handed out a second time because the epoch did not divide evenly;
            of this epoch, over all ranks.
        lost_daemons: how often a daemon fell silent, left or failed while its part was wanted.
        reopened_streams: how often messages were requested again from the first missing place on,
            for any reason.
        moved_shards: shards taken from a daemon that held up a batch and given to others that hold
            them.
        protection: the encryption of records in transit, listed by daemon where they differ;
            "clear" is none.
    """

    batches: int
    records: int
    received_bytes: int
    local_bytes: int
    wait_ns: int
    busy_ns: int
    assemble_ns: int
    receive_ns: int
    network_blocked_ns: int
    storage_starved_ns: int
    first_batch_ns: int | None
    round_trip_ns: int | None
    lanes: int
    window_bytes: int
    peak_window_bytes: int
    bad_records: int
    skipped_records: int
    replaced_records: int
    repeated_records: int
    lost_daemons: int = 0
    reopened_streams: int = 0
    moved_shards: int = 0
    protection: str = ""

    @classmethod
    def of(
        cls,
        handed: Tally,
        received: ReceivingFigures,
        *,
        assemble_ns: int,
        receive_ns: int,
        repeated_records: int,
        on_error: str,
    ) -> Self:
        """Collect the figures of a loader.

        Args:
            handed: what was handed to the user.
            received: what was received.
            assemble_ns: as the attribute.
            receive_ns: as the attribute.
            repeated_records: as the attribute.
            on_error: how bad records are handled.
        """
        return cls(
            batches=handed.batches,
            records=handed.records,
            wait_ns=handed.wait_ns,
            busy_ns=handed.busy_ns,
            first_batch_ns=handed.first_batch_ns,
            skipped_records=handed.bad if on_error == "skip" else 0,
            replaced_records=handed.bad if on_error == "replace" else 0,
            assemble_ns=assemble_ns,
            receive_ns=receive_ns,
            repeated_records=repeated_records,
            **asdict(received),
        )

    @property
    def wait_share(self) -> float:
        """The share of the user's time that was spent waiting for batches."""
        total = self.wait_ns + self.busy_ns
        return self.wait_ns / total if total else 0.0

    @property
    def verdict(self) -> str:
        """The stage that bounds the run, derived from which queue was empty."""
        if not self.batches:
            return "no batch was handed out yet"
        if self.wait_share < _SELDOM:
            return f"bound by the training loop (waiting for data {self.wait_share:.0%} of the time)"
        waiting = f"waiting for data {self.wait_share:.0%} of the time"
        elapsed = self.wait_ns + self.busy_ns
        if self.assemble_ns > 0.8 * elapsed:
            return f"bound by decoding in this process ({waiting})"
        if self.receive_ns > 0.8 * elapsed:
            return f"bound by receiving and checking in this process ({waiting})"
        if not self.received_bytes:
            return f"bound by this host's disks ({waiting})"
        if self.storage_starved_ns > self.network_blocked_ns:
            return f"bound by reading at the daemons ({waiting})"
        return f"bound by the network ({waiting})"

    @property
    def recoveries(self) -> str:
        """The losses that were recovered from, in words; empty if there were none."""
        counts = (
            (self.lost_daemons, "loss", "losses", "of a daemon"),
            (self.reopened_streams, "stream", "streams", "opened again"),
            (self.moved_shards, "shard", "shards", "moved to faster daemons"),
        )
        return ", ".join(f"{_counted(count, one, many)} {became}" for count, one, many, became in counts if count)

    def __str__(self) -> str:
        mended = f"; {self.recoveries}" if self.recoveries else ""
        size = self.received_bytes + self.local_bytes
        if not self.batches:
            return f"{f'{format_size(size)} is here, ' if size else ''}{self.verdict}{mended}"
        elapsed_ns = self.wait_ns + self.busy_ns
        rate = f" ({format_size(size * 1e9 / elapsed_ns)}/s)" if elapsed_ns else ""
        first = f", first after {format_duration(self.first_batch_ns)}" if self.first_batch_ns is not None else ""
        handed_out = f"{_counted(self.batches, 'batch', 'batches')}, {_counted(self.records, 'record')}"
        return f"{handed_out}; {format_size(size)} with read-ahead{rate}{first}: {self.verdict}{mended}"


def _counted(count: int, one: str, many: str = "") -> str:
    """Return the number with its noun in the singular or plural."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"
