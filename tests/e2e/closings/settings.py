"""What a course of closings is to do, and what came of it.

Covers: values. Pure. Does not cover: the course (tests.e2e.closings.course).
"""

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Ending", "Outcome", "Settings"]


class Ending(StrEnum):
    """Who ends, and how."""

    CLOSE = "close"
    """Loaders close in mid-flow, in processes that live on."""

    KILL = "kill"
    """As before, and the processes are killed at random moments."""

    DAEMON_TERM = "daemon-term"
    """Loaders go on and on; the daemon is told to end, and started again."""

    DAEMON_KILL = "daemon-kill"
    """The same with SIGKILL."""

    @property
    def of_daemon(self) -> bool:
        """Whether the daemon is what ends."""
        return self in (Ending.DAEMON_TERM, Ending.DAEMON_KILL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a course is to do.

    Attributes:
        closings: how many to reach; endings of the daemon where it is the one that ends.
        seconds: at most so long.
        ending: who ends, and how.
        record_bytes, records, shards: the dataset.
        lanes: of each loader.
        message_size: what the daemon fills messages to.
        prefetch: the window of each loader.
        most_batches: a loader takes one to so many and closes.
        streams: a loader begins its stream so often before it closes, each time from its own state: that closes all lanes, too.
        processes: rank processes.
        loaders: in each of them.
        protection: clear or sealed.
        link: the round trip between the two in nanoseconds; None for loopback.
        one_core: keep all threads of the daemon on one core: what one thread was told by another waits until that one has run,
            so that states between the two last long enough to be met.
        seed: draws what is random here.
        warm_up: closings before the daemon is looked at first.
    """

    closings: int = 1000
    seconds: float = 600.0
    ending: Ending = Ending.CLOSE
    record_bytes: int = 1000
    records: int = 40_000
    shards: int = 8
    lanes: int = 11
    message_size: str = "64KiB"
    prefetch: str = "1MiB"
    most_batches: int = 6
    streams: int = 1
    processes: int = 2
    loaders: int = 4
    protection: str = "clear"
    link: int | None = None
    one_core: bool = False
    seed: int = 0
    warm_up: int = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of it.

    Attributes:
        closings: of loaders and streams in mid-flow.
        streams: how many of them were streams whose loader went on.
        endings: of rank processes or of the daemon, by this program's hand.
        records: that were taken and checked.
        seconds: of the main part.
        closings_per_s: of the main part.
        daemon: before and after: bytes of its own, descriptors; None where it did not live through.
        troubles: everything that was not as it must be.
    """

    closings: int
    streams: int
    endings: int
    records: int
    seconds: float
    closings_per_s: float
    daemon: tuple[tuple[int, int], tuple[int, int]] | None
    troubles: tuple[str, ...]

    @property
    def is_good(self) -> bool:
        """Whether all was as it must be."""
        return not self.troubles
