"""The figures of a run and what bounds it, in numbers and in one line.

Covers: the value that `EmlioLoader.stats()` returns, its collection, differences between two of
them. Does not cover: counting (emlio.receiver.iteration.tally, emlio.receiver.machine.rank), the
verdict (emlio.status.verdict).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Self

import numpy as np

from emlio import native
from emlio.notebook import table
from emlio.receiver.batches.hunger import Hunger
from emlio.receiver.iteration.tally import Tally
from emlio.receiver.machine.rank import ReceivingFigures
from emlio.receiver.machine.stream_waits import DaemonWaits
from emlio.receiver.records.bad_records import BadRecordPolicy
from emlio.status.verdict import Waits
from emlio.units import counted, format_duration, format_size

__all__ = ["LoaderStats"]

_COUNTERS = (
    *("batches", "records", "handed_bytes", "received_bytes", "local_bytes", "wait_ns", "busy_ns"),
    *("first_wait_ns", "records_wait_ns", "records_receive_ns", "assemble_ns", "receive_ns"),
    *("network_blocked_ns", "credit_withheld_ns", "storage_starved_ns", "away_ns", "local_wait_ns"),
    *("bad_records", "skipped_records", "replaced_records"),
    *("lost_daemons", "reopened_streams", "moved_shards", "changed_settings"),
)
"""Totals, which a difference subtracts. The other figures are of the moment."""


_NAMED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderStats(ReceivingFigures):
    """Totals since the loader was made. Times are of this process unless stated otherwise.

    Attributes:
        batches: batches handed to the user.
        records: records handed to the user.
        handed_bytes: bytes of the records of these batches, as they came.
        received_bytes: bytes received from daemons, also those of batches not yet handed out.
        local_bytes: bytes read from this host's disks, likewise.
        ahead_bytes: bytes that came and were not handed out: read ahead, or dropped because another
            epoch was wanted.
        wait_ns: time the user's thread waited for a batch, or made it.
        busy_ns: time the user's thread was busy between batches.
        first_wait_ns: the part of `wait_ns` before the first batch, which the verdict leaves out.
        records_wait_ns: the part of `wait_ns` in which no complete batch was here. In the rest the
            batch was being made.
        records_receive_ns: the part of `records_wait_ns` in which the receive thread worked.
        assemble_ns: time spent making batches, in any thread.
        receive_ns: time the receive thread worked.
        network_blocked_ns: the time in which daemons had messages ready, or no memory for more, and
            no lane took one. This and the next two are of the time in which the user waited for
            records, as far as daemons have reported it, and summed over daemons.
        credit_withheld_ns: the time in which daemons could send nothing because `prefetch` was used
            up, likewise.
        storage_starved_ns: the time in which daemons could have sent, but had read nothing,
            likewise.
        away_ns: the time in which the user waited for records of a daemon that was lost or silent.
        local_wait_ns: the time in which the user waited for records of this host's disks alone (`local`).
        first_batch_ns: from the construction to the first batch, or None before it.
        round_trip_ns: measured over the control connections.
        lanes: data connections that are up.
        window_bytes: bytes that may be received or in flight now: `prefetch`.
        peak_window_bytes: the most of it that was ever taken by records received and not yet handed
            out, with 64 bytes for each.
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
        changed_settings: how often `tune` changed settings, those that it undid counted twice.
        protection: the encryption of records in transit, listed by daemon where they differ;
            "clear" is none.
        native: whether the C library is used; without it NumPy does the same, more slowly.
        with_replacement: whether `weights` draw the records, so that some of them come several times.
        daemons: of each daemon, by its address, these four times: see `DaemonWaits`.
        datasets: of a mixture, the records handed to the user by the names of their datasets, bad ones included.
        elsewhere: whether the transform runs on other hosts.
    """

    batches: int
    records: int
    handed_bytes: int
    ahead_bytes: int
    wait_ns: int
    busy_ns: int
    first_wait_ns: int
    records_wait_ns: int
    records_receive_ns: int
    assemble_ns: int
    receive_ns: int
    first_batch_ns: int | None
    skipped_records: int
    replaced_records: int
    repeated_records: int
    native: bool = True
    with_replacement: bool = False
    datasets: Mapping[str, int] = field(default_factory=dict[str, int])
    elsewhere: bool = False

    @classmethod
    def of(
        cls,
        handed: Tally,
        hunger: Hunger,
        received: ReceivingFigures,
        *,
        assemble_ns: int,
        receive_ns: int,
        repeated_records: int,
        policy: BadRecordPolicy,
        with_replacement: bool = False,
        names: Sequence[str] = (),
        elsewhere: bool = False,
    ) -> Self:
        """Collect the figures of a loader.

        Args:
            handed: what was handed to the user.
            hunger: the user's waits for records.
            received: what was received.
            assemble_ns: as the attribute.
            receive_ns: as the attribute.
            repeated_records: as the attribute.
            policy: how bad records are handled.
            with_replacement: as the attribute.
            names: of the datasets of a mixture.
            elsewhere: as the attribute.
        """
        return cls(
            batches=handed.batches,
            records=handed.records,
            handed_bytes=handed.size_bytes,
            ahead_bytes=max(received.received_bytes + received.local_bytes - handed.size_bytes, 0),
            wait_ns=handed.wait_ns,
            busy_ns=handed.busy_ns,
            first_wait_ns=handed.first_wait_ns,
            records_wait_ns=hunger.wait_ns,
            records_receive_ns=hunger.receive_ns,
            first_batch_ns=handed.first_batch_ns,
            skipped_records=handed.bad if policy.skips else 0,
            replaced_records=handed.bad if policy.replaces else 0,
            assemble_ns=assemble_ns,
            receive_ns=receive_ns,
            repeated_records=repeated_records,
            native=native.is_used(),
            with_replacement=with_replacement,
            datasets=dict(zip(names, np.broadcast_to(handed.by_dataset, len(names)).tolist(), strict=True)),
            elsewhere=elsewhere,
            **{one.name: getattr(received, one.name) for one in fields(received)},
        )

    def since(self, before: "LoaderStats") -> Self:
        """Return what happened between two moments: the totals as differences, the rest as it is now.

        Args:
            before: the figures of the same loader at the first moment.
        """
        changes = {name: getattr(self, name) - getattr(before, name) for name in _COUNTERS}
        datasets = {name: count - before.datasets.get(name, 0) for name, count in self.datasets.items()}
        daemons = {
            name: waits.plus(before.daemons.get(name, DaemonWaits()), -1) for name, waits in self.daemons.items()
        }
        return replace(
            self,
            **changes,
            datasets=datasets,
            daemons=daemons,
            first_batch_ns=None if before.batches else self.first_batch_ns,
        )

    @property
    def waits(self) -> Waits:
        """The times that the verdict rests on."""
        return Waits(
            wait_ns=self.wait_ns,
            busy_ns=self.busy_ns,
            first_ns=self.first_wait_ns,
            records_ns=self.records_wait_ns,
            receive_ns=self.records_receive_ns,
            lane_ns=self.network_blocked_ns,
            credit_ns=self.credit_withheld_ns,
            starved_ns=self.storage_starved_ns,
            away_ns=self.away_ns,
            local_ns=self.local_wait_ns,
            remote=bool(self.received_bytes) or not self.local_bytes,
            elsewhere=self.elsewhere,
        )

    @property
    def wait_share(self) -> float:
        """The share of the user's time that was spent waiting for batches."""
        total = self.wait_ns + self.busy_ns
        return self.wait_ns / total if total else 0.0

    @property
    def verdict(self) -> str:
        """The stage that bounds the run, derived from what the user's thread waited for."""
        if not self.batches:
            return "no batch was handed out yet"
        if self.batches == 1 and self.first_wait_ns:
            return "too early to tell what bounds it, only the first batch was handed out"
        return str(self.waits)

    @property
    def recoveries(self) -> str:
        """The losses that were recovered from, in words; empty if there were none."""
        counts = (
            (self.lost_daemons, "loss", "losses", "of a daemon"),
            (self.reopened_streams, "stream", "streams", "opened again"),
            (self.moved_shards, "shard", "shards", "moved to faster daemons"),
        )
        return ", ".join(f"{counted(count, one, many)} {became}" for count, one, many, became in counts if count)

    @property
    def _faults(self) -> str:
        """The bad records that were handed out in some form, in words."""
        counts = ((self.skipped_records, "skipped"), (self.replaced_records, "replaced"))
        return "".join(f", {counted(count, 'bad record')} {became}" for count, became in counts if count)

    def _repr_html_(self) -> str:
        """Return the figures as a table, which a notebook shows."""
        elapsed_ns = self.wait_ns + self.busy_ns
        rows = [
            ("batches", f"{self.batches:,}"),
            ("records", f"{self.records:,}{self._drawn}{self._mixture}{self._faults}"),
            ("handed out", format_size(self.handed_bytes)),
            ("rate", f"{format_size(self.handed_bytes * 1e9 / elapsed_ns)}/s" if elapsed_ns else "not known yet"),
            ("read ahead", format_size(self.ahead_bytes)),
            (
                "first batch",
                "not yet" if self.first_batch_ns is None else f"after {format_duration(self.first_batch_ns)}",
            ),
            ("waited for batches", f"{format_duration(self.wait_ns)}, {self.wait_share:.0%} of the time"),
            ("lanes", f"{self.lanes:,}"),
            ("protection", self.protection or "none needed"),
        ]
        if self.recoveries:
            rows.append(("recovered from", self.recoveries))
        return table(self.verdict, rows)

    @property
    def _drawn(self) -> str:
        return " drawn with replacement" if self.with_replacement else ""

    @property
    def _mixture(self) -> str:
        """The records by dataset, in words; of many datasets those with the most."""
        most = sorted(self.datasets.items(), key=lambda item: -item[1])
        named = ", ".join(f"{name} {count:,}" for name, count in most[:_NAMED])
        more = (
            f", {sum(count for _, count in most[_NAMED:]):,} of {len(most) - _NAMED} more" if len(most) > _NAMED else ""
        )
        return f" ({named}{more})" if most else ""

    def __str__(self) -> str:
        mended = f"; {self.recoveries}" if self.recoveries else ""
        if not self.batches:
            return f"{f'{format_size(self.ahead_bytes)} is here, ' if self.ahead_bytes else ''}{self.verdict}{mended}"
        elapsed_ns = self.wait_ns + self.busy_ns
        rate = f" ({format_size(self.handed_bytes * 1e9 / elapsed_ns)}/s)" if elapsed_ns else ""
        first = f", first after {format_duration(self.first_batch_ns)}" if self.first_batch_ns is not None else ""
        ahead = f"; {format_size(self.ahead_bytes)} read ahead" if self.ahead_bytes else ""
        records = f"{counted(self.records, 'record')}{self._drawn}{self._mixture}"
        handed_out = f"{counted(self.batches, 'batch', 'batches')}, {records}{self._faults}"
        return f"{handed_out}, {format_size(self.handed_bytes)}{rate}{first}{ahead}: {self.verdict}{mended}"
