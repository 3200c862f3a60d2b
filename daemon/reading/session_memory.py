"""The bytes that all streams of one session hold: the open one and former ones.

A rank may open its stream again while messages of the former stream are still queued for its lanes.
If those did not count, a rank that reads nothing and opens again and again could have as much
queued as its lanes take, beside its share of the memory. The same holds for a rank that begins
session after session. So three rules apply in addition to the stream's own limit:

1. What a session holds of former streams and of the open one stays within the session's share.
2. A stream that holds nothing may always have one message, the only one it needs to go on, while
   former streams hold no more than the share. So a session never holds more than its share and one
   message.
3. Rule 2 does not apply while ended sessions of the same client hold more than half of the memory.

A stream that waits because of these rules cannot wait forever. What former streams and ended
sessions hold is queued for connections, or is being read and then dropped. What is queued leaves as
fast as the rank reads. If the rank reads nothing, the connection ends: at once when the rank closes
it; a second after its session if the connection sent something; in any case 30 s after the peer
last took anything. Each time memory comes back, the waiting stream is called again, and when
nothing is held any more, both rules let it go on. Rule 2 covers the usual case of a connection that
died unnoticed: what is queued for it is at most the share, so the following stream goes on beside
it.

Covers: the count, the rules, the sum of all sessions. Does not cover: a stream's own bytes
(emlio.daemon.reading.stream).
"""

from collections.abc import Callable
from enum import Enum, auto
from threading import Lock, RLock

__all__ = ["ClientMemory", "MemoryBudget", "SessionMemory", "Taken"]

_LEFT_PART = 2
"""Ended sessions of a client may hold one part in so many of the memory before its other sessions
wait."""


_LEAST_PART = 4


class MemoryBudget:
    """The sum of the bytes held, and its limit.

    A stream's share of the memory shrinks when other streams begin, but what it holds leaves only as
    fast as its rank reads. So shares alone do not limit the sum: a new stream gets less than its share
    until the others have come down to theirs.

    Thread-safe. It calls no other object, so it may be used under any lock.
    """

    def __init__(self, most_bytes: int) -> None:
        """See the class.

        Args:
            most_bytes: the limit.
        """
        self._most_bytes = self._bound_bytes = most_bytes
        self._held_bytes = 0
        self._lock = Lock()

    @property
    def bound_bytes(self) -> int:
        """The bytes that may be held now.

        This is the limit without what is set aside, and never less than a quarter of the limit.
        """
        return self._bound_bytes

    def set_aside(self, size_bytes: int) -> None:
        """Set aside this much of the memory for something else."""
        self._bound_bytes = max(self._most_bytes - size_bytes, self._most_bytes // _LEAST_PART)

    @property
    def held_bytes(self) -> int:
        """The bytes that all streams hold."""
        return self._held_bytes

    def take(self, size_bytes: int, *, always: bool) -> bool:
        """Count bytes as held if they fit; return whether they are counted.

        Args:
            size_bytes: the additional bytes.
            always: whether to count them in any case, as for the only message of a stream.
        """
        with self._lock:
            if not always and self._held_bytes + size_bytes > self._bound_bytes:
                return False
            self._held_bytes += size_bytes
            return True

    def give_back(self, size_bytes: int) -> None:
        """Note that so many bytes are free again."""
        with self._lock:
            self._held_bytes -= size_bytes


class Taken(Enum):
    """The answer to a request for memory.

    Attributes:
        YES: the memory is counted.
        FULL: all streams together hold too much. Some of the stream's own bytes must come back
            first.
        WAITS: former streams or sessions hold too much. The stream is called when some of it has
            come back.
    """

    YES = auto()
    FULL = auto()
    WAITS = auto()


class ClientMemory:
    """The memory that the ended sessions of one client still hold. May be used by any thread."""

    def __init__(self) -> None:
        """See the class."""
        # Reentrant: the garbage collector may drop a message, which returns memory, while the lock
        # is held.
        self.lock = RLock()
        self.left_bytes = 0
        self.waiting: dict[SessionMemory, None] = {}


class SessionMemory:
    """The memory of one session. May be used by any thread; calls streams back without its lock."""

    def __init__(self, budget: MemoryBudget, client: ClientMemory | None = None) -> None:
        """See the class.

        Args:
            budget: the memory of all streams.
            client: the memory of the session's client; if None, the session shares with no other.
        """
        self._budget = budget
        self._client = client or ClientMemory()
        self._lock = self._client.lock
        self._held_bytes = 0
        self._ended = False
        # Of the waiting stream; a former stream never needs to be called.
        self._wake: Callable[[], None] | None = None

    @property
    def held_bytes(self) -> int:
        """The bytes that all streams of the session hold."""
        return self._held_bytes

    def take(self, size_bytes: int, *, own_bytes: int, share_bytes: int, wake: Callable[[], None]) -> Taken:
        """Count more bytes for the open stream, if it may have them.

        Args:
            size_bytes: the additional bytes.
            own_bytes: the bytes that the stream holds.
            share_bytes: the bytes that the session may hold.
            wake: called once if the answer is WAITS, by any thread.
        """
        first = not own_bytes
        with self._lock:
            former_bytes = self._held_bytes - own_bytes
            if first:
                waits = former_bytes > share_bytes or self._leaves_too_much
            else:
                waits = former_bytes > 0 and self._held_bytes + size_bytes > share_bytes
            if waits:
                self._wake = wake
                if self._leaves_too_much:
                    self._client.waiting[self] = None
                return Taken.WAITS
            if not self._budget.take(size_bytes, always=first):
                return Taken.FULL
            self._count(size_bytes)
            return Taken.YES

    @property
    def _leaves_too_much(self) -> bool:
        return self._client.left_bytes > self._budget.bound_bytes // _LEFT_PART

    def add(self, size_bytes: int) -> None:
        """Count more bytes for the open stream in any case."""
        with self._lock:
            self._budget.take(size_bytes, always=True)
            self._count(size_bytes)

    def give_back(self, size_bytes: int) -> None:
        """Note that a stream of the session holds fewer bytes.

        The stream has noted that before: the waiting stream may be called at once.
        """
        client = self._client
        with self._lock:
            self._budget.give_back(size_bytes)
            self._count(-size_bytes)
            wakes = [self._woken()]
            if self._ended and client.waiting and not self._leaves_too_much:
                waiting, client.waiting = client.waiting, {}
                wakes += [session._woken() for session in waiting]
        for wake in wakes:
            if wake is not None:
                wake()

    def _count(self, size_bytes: int) -> None:
        self._held_bytes += size_bytes
        if self._ended:
            self._client.left_bytes += size_bytes

    def _woken(self) -> Callable[[], None] | None:
        wake, self._wake = self._wake, None
        return wake

    def end(self) -> None:
        """End the session; what it holds counts for its client from now on. Idempotent."""
        with self._lock:
            if not self._ended:
                self._ended = True
                self._client.left_bytes += self._held_bytes
                self._client.waiting.pop(self, None)
                self._wake = None
