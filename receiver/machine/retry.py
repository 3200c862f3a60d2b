"""Retrying a lost daemon: the delays, and when it is given up.

Covers: the delays, which grow and are random so that the ranks of a job do not all reconnect at
once; the deadline; which errors may pass. Pure. Does not cover: trying
(emlio.receiver.machine.daemon_pool).
"""

from emlio.errors import EmlioError, PeerLostError, RefusedError, RemoteProtocolError, TransportError
from emlio.receiver.machine.surroundings import Chances

__all__ = ["MISUNDERSTANDINGS", "Retry", "is_for_the_user", "is_misunderstanding", "is_of_other_ranks", "may_pass"]

_FIRST_NS = 50_000_000
"""A daemon that restarts is back after half a second; trying that often at first costs little if it
is gone."""

_LONGEST_NS = 1_000_000_000
"""A rank notices a daemon's return within a second."""

_SLOW_NS = 10_000_000_000
"""Delay between attempts at a daemon whose files have changed: an operator may restore them."""

_PASSING = frozenset({"no-session", "draining", "rank-claimed", "protocol"})
"""Refusals after which the same daemon may accept."""

_PASSING_SOON = frozenset({"no-session", "draining"})
"""Also at the very beginning: the daemon is restarting, or was too busy to keep a session."""

_PASSING_LATER = frozenset({"no-lane"})
"""At the beginning these mean a setting that must be changed. Later other daemons may hold what a
daemon lacks, or its own previous stream may hold the lanes."""

MISUNDERSTANDINGS = 3
"""The number of times that messages may have been changed in transit; after that the peers are
really incompatible."""


class Retry:
    """The loss of one daemon, from when it was noticed until it sends again.

    Attributes:
        lost_ns: when it was noticed.
        error: the reason.
        since: the result of the last attempt, or None before the first.
        attempts: the number of attempts so far.
        misunderstandings: the number of losses so far by a misunderstanding.
        agreed: the daemon has agreed to the plan since; the loss is not certain to be over.
        is_unfit: an operator must fix the fault before the daemon sends anything that others hold.
    """

    def __init__(
        self,
        error: EmlioError,
        now_ns: int,
        chances: Chances,
        *,
        slow: bool = False,
        lost_ns: int | None = None,
    ) -> None:
        """Begin with a first attempt due at once.

        Args:
            error: the reason of the loss.
            now_ns: the time.
            chances: draws the delays.
            slow: try rarely, and not at once, since an operator must fix the fault.
            lost_ns: since when it is lost, if not since now.
        """
        self.lost_ns = now_ns if lost_ns is None else lost_ns
        self.error = error
        self.since: EmlioError | None = None
        self.attempts = 0
        self.misunderstandings = int(is_misunderstanding(error))
        self.agreed = False
        self.is_unfit = slow
        self._chances = chances
        self._slow = slow
        self._began_ns = now_ns
        self._due_ns: int | None = now_ns
        if slow:
            self.failed(error, now_ns)

    @property
    def due_ns(self) -> int | None:
        """The time of the next attempt; None during an attempt."""
        return self._due_ns

    def answer_within_ns(self, first_ns: int, longest_ns: int) -> int:
        """Return how long the next attempt may wait for an answer.

        Twice as long each time, for a daemon that is only slow.
        """
        return min(first_ns << min(self.attempts, 20), longest_ns)

    def is_over(self, now_ns: int, timeout_ns: int) -> bool:
        """Return whether the daemon has been lost for that long."""
        return now_ns - self.lost_ns >= timeout_ns

    def try_now(self, now_ns: int) -> None:
        """Record the start of an attempt."""
        self.attempts += 1
        self._began_ns = now_ns
        self._due_ns = None

    def failed(self, error: EmlioError, now_ns: int) -> None:
        """Record that the attempt failed, or that it is lost again."""
        self.agreed = False
        self.since = error if self.attempts else None
        self.misunderstandings += bool(self.attempts) and is_misunderstanding(error)
        longest = _SLOW_NS if self._slow else min(_FIRST_NS << min(self.attempts, 10), self._longest_ns())
        # Between half and all of the delay: ranks that lost the daemon together come back one by
        # one. The delay counts from the start of the attempt: after one that waited long for an
        # answer, the next may start at once.
        self._due_ns = max(now_ns, self._began_ns + round(longest * self._chances.uniform(0.5, 1.0)))

    def _longest_ns(self) -> int:
        """Return the longest delay: what is not understood again and again is not understood the next time, either."""
        again = max(self.misunderstandings - MISUNDERSTANDINGS, 0)
        return min(_LONGEST_NS << min(again, 10), _SLOW_NS)


def may_pass(error: EmlioError, before: Retry | None, *, reopens: bool) -> bool:
    """Return whether a daemon lost for this reason, maybe after others, is tried again soon.

    Args:
        error: the reason.
        before: an earlier loss that it has not recovered from yet.
        reopens: a stream was ordered from it before, in the same session.
    """
    codes = _PASSING | _PASSING_LATER if reopens or before is not None else _PASSING
    return isinstance(error, TransportError | RemoteProtocolError) or (
        isinstance(error, RefusedError) and error.code in codes
    )


def is_misunderstanding(error: EmlioError) -> bool:
    """Return whether the peers do not understand each other.

    A message was changed in transit, or another service answers.
    """
    return isinstance(error, RemoteProtocolError) or (isinstance(error, RefusedError) and error.code == "protocol")


def is_of_other_ranks(error: EmlioError) -> bool:
    """Return whether a daemon found that another rank differs: that does not pass."""
    return isinstance(error, RefusedError) and error.code == "ranks-differ"


def is_for_the_user(error: EmlioError, before: Retry | None) -> bool:
    """Return whether a daemon that never agreed is not worth retrying: the user must be told."""
    code = error.code if isinstance(error, RefusedError) else ""
    if is_misunderstanding(error):
        return before is not None and before.misunderstandings >= MISUNDERSTANDINGS
    return before is None and code not in _PASSING_SOON and not isinstance(error, PeerLostError)
