"""Limits on connected lanes: per session, per client, and in total.

A lane counts from its admission until its connection is known to have ended, whether a stream uses
it or not. A connection that never sent anything counts until two searches for it are over. The
lanes that streams are opened with have limits of their own (emlio.daemon.control.session_commands).
A rank that replaces lanes has more for a while: the daemon may notice later than the rank that a
lane was lost.

Covers: counting. Does not cover: tokens and numbers (emlio.daemon.access.lane_gate), when a
connection has ended (emlio.daemon.lanes.table), descriptors (emlio.daemon.access.descriptors).
"""

from threading import Lock

from emlio.daemon.access.client_quota import ClientQuota
from emlio.daemon.limits import MOST_CONNECTED, MOST_CONNECTED_EACH, MOST_CONNECTED_SESSION

__all__ = ["ConnectedLanes"]


class _Session:
    """The client, the lanes and the end of one session."""

    def __init__(self, owner: bytes) -> None:
        self.owner = owner
        self.lanes = 0
        self.over = False


class ConnectedLanes:
    """Counts connected lanes. May be used by any thread."""

    def __init__(
        self,
        *,
        most: int = MOST_CONNECTED,
        most_each: int = MOST_CONNECTED_EACH,
        most_session: int = MOST_CONNECTED_SESSION,
    ) -> None:
        """See the class.

        Args:
            most: the limit for all clients together.
            most_each: the limit for one client.
            most_session: the limit for one session.
        """
        self._most = most
        self._most_each = most_each
        self._most_session = most_session
        self._clients = ClientQuota(most=most, most_each=most_each)
        self._sessions: dict[str, _Session] = {}
        self._lanes = 0
        self._lock = Lock()

    @property
    def lanes(self) -> int:
        """The number of connected lanes of all sessions."""
        return self._lanes

    def expect(self, group: str, owner: bytes) -> bool:
        """Register a session; return False if a session with this group still has lanes."""
        with self._lock:
            if group in self._sessions:
                return False
            self._sessions[group] = _Session(owner)
            return True

    def forget(self, group: str) -> None:
        """End a session. Its lanes count until their connections have ended."""
        with self._lock:
            session = self._sessions.get(group)
            if session is not None:
                session.over = True
                self._drop(group, session)

    def take(self, group: str) -> str | None:
        """Count a new lane; return None, or the reason why it is refused.

        The reason is "" if the lane merely comes after the end of its session.
        """
        with self._lock:
            session = self._sessions.get(group)
            if session is None or session.over:
                return ""  # needs no reason: the rank itself ended the session
            if session.lanes >= self._most_session:
                return f"its session already has {session.lanes} lanes, which is the limit"
            if not self._clients.take(session.owner):
                of_all = (
                    f", and all clients together have {self._lanes} of {self._most}"
                    if self._lanes >= self._most
                    else ""
                )
                have = self._clients.of(session.owner)
                return f"its client already has {have} of {self._most_each} lanes{of_all}"
            session.lanes += 1
            self._lanes += 1
            return None

    def give_back(self, group: str) -> None:
        """Note that the connection of a lane has ended."""
        with self._lock:
            session = self._sessions[group]
            session.lanes -= 1
            self._lanes -= 1
            self._clients.give_back(session.owner)
            self._drop(group, session)

    def _drop(self, group: str, session: _Session) -> None:
        if session.over and not session.lanes:
            del self._sessions[group]
