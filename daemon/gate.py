"""Who may connect: the decision, for the control port and for each lane.

Covers: client keys at the control port, the one rank a lane waits for. Pure, but for a lock. Does not cover: sockets
(emlio.daemon.transport), where the list of clients comes from (emlio.keys).
"""

import hmac
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import Final

__all__ = ["CONTROL_DOOR", "Gate", "Guest", "Knock", "Verdict"]

CONTROL_DOOR: Final = "control"


@dataclass(frozen=True, slots=True, kw_only=True)
class Knock:
    """Somebody wants to come in.

    Attributes:
        door: CONTROL_DOOR, or a lane's.
        address: the host it comes from, as the network says.
        key: the public key it proved to have, 32 bytes; none where it showed none.
        token: what it showed instead.
    """

    door: str
    address: str
    key: bytes = b""
    token: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guest:
    """Whom a lane waits for: the one with this token, or with this key. It is let in once, until then.

    Attributes:
        token: drawn for this lane; b"" where the key counts.
        key: the public key of this lane alone; b"" where the token counts.
        until_ns: no later.
    """

    token: bytes = b""
    key: bytes = b""
    until_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What comes of a knock.

    Attributes:
        admitted: whether it may come in.
        user: the name by which messages of this connection are known: the key in hexadecimal digits.
        reason: for the log; never told to who knocks.
    """

    admitted: bool
    user: str = ""
    reason: str = ""


class Gate:
    """See the module. May be used by any thread."""

    def __init__(self, knows: Callable[[bytes], bool] | None) -> None:
        """See the class; `knows` says whether a client's key may come in now. None: nobody is asked for a key."""
        self._knows = knows
        self._guests: dict[str, Guest] = {}
        self._lock = Lock()

    def expect(self, door: str, guest: Guest) -> None:
        """A lane is about to be opened."""
        with self._lock:
            self._guests[door] = guest

    def forget(self, door: str) -> None:
        """A lane is closed."""
        with self._lock:
            self._guests.pop(door, None)

    def judge(self, knock: Knock, now_ns: int) -> Verdict:
        """Decide; whoever came into a lane was its only guest."""
        if knock.door != CONTROL_DOOR:
            with self._lock:
                return self._judge_lane(knock, now_ns)
        if self._knows is None:
            return Verdict(admitted=True)
        if not self._knows(knock.key):
            return Verdict(admitted=False, reason="its key is not among the clients")
        return Verdict(admitted=True, user=knock.key.hex())

    def _judge_lane(self, knock: Knock, now_ns: int) -> Verdict:
        guest = self._guests.get(knock.door)
        if guest is None:
            return Verdict(admitted=False, reason="the lane's rank has come already, or the lane is closed")
        if now_ns > guest.until_ns:
            return Verdict(admitted=False, reason="the lane waited for its rank, and no longer does")
        expected, shown = (guest.token, knock.token) if guest.token else (guest.key, knock.key)
        if not expected or not hmac.compare_digest(expected, shown):
            return Verdict(admitted=False, reason="it is not the rank the lane is for")
        del self._guests[knock.door]
        return Verdict(admitted=True, user=knock.key.hex())
