"""The decision which connections to the data port become lanes, for all sessions.

A rank derives a group, and a token for each lane, from the secret in its hello. It sends both in
the PLAIN handshake: the user name is GROUP.NUMBER, the password is the token. A lane may connect
before the hello is read, so a request of an unknown group is held for a while.

Covers: expected sessions, used lane numbers, attempts, held requests. Pure, except for a lock. Does
not cover: sockets (emlio.daemon.network.authentication_socket), the thread that answers
(emlio.daemon.network.zap_thread), deriving tokens (emlio.wire.seal).
"""

import hmac
import re
from collections import Counter, deque
from threading import Lock
from typing import Final

import msgspec

from emlio.daemon.access.gate import ConnectionRequest
from emlio.errors import LocalProtocolError
from emlio.wire.limits import MAX_LANES
from emlio.wire.seal import SECRET_BYTES, lane_token

__all__ = ["DATA_PORT_NAME", "HOLD_NS", "MOST_HELD", "MOST_HELD_EACH", "MOST_TRIES", "Admitted", "LaneGate", "Refused"]

DATA_PORT_NAME: Final = "data"
"""The port's name in the log. A lane is a connection to the data port."""

HOLD_NS: Final = 2_000_000_000
"""The time for which a request of an unknown group is held. With keys, a lane connects two round
trips before its hello is read. Shorter than libzmq's limit on a handshake."""

MOST_HELD: Final = 4_096
MOST_HELD_EACH: Final = 512
"""Limits of held requests: in total, and per address (eight ranks with 64 lanes each)."""

MOST_TRIES: Final = 4 * MAX_LANES
"""Lanes that one session may have admitted at once; one more each second. Each takes a
connection."""

_WINDOW: Final = 1_024
"""The gate remembers for this many numbers below the highest one whether they were used. It refuses
older ones."""

_SECOND_NS: Final = 1_000_000_000
_MOST_NUMBER: Final = (1 << 31) - 1
_USER = re.compile(r"([0-9a-f]{32})\.(0|[1-9][0-9]{0,9})", re.ASCII)


class Admitted(msgspec.Struct, frozen=True, kw_only=True):
    """A request that is a lane of a session.

    Attributes:
        group: the session's group.
        number: the lane's number.
    """

    group: str
    number: int


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """A request that is refused; `reason` is for the log and is never sent to the peer."""

    reason: str


class _Session:
    """An expected session: its secret, its used numbers, its budget of attempts."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._tries = MOST_TRIES
        self._refilled_ns: int | None = None
        self._highest = -1
        self._used = 0  # bit k is the number `highest - k`

    def judge(self, group: str, number: int, token: bytes, now_ns: int) -> Admitted | Refused:
        behind = self._highest - number
        if behind >= _WINDOW or (behind >= 0 and self._used >> behind & 1):
            return Refused(reason=f"lane {number} was used before")
        if not hmac.compare_digest(lane_token(self._secret, number), token):
            return Refused(reason=f"wrong token for lane {number}")
        # Checked last: wrong tokens must not use up the rank's attempts.
        if not self._may_try(now_ns):
            return Refused(reason=f"too many lanes: a session may open {MOST_TRIES}, and one more each second")
        if behind < 0:
            # A number far ahead must not cause a shift by two billion bits.
            self._used = self._used << -behind & (1 << _WINDOW) - 1 if -behind < _WINDOW else 0
            self._highest, behind = number, 0
        self._used |= 1 << behind
        return Admitted(group=group, number=number)

    def _may_try(self, now_ns: int) -> bool:
        if self._refilled_ns is None:
            self._refilled_ns = now_ns
        more = max(now_ns - self._refilled_ns, 0) // _SECOND_NS
        self._refilled_ns += more * _SECOND_NS
        self._tries = min(self._tries + more, MOST_TRIES)
        if not self._tries:
            return False
        self._tries -= 1
        return True


class _Held(msgspec.Struct, kw_only=True, eq=False):
    """A request whose group is not known yet."""

    request: ConnectionRequest
    group: str
    number: int
    until_ns: int
    settled: bool = False


class LaneGate:
    """Decides about requests at the data port. May be used by any thread."""

    def __init__(self) -> None:
        """No session is expected."""
        self._sessions: dict[str, _Session] = {}
        self._queue: deque[_Held] = deque()  # ordered by deadline, since all are held equally long
        self._by_group: dict[str, dict[_Held, None]] = {}  # in order of arrival
        self._by_address: Counter[str] = Counter()
        self._held = 0
        self._expected: list[str] = []  # groups that are expected now and may have held requests
        self._lock = Lock()

    def expect(self, group: str, secret: bytes) -> bool:
        """Admit lanes of this session from now on; return False if another session has this group.

        `settle` then decides about requests that are held.
        """
        if len(secret) != SECRET_BYTES:
            raise LocalProtocolError(f"a session's secret must have {SECRET_BYTES} bytes, got {len(secret)}")
        with self._lock:
            if group in self._sessions:
                return False
            self._sessions[group] = _Session(secret)
            if group in self._by_group:
                self._expected.append(group)
            return True

    def forget(self, group: str) -> None:
        """Admit no more lanes of this session. Forgetting it again does nothing."""
        with self._lock:
            self._sessions.pop(group, None)

    def judge(self, request: ConnectionRequest, now_ns: int) -> Admitted | Refused | None:
        """Decide about a request; return None if it is held, and `settle` decides later."""
        said = _USER.fullmatch(request.user.decode("latin-1"))
        if said is None or int(said[2]) > _MOST_NUMBER:
            return Refused(reason="it names no session and lane, so it does not come from a loader")
        group, number = said[1], int(said[2])
        with self._lock:
            session = self._sessions.get(group)
            if session is not None:
                return session.judge(group, number, request.token, now_ns)
            if self._held >= MOST_HELD:
                return Refused(
                    reason=f"its session is unknown, and {MOST_HELD} other connections already wait for their sessions"
                )
            if self._by_address[request.address] >= MOST_HELD_EACH:
                return Refused(
                    reason=(
                        f"its session is unknown, and {MOST_HELD_EACH} other connections from its address already "
                        "wait for their sessions"
                    )
                )
            held = _Held(request=request, group=group, number=number, until_ns=now_ns + HOLD_NS)
            self._queue.append(held)
            self._by_group.setdefault(group, {})[held] = None
            self._by_address[request.address] += 1
            self._held += 1
            return None

    def settle(self, now_ns: int) -> list[tuple[ConnectionRequest, Admitted | Refused]]:
        """Decide about held requests of sessions that are expected now; refuse expired ones."""
        decided: list[tuple[ConnectionRequest, Admitted | Refused]] = []
        with self._lock:
            for group in self._expected:
                session = self._sessions.get(group)
                if session is None:
                    continue  # the session has already ended
                for held in tuple(self._by_group.get(group, ())):
                    self._release(held)
                    decided.append((held.request, session.judge(group, held.number, held.request.token, now_ns)))
            self._expected.clear()
            while self._queue and (self._queue[0].settled or now_ns >= self._queue[0].until_ns):
                held = self._queue.popleft()
                if not held.settled:
                    self._release(held)
                    waited = f"no session was started for it within {HOLD_NS // _SECOND_NS} s"
                    reason = f"{waited}: the rank has ended, or its key is missing or wrong"
                    decided.append((held.request, Refused(reason=reason)))
        return decided

    def _release(self, held: _Held) -> None:
        held.settled = True
        self._held -= 1
        group = self._by_group[held.group]
        del group[held]
        if not group:
            del self._by_group[held.group]
        address = held.request.address
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]

    def due_ns(self) -> int | None:
        """Return the time at which `settle` is due if nothing happens; None if none is held."""
        with self._lock:
            return self._queue[0].until_ns if self._queue else None
