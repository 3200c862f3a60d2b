"""What a run did and what bounds it, in numbers and in one line.

Covers: the value `EmlioLoader.stats()` returns and its verdict. Does not cover: counting.
"""

from dataclasses import dataclass

from emlio.units import format_duration, format_size

__all__ = ["LoaderStats"]

_SELDOM = 0.05
"""Below this share of waiting the loader keeps up and what uses the batches is the limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderStats:
    """Totals since the loader was made; times are of this process unless they say otherwise.

    Attributes:
        batches: handed to the user.
        records: handed to the user.
        received_bytes: taken off the wire.
        local_bytes: read from this host's disks.
        wait_ns: the user's thread waited for a batch.
        busy_ns: it was away between batches.
        assemble_ns: the assembling thread worked.
        receive_ns: the receive thread worked.
        network_blocked_ns: daemons had messages ready and every lane was full, summed over daemons.
        storage_starved_ns: daemons had room on a lane and nothing read, summed over daemons.
        first_batch_ns: from the construction to the first batch, or None before it.
        round_trip_ns: measured over the control connections.
        lanes: connections for data.
        window_bytes: bound of what is taken off the wire ahead.
        peak_window_bytes: the most that ever was.
        bad_records: failed their check, of all that were received.
        skipped_records, replaced_records: what was done about them, in the batches handed to the user.
        repeated_records: handed out a second time because the epoch did not divide evenly; of this epoch, over all ranks.
        lost_daemons: how often a daemon fell silent, left or failed while its part was wanted.
        reopened_streams: how often messages were asked for again from the first missing place on, for whatever reason.
        moved_shards: taken from a daemon that was waited for and given to others that hold them.
        protection: what keeps records from being read on their way, daemon by daemon where they differ; "clear" is nothing.
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

    @property
    def wait_share(self) -> float:
        """The part of the user's time that was spent waiting for batches."""
        total = self.wait_ns + self.busy_ns
        return self.wait_ns / total if total else 0.0

    @property
    def verdict(self) -> str:
        """What bounds the run, decided by which queue was empty."""
        if not self.batches:
            return "nothing was handed out yet"
        if self.wait_share < _SELDOM:
            return f"bound by what uses the batches (waiting for data {self.wait_share:.0%} of the time)"
        waiting = f"waiting for data {self.wait_share:.0%} of the time"
        elapsed = self.wait_ns + self.busy_ns
        if self.assemble_ns > 0.8 * elapsed:
            return f"bound by decoding in this process ({waiting})"
        if self.receive_ns > 0.8 * elapsed:
            return f"bound by receiving and checking in this process ({waiting})"
        if not self.received_bytes:
            return f"bound by this host's disks ({waiting})"
        if self.storage_starved_ns > self.network_blocked_ns:
            return f"bound by reading at the storage ({waiting})"
        return f"bound by the network ({waiting})"

    @property
    def recoveries(self) -> str:
        """What went wrong and was mended, in words; empty if nothing did."""
        counts = (
            (self.lost_daemons, "daemons lost"),
            (self.reopened_streams, "streams opened again"),
            (self.moved_shards, "shards moved to quicker daemons"),
        )
        return ", ".join(f"{count:,} {what}" for count, what in counts if count)

    def __str__(self) -> str:
        mended = f"; {self.recoveries}" if self.recoveries else ""
        elapsed = max(self.wait_ns + self.busy_ns, 1) / 1e9
        size = self.received_bytes + self.local_bytes
        return (
            f"{self.batches:,} batches, {self.records:,} records, {format_size(size)} "
            f"({format_size(size / elapsed)}/s), first after "
            f"{format_duration(self.first_batch_ns or 0)}: {self.verdict}{mended}"
        )
