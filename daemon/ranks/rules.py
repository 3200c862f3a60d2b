"""The rules between the ranks of a job: one process has a rank, and all ranks have one plan.

Covers: combining both rules, so that the control thread reports each event once. Pure. Does not
cover: the rules (emlio.daemon.ranks.claims, emlio.daemon.ranks.comparison), carrying decisions out
(emlio.daemon.control.thread).
"""

from msgspec import structs

from emlio.daemon.ranks.claims import Caller, Claims, Decision
from emlio.daemon.ranks.comparison import Comparison, Verdict
from emlio.session.terms import terms_of
from emlio.wire.control import Compared, ControlMessage, Goodbye, Ping, Place, PlanOffer, Pong

__all__ = ["RankRules"]


class RankRules:
    """The rules of `Claims` and `Comparison` together. Used by the control thread."""

    def __init__(self, *, heartbeat_timeout_ns: int) -> None:
        """See the class; both rules have this timeout."""
        self._claims = Claims(heartbeat_timeout_ns=heartbeat_timeout_ns)
        self._comparison = Comparison(heartbeat_timeout_ns=heartbeat_timeout_ns)

    def waits(self, connection: bytes) -> bool:
        """Return whether a hello from this connection is not answered yet."""
        return self._claims.waits(connection)

    def say_hello(self, caller: Caller, now_ns: int) -> list[Decision | Verdict]:
        """Take a hello over a connection that has no session and does not wait."""
        # First, so that the loader's agreement does not end with its former session.
        return [*self._comparison.call_again(caller, now_ns), *self._claims.say_hello(caller, now_ns)]

    def offer(self, caller: Caller, offer: PlanOffer, now_ns: int) -> list[Verdict]:
        """Take a session's offer of a plan that is valid in itself."""
        terms = terms_of(offer, caller.hello.world_size)
        compared = offer.compared
        if not isinstance(compared, Compared):
            return self._comparison.offer(caller, terms, None, now_ns)
        return self._comparison.offer(caller, terms, compared.made, now_ns, begun=compared.begun)

    def said(self, connection: bytes, message: ControlMessage, now_ns: int) -> list[Verdict]:
        """Take what a session's message says of its user's place, if it does."""
        place = message.place if isinstance(message, Ping | Goodbye) else None
        if isinstance(message, Goodbye):
            self._comparison.leaves(connection)
        return self._comparison.walked(connection, place, now_ns) if isinstance(place, Place) else []

    def answer(self, connection: bytes, message: ControlMessage) -> ControlMessage:
        """Return a message to a session; a pong says how far its user may go."""
        limit = self._comparison.limit(connection) if isinstance(message, Pong) else None
        return message if limit is None else structs.replace(message, limit=limit)

    def heard(self, connection: bytes, now_ns: int) -> list[Decision | Verdict]:
        """Note that a message came over this connection, and that its session goes on."""
        return [*self._claims.heard(connection, now_ns), *self._comparison.heard(connection, now_ns)]

    def lost(self, connection: bytes, now_ns: int) -> None:
        """Note that the connection has ended; its process may live, and call again."""
        self._claims.lost(connection, now_ns)
        self._comparison.lost(connection, now_ns)

    def gone(self, connection: bytes, now_ns: int) -> list[Decision | Verdict]:
        """Note that the session of this connection has ended, or that its caller waits no more."""
        return [*self._comparison.gone(connection, now_ns), *self._claims.gone(connection)]

    def tick(self, now_ns: int) -> list[Decision | Verdict]:
        """Return the decisions that are due at this time."""
        return [*self._claims.tick(now_ns), *self._comparison.tick(now_ns)]

    def deadline_ns(self) -> int | None:
        """Return the latest time at which `tick` must be called."""
        both = (self._claims.deadline_ns(), self._comparison.deadline_ns())
        return min((at for at in both if at is not None), default=None)

    def dismiss(self, code: str, text: str) -> list[Decision]:
        """Refuse all callers that wait; no more are admitted."""
        return self._claims.dismiss(code, text)
