"""When a daemon that was lost is tried again, and when that is given up.

Covers: the delays, which grow and are drawn so that the ranks of a job do not all come at once; the deadline; which errors may
pass. Pure. Does not cover: trying (emlio.receiver.crew).
"""

import random

from emlio.errors import EmlioError, PeerLostError, RefusedError, RemoteProtocolError, TransportError

__all__ = ["MISUNDERSTANDINGS", "Retry", "is_for_the_user", "is_misunderstanding", "is_of_other_ranks", "may_pass"]

_FIRST_NS = 50_000_000
"""A daemon that restarts is back after half a second; one that is gone costs little to be asked that often at first."""

_LONGEST_NS = 1_000_000_000
"""So that a rank hears of a daemon's return within a second."""

_SLOW_NS = 10_000_000_000
"""Between looks at a daemon whose files are not what they were: somebody may mend them."""

_PASSING = frozenset({"no-session", "draining", "rank-claimed", "ranks-differ", "protocol"})
"""Refusals after which the same daemon may say yes."""

_PASSING_SOON = frozenset({"no-session", "draining"})
"""Also at the very beginning: it is being started anew, or was too busy to keep a session."""

_PASSING_LATER = frozenset({"no-lane"})
"""At the beginning they are a setting that must be changed; later others may hold what a daemon lacks, or its own last stream."""

MISUNDERSTANDINGS = 3
"""So many times what is said may have been changed on its way; after that the two sides really do not understand each other."""


class Retry:
    """One daemon's loss, from when it was noticed until it sends again.

    Attributes:
        lost_ns: when it was noticed.
        error: why.
        since: what came of the last attempt, or None before the first.
        attempts: so far.
    """

    def __init__(
        self,
        error: EmlioError,
        now_ns: int,
        chances: random.Random,
        *,
        slow: bool = False,
        lost_ns: int | None = None,
    ) -> None:
        """See the class.

        Args:
            error: why it is lost.
            now_ns: the time.
            chances: draws the delays.
            slow: call it seldom, since what is wrong with it must be mended by somebody.
            lost_ns: since when it is, if not since now.
        """
        self.lost_ns = now_ns if lost_ns is None else lost_ns
        self.error = error
        self.since: EmlioError | None = None
        self.attempts = 0
        self._chances = chances
        self._slow = slow
        self._began_ns = now_ns
        self._due_ns: int | None = now_ns
        if slow:
            self.failed(error, now_ns)

    @property
    def due_ns(self) -> int | None:
        """When to try next; None while an attempt is under way."""
        return self._due_ns

    def answer_within_ns(self, first_ns: int, longest_ns: int) -> int:
        """How long the next attempt may wait for an answer: twice as long each time, for a daemon that is only slow."""
        return min(first_ns << min(self.attempts, 20), longest_ns)

    def try_now(self, now_ns: int) -> None:
        """An attempt begins."""
        self.attempts += 1
        self._began_ns = now_ns
        self._due_ns = None

    def failed(self, error: EmlioError, now_ns: int) -> None:
        """The attempt came to nothing."""
        self.since = error if self.attempts else None
        longest = _SLOW_NS if self._slow else min(_FIRST_NS << min(self.attempts, 10), _LONGEST_NS)
        # Between half and all of it: ranks that lost the daemon at one moment come back one by one. It counts from the beginning
        # of the attempt: after one that waited long for an answer the next may begin at once.
        self._due_ns = max(now_ns, self._began_ns + round(longest * self._chances.uniform(0.5, 1.0)))


def may_pass(error: EmlioError, before: Retry | None, *, reopens: bool) -> bool:
    """Whether a daemon that was lost for this reason, maybe after others, is called again soon.

    Args:
        error: the reason.
        before: what it was lost for before and is not back from yet.
        reopens: it was ordered a stream before, in the same session.
    """
    codes = _PASSING | _PASSING_LATER if reopens or before is not None else _PASSING
    return isinstance(error, TransportError | RemoteProtocolError) or (
        isinstance(error, RefusedError) and error.code in codes
    )


def is_misunderstanding(error: EmlioError) -> bool:
    """Whether one side did not understand the other: what was said was changed on its way, or something else is there."""
    return isinstance(error, RemoteProtocolError) or (isinstance(error, RefusedError) and error.code == "protocol")


def is_of_other_ranks(error: EmlioError) -> bool:
    """Whether the daemon refused a plan because another rank has another one.

    It may pass for a rank that had agreed before: those that come back to a daemon that was started again come in any order.
    """
    return isinstance(error, RefusedError) and error.code == "ranks-differ"


def is_for_the_user(error: EmlioError, before: Retry | None) -> bool:
    """Whether calling a daemon that never was here again is no use: whoever starts the job should hear of it at once."""
    code = error.code if isinstance(error, RefusedError) else ""
    if is_misunderstanding(error):
        return before is not None and before.attempts >= MISUNDERSTANDINGS
    return before is None and code not in _PASSING_SOON and not isinstance(error, PeerLostError)
