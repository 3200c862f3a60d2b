"""Rules between the ranks of a job: one process has a rank, and all ranks have one plan.

Covers: putting both questions together, so that the control thread tells what happened to a session once. Pure. Does not cover:
the rules (emlio.daemon.claims, emlio.daemon.comparison), carrying decisions out (emlio.daemon.control).
"""

from emlio.daemon.claims import Caller, Claims, Decision
from emlio.daemon.comparison import Comparison, Verdict
from emlio.session.terms import Terms

__all__ = ["RankRules"]


class RankRules:
    """See `Claims` and `Comparison`. Used by the control thread."""

    def __init__(self, *, heartbeat_timeout_ns: int) -> None:
        """Both with this timeout."""
        self._claims = Claims(heartbeat_timeout_ns=heartbeat_timeout_ns)
        self._comparison = Comparison(heartbeat_timeout_ns=heartbeat_timeout_ns)

    def waits(self, connection: bytes) -> bool:
        """Return True while a hello from this connection is not answered."""
        return self._claims.waits(connection)

    def say_hello(self, caller: Caller, now_ns: int) -> list[Decision | Verdict]:
        """A loader came; over a connection that has no session and does not wait."""
        # First: what it agreed to before must not end with its former session.
        return [*self._comparison.call_again(caller, now_ns), *self._claims.say_hello(caller, now_ns)]

    def offer(self, caller: Caller, terms: Terms, now_ns: int) -> list[Verdict]:
        """A session offered a plan that is right in itself."""
        return self._comparison.offer(caller, terms, now_ns)

    def heard(self, connection: bytes, now_ns: int) -> list[Decision | Verdict]:
        """Something came over this connection, and its session goes on."""
        return [*self._claims.heard(connection, now_ns), *self._comparison.heard(connection, now_ns)]

    def lost(self, connection: bytes, now_ns: int) -> None:
        """The connection is not there any more; its process may be, and call again."""
        self._claims.lost(connection, now_ns)
        self._comparison.lost(connection, now_ns)

    def gone(self, connection: bytes, now_ns: int) -> list[Decision | Verdict]:
        """The session of this connection is over, or it does not wait for one any more."""
        return [*self._comparison.gone(connection, now_ns), *self._claims.gone(connection)]

    def tick(self, now_ns: int) -> list[Decision | Verdict]:
        """Time has passed."""
        return [*self._claims.tick(now_ns), *self._comparison.tick(now_ns)]

    def deadline_ns(self) -> int | None:
        """When `tick` must be called at the latest."""
        both = (self._claims.deadline_ns(), self._comparison.deadline_ns())
        return min((at for at in both if at is not None), default=None)

    def dismiss(self, code: str, text: str) -> list[Decision]:
        """Nobody is admitted any more: turn away all who wait to be."""
        return self._claims.dismiss(code, text)
