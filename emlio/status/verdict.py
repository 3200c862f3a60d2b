"""The stage that bounds a run, from what the user's thread waited for.

The user's thread waits for a batch that is being made, or for records: then no complete batch is
here. Making batches bounds a run only while records are here, so a wait for records says that an
earlier stage is slower, however long batches take to make. A queue that was empty for a quarter of
the wait decides: less than that is the latency of the first batch, and of threads.

Covers: the stages, the rule, its words. Pure. Does not cover: measuring (emlio.receiver.stats).
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final

import msgspec

from emlio.units import format_duration

__all__ = ["NEXT_STEPS", "Bound", "Waits"]

_SELDOM = 0.05
"""Below this share of waiting, the loader keeps up and the consumer of batches is the limit."""

_QUARTER = 4
_MOST = 0.75


class Bound(Enum):
    """A stage that may bound a run, in words.

    Attributes:
        UNKNOWN: nothing was waited for, and no batch was used.
        LOOP: the user's own work between batches.
        MAKING: batches are made of records that are here.
        ELSEWHERE: likewise, by a transform that runs on other hosts.
        RECEIVING: the receive thread is busy.
        DISKS: shards of this host are read.
        AWAY: a daemon was lost or silent for at least half of the wait for records.
        NETWORK: messages wait at the daemons for lanes, or for credit.
        STORAGE: nothing is read at the daemons.
        DAEMONS: one of the last two; no daemon has reported yet.
    """

    UNKNOWN = "what is not known yet"
    LOOP = "the training loop"
    MAKING = "decoding in this process"
    ELSEWHERE = "the transform on the Ray cluster"
    RECEIVING = "receiving and checking in this process"
    DISKS = "this host's disks"
    AWAY = "a daemon that was away"
    NETWORK = "the network"
    STORAGE = "reading at the daemons"
    DAEMONS = "the network or reading at the daemons"


NEXT_STEPS: Final[Mapping[Bound, str]] = {
    Bound.UNKNOWN: "ask again in a second, while the loop runs",
    Bound.LOOP: "nothing: the data keep up. A faster step needs faster training code or more ranks",
    Bound.MAKING: "with a transform: more threads= (with OnRay more hosts), or a cheaper one. Else: fewer fields=, raw=True, "
    "or the GPU (dali=)",
    Bound.ELSEWHERE: "more hosts or processors in the Ray cluster, more tasks= if it has free ones, or a cheaper transform",
    Bound.RECEIVING: "more ranks: one thread of each receives and checks. On trusted networks, encryption can be left out",
    Bound.DISKS: "a faster disk, or shuffle='block' for a rotating one",
    Bound.AWAY: "look at that daemon: emlio status, and its log (journalctl -u emlio-daemon)",
    Bound.NETWORK: "measure the path: emlio doctor with the loader's address",
    Bound.STORAGE: "more --readers for a cold disk, shuffle='block' for a rotating one, or copies on another daemon",
    Bound.DAEMONS: "ask again in a few seconds, when daemons have reported",
}


class Waits(msgspec.Struct, frozen=True, kw_only=True):
    """The times from which the stage follows; `str` is the verdict with the numbers it rests on.

    The wait for the first batch is left out: it is latency, and bounds nothing.

    Attributes:
        wait_ns: the user waited for a batch.
        busy_ns: the user was busy between batches.
        first_ns: the part of `wait_ns` before the first batch.
        records_ns: the part of `wait_ns` in which no complete batch was here.
        receive_ns: the part of that in which the receive thread worked.
        lane_ns: of the daemons' streams: no lane took a message. See `LoaderStats`.
        credit_ns: likewise: the rank allowed no more.
        starved_ns: likewise: nothing was read.
        away_ns: as in `LoaderStats`.
        remote: whether daemons send records.
        local_ns: the part of `records_ns` in which only records of this host's disks were missing.
        elsewhere: whether batches are made on other hosts.
    """

    wait_ns: int
    busy_ns: int
    first_ns: int
    records_ns: int
    receive_ns: int
    lane_ns: int
    credit_ns: int
    starved_ns: int
    away_ns: int
    remote: bool
    local_ns: int = 0
    elsewhere: bool = False

    @property
    def share(self) -> float:
        """The share of the user's time that was spent waiting."""
        return self._of_all(self._later_ns)

    @property
    def _later_ns(self) -> int:
        return max(self.wait_ns - self.first_ns, 0)

    @property
    def _for_records_ns(self) -> int:
        return min(max(self.records_ns - self.first_ns, 0), self._later_ns)

    @property
    def bound(self) -> Bound:
        """The stage that bounds the run."""
        if not self._later_ns + self.busy_ns:
            return Bound.UNKNOWN
        if self.share < _SELDOM:
            return Bound.LOOP
        records_ns = self._for_records_ns
        if records_ns * _QUARTER < self._later_ns:
            return Bound.ELSEWHERE if self.elsewhere else Bound.MAKING
        if self.away_ns * 2 >= records_ns:
            return Bound.AWAY
        if self.receive_ns > self.records_ns * _MOST:
            return Bound.RECEIVING
        if not self.remote or self.local_ns * 2 >= records_ns:
            return Bound.DISKS
        if not self.lane_ns and not self.credit_ns and not self.starved_ns:
            return Bound.DAEMONS
        # While one daemon is waited for, the others have used up their credit.
        counts = self.starved_ns * _QUARTER >= min(self.credit_ns, records_ns)
        return Bound.STORAGE if self.starved_ns > self.lane_ns and counts else Bound.NETWORK

    def __str__(self) -> str:
        bound = self.bound
        told = f"waiting for data {self.share:.0%} of the time{' after the first batch' if self.first_ns else ''}"
        if bound not in (Bound.UNKNOWN, Bound.LOOP):
            records_ns = self._for_records_ns
            making = f"{self._of_all(self._later_ns - records_ns):.0%} for batches being made"
            told += f": {making}, {self._of_all(records_ns):.0%} for records"
        if bound in (Bound.STORAGE, Bound.NETWORK):
            times = (
                (self.starved_ns, "had nothing read"),
                (self.lane_ns, "could not send"),
                (self.credit_ns, "had no credit"),
            )
            parts = [f"{what} for {format_duration(time_ns)}" for time_ns, what in times if time_ns]
            told += f"; daemons {', '.join(parts)}"
        if self.away_ns and bound not in (Bound.UNKNOWN, Bound.LOOP):
            told += f"; a daemon was away for {format_duration(self.away_ns)} of it"
        return f"bound by {bound.value} ({told})"

    def _of_all(self, time_ns: int) -> float:
        elapsed_ns = self._later_ns + self.busy_ns
        return time_ns / elapsed_ns if elapsed_ns else 0.0
