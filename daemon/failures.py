"""The last failures, for people who ask what went wrong.

Covers: a bounded list, repetitions counted as one entry, who may see which. Does not cover: what is
a failure (its callers), the log.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from threading import Lock

from emlio.clock import Clock
from emlio.wire.limits import MAX_STATUS_FAILURES, MAX_STATUS_TEXT

__all__ = ["Failure", "Failures"]

_MOST_OUTSIDE = MAX_STATUS_FAILURES // 4
"""Of callers without a session. They have places of their own, so that they cannot push out the
failures of ranks."""

_MOST_KINDS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A failure and how often it was repeated.

    Attributes:
        kind: a refusal's code on the wire, or "stream", "lost", "dataset", "stood-still".
        text: the reason.
        dataset, job, rank: of the session; "", "" and -1 if there is none.
        at_ns: the last time, by the daemon's clock.
        times: how often.
    """

    kind: str
    text: str
    dataset: str = ""
    job: str = ""
    rank: int = -1
    at_ns: int = 0
    times: int = 1


class Failures:
    """The last failures. May be used by any thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = Lock()
        self._of_sessions: OrderedDict[Failure, Failure] = OrderedDict()
        self._outside: OrderedDict[Failure, Failure] = OrderedDict()
        self._counts: Counter[str] = Counter()

    def add(self, failure: Failure, *, outside: bool = False) -> None:
        """Note that this happened now.

        Args:
            failure: what; its time and number do not count.
            outside: whether a caller without a session caused it.
        """
        failure = replace(failure, text=failure.text[:MAX_STATUS_TEXT], at_ns=0, times=1)
        kept = self._outside if outside else self._of_sessions
        most = _MOST_OUTSIDE if outside else MAX_STATUS_FAILURES - _MOST_OUTSIDE
        with self._lock:
            before = kept.pop(failure, None)
            times = 1 if before is None else before.times + 1
            kept[failure] = replace(failure, at_ns=self._clock.monotonic_ns(), times=times)
            while len(kept) > most:
                kept.popitem(last=False)
            known = failure.kind in self._counts or len(self._counts) < _MOST_KINDS
            self._counts[failure.kind if known else "other"] += 1

    def last(self, may_see: Callable[[str], bool]) -> list[Failure]:
        """Return them, the newest first.

        Args:
            may_see: returns whether those of this dataset may be shown; "" stands for those without one.
        """
        with self._lock:
            both = [*self._of_sessions.values(), *self._outside.values()]
        return sorted((one for one in both if may_see(one.dataset)), key=lambda one: one.at_ns, reverse=True)

    def counts(self) -> dict[str, int]:
        """Return how many there were of each kind since the start."""
        with self._lock:
            return dict(self._counts)
