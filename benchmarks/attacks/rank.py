"""The legitimate rank: it reads without end, at a steady rate, and reports its progress.

Covers: its configuration, its reports, by its own clock. Does not cover: the daemon and the
attackers (emlio.benchmarks.attacks.stage).
"""

import signal
import time
from types import FrameType
from typing import Any, Final

import msgspec

from emlio import EmlioLoader, Recovery
from emlio.benchmarks.harness.protected import RankTrust
from emlio.benchmarks.harness.rhythm import Rhythm
from emlio.benchmarks.processes.child import say
from emlio.wire.seal import CIPHERS

__all__ = ["MADE_UP_NS", "Finished", "RankOrder", "Tick", "read_on"]

MADE_UP_NS: Final = 20_000_000
"""The longest delay that the rank makes up for. A longer delay is a loss of speed."""

_TELL_NS: Final = 50_000_000


class RankOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of the rank.

    Attributes:
        address: address of the daemon.
        trust: key settings.
        batch_records: records in a batch.
        interval_ns: time from batch to batch; 0 for as fast as possible.
    """

    address: str
    trust: RankTrust
    batch_records: int
    interval_ns: int


class Tick(msgspec.Struct, frozen=True, kw_only=True, tag="tick"):
    """The number of records by a time, and the longest wait for a batch since the last tick.

    Times are of the machine's monotonic clock.
    """

    at_ns: int
    records: int
    longest_wait_ns: int


class Finished(msgspec.Struct, frozen=True, kw_only=True, tag="finished"):
    """The last report, after SIGTERM: counts of reopened streams and lost daemons."""

    reopened: int
    lost: int
    protection: str


class _Reading:
    """The progress of the rank's reading."""

    def __init__(self, order: RankOrder) -> None:
        self._rhythm = Rhythm(order.interval_ns, MADE_UP_NS)
        self._records = 0
        self._longest_ns = 0
        self._asked_ns = self._told_ns = time.monotonic_ns()
        self._told_to_end = False

    def end_soon(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal: end after the current batch."""
        self._told_to_end = True

    def take(self, batch: dict[str, Any]) -> bool:
        """Count a batch and wait until the next one is due; return whether to continue."""
        now_ns = time.monotonic_ns()
        self._longest_ns = max(self._longest_ns, now_ns - self._asked_ns)
        self._records += len(batch["record"])
        if now_ns - self._told_ns >= _TELL_NS:
            say(Tick(at_ns=now_ns, records=self._records, longest_wait_ns=self._longest_ns))
            self._told_ns, self._longest_ns = now_ns, 0
        wait_ns = self._rhythm.wait_ns(time.monotonic_ns())
        if wait_ns:
            time.sleep(wait_ns / 1e9)
        self._asked_ns = time.monotonic_ns()
        return not self._told_to_end


def read_on(orders: bytes) -> None:
    """Run the rank's process. An error ends it, and so the whole run."""
    order = msgspec.json.decode(orders, type=RankOrder)
    reading = _Reading(order)
    with _open(order) as loader:
        signal.signal(signal.SIGTERM, reading.end_soon)
        while all(reading.take(batch) for batch in loader):
            continue
        stats = loader.stats()
        assert stats.protection in CIPHERS, stats.protection
        say(Finished(reopened=stats.reopened_streams, lost=stats.lost_daemons, protection=stats.protection))


def _open(order: RankOrder) -> EmlioLoader:
    # A small window, so that an interruption of the daemon has an effect within the span.
    return EmlioLoader(
        order.address,
        batch_size=order.batch_records,
        seed=1,
        raw=True,
        to="numpy",
        prefetch="8MiB",
        rank=0,
        world_size=1,
        recovery=Recovery(timeout="30s"),
        security=order.trust.security,
    )
