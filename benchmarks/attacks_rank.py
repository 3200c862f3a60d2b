"""The legitimate rank of a run of attacks: reads without end, in a rhythm, and says how far it has come.

Covers: what it is told, what it says, by its own clock. Does not cover: the daemon and the attackers
(emlio.benchmarks.attacks_stage).
"""

import signal
import time
from types import FrameType
from typing import Any, Final

import msgspec

from emlio import EmlioLoader
from emlio.benchmarks.processes import say
from emlio.benchmarks.protected import RankTrust
from emlio.benchmarks.rhythm import Rhythm
from emlio.wire.seal import CIPHERS

__all__ = ["MADE_UP_NS", "Finished", "RankOrder", "Tick", "read_on"]

MADE_UP_NS: Final = 20_000_000
"""A rank that came later than this for its next batch does not hurry to make up for it: that was speed, and it is lost."""

_TELL_NS: Final = 50_000_000


class RankOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What the rank is told.

    Attributes:
        address: of the daemon.
        trust: keys.
        batch_records: in a batch.
        interval_ns: from batch to batch; 0 for as fast as they come.
    """

    address: str
    trust: RankTrust
    batch_records: int
    interval_ns: int


class Tick(msgspec.Struct, frozen=True, kw_only=True, tag="tick"):
    """So many records had come by then, by the machine's monotonic clock; the longest wait for a batch since the last word."""

    at_ns: int
    records: int
    longest_wait_ns: int


class Finished(msgspec.Struct, frozen=True, kw_only=True, tag="finished"):
    """Told to end, it ended. How often streams were opened again and the daemon was taken for lost."""

    reopened: int
    lost: int
    protection: str


class _Reading:
    """The records so far."""

    def __init__(self, order: RankOrder) -> None:
        self._rhythm = Rhythm(order.interval_ns, MADE_UP_NS)
        self._records = 0
        self._longest_ns = 0
        self._asked_ns = self._told_ns = time.monotonic_ns()
        self._told_to_end = False

    def end_soon(self, number: int, frame: FrameType | None) -> None:
        """A signal's handler."""
        self._told_to_end = True

    def take(self, batch: dict[str, Any]) -> bool:
        """Count one in, and rest until the next; whether more are wanted."""
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
    """The rank's side. Whatever goes wrong ends it, and with it the run."""
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
    # A small window, so that what a daemon fails to send is felt within the span.
    return EmlioLoader(
        order.address,
        batch_size=order.batch_records,
        seed=1,
        raw=True,
        to="numpy",
        prefetch="8MiB",
        rank=0,
        world_size=1,
        timeout="30s",
        keys=order.trust.keys,
        daemon_key=order.trust.daemon_key,
        encryption=order.trust.encryption,
    )
