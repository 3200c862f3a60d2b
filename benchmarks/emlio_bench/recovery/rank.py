"""The rank of a recovery run: it reads without end, and reports its waits."""

import hashlib
import logging
import signal
import time
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

import msgspec

from emlio import EmlioLoader, Recovery
from emlio.errors import EmlioError
from emlio_bench.processes.child import say

__all__ = ["Ended", "Logged", "RankEvent", "ReadOrder", "Waited", "read_on"]

_LOGGER: Final = "emlio.receiver"


class ReadOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of the rank.

    Attributes:
        address: address of the daemons, or a directory.
        batch_records: records in a batch.
        batches: number of batches to read; 0 to read until SIGTERM.
        timeout: timeout of the loader; "" for its default.
        pace_ns: pause after each batch, besides the digest.
        least_wait_ns: shorter waits are not reported.
    """

    address: str
    batch_records: int
    batches: int = 0
    timeout: str = ""
    pace_ns: int = 0
    least_wait_ns: int = 10_000_000


class Waited(msgspec.Struct, frozen=True, kw_only=True, tag="waited"):
    """A wait between two times of the monotonic clock, after `batches` batches.

    The first wait is always reported.
    """

    begun_ns: int
    ended_ns: int
    batches: int


class Logged(msgspec.Struct, frozen=True, kw_only=True, tag="logged"):
    """A line of the loader's log."""

    at_ns: int
    warning: bool
    text: str


class Ended(msgspec.Struct, frozen=True, kw_only=True, tag="ended"):
    """The end of the reading, after SIGTERM, enough batches, or an error."""

    at_ns: int
    batches: int
    digest: str
    error: str


RankEvent = Waited | Logged | Ended


class _Teller(logging.Handler):
    """A log handler that reports log lines to the driver."""

    def emit(self, record: logging.LogRecord) -> None:
        warning = record.levelno >= logging.WARNING
        say(Logged(at_ns=time.monotonic_ns(), warning=warning, text=record.getMessage()))


class _Reading:
    """The progress of the rank's reading."""

    def __init__(self, order: ReadOrder) -> None:
        self._order = order
        self._digest = hashlib.sha256()
        self._batches = 0
        self._last_ns = time.monotonic_ns()
        self._told_to_end = False

    def end_soon(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal: end after the current batch."""
        self._told_to_end = True

    def take(self, batch: dict[str, Any]) -> bool:
        """Count a batch; return whether to continue."""
        now_ns = time.monotonic_ns()
        if not self._batches or now_ns - self._last_ns >= self._order.least_wait_ns:
            say(Waited(begun_ns=self._last_ns, ended_ns=now_ns, batches=self._batches))
        self._batches += 1
        self._digest.update(batch["__id__"].tobytes())
        for record in batch["record"]:
            self._digest.update(record)
        if self._order.pace_ns:
            time.sleep(self._order.pace_ns / 1e9)
        # The cost of a batch here is not a wait for the next batch.
        self._last_ns = time.monotonic_ns()
        return not self._told_to_end and self._batches != self._order.batches

    def ended(self, error: str) -> Ended:
        """Return the last report."""
        digest = self._digest.hexdigest()
        return Ended(at_ns=time.monotonic_ns(), batches=self._batches, digest=digest, error=error)


def read_on(orders: bytes) -> None:
    """Run the rank's process."""
    order = msgspec.json.decode(orders, type=ReadOrder)
    reading = _Reading(order)
    with _log_told(), _open(order) as loader:
        signal.signal(signal.SIGTERM, reading.end_soon)
        try:
            while all(reading.take(batch) for batch in loader):
                continue
            error = ""
        except EmlioError as failed:
            error = f"{type(failed).__name__}: {failed}"
        say(reading.ended(error))


def _open(order: ReadOrder) -> EmlioLoader:
    # A small window, so that a pause has an effect at once. Data in transit beyond it are limited
    # by the daemon.
    usual: dict[str, Any] = {"raw": True, "ids": True, "to": "numpy", "prefetch": "8MiB", "seed": 1}
    if order.timeout:
        usual["recovery"] = Recovery(timeout=order.timeout)
    return EmlioLoader(order.address, batch_size=order.batch_records, rank=0, world_size=1, **usual)


@contextmanager
def _log_told() -> Generator[None, None, None]:
    teller, logger = _Teller(), logging.getLogger(_LOGGER)
    logger.addHandler(teller)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(teller)
