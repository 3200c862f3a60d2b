"""Loaders that said hello, until the files of their dataset are checked.

Covers: waiting loaders and their number, the log of those that are refused. A loader that calls again, over another connection,
has given up the one before: its hello is dropped. Used by the control thread. Does not cover: what may be had
(emlio.daemon.admission), checking (emlio.daemon.inspections), those who wait for a rank (emlio.daemon.claims).
"""

import logging
from collections.abc import Callable

from emlio.clock import Clock
from emlio.daemon.admission import Admission
from emlio.daemon.answers import code_of_files
from emlio.daemon.claims import Caller
from emlio.daemon.complaints import Complaints
from emlio.daemon.inspections import Inspections
from emlio.daemon.limits import MOST_SESSIONS
from emlio.errors import EmlioError, RefusedError
from emlio.wire.control import Refused, Reserve

__all__ = ["Arrivals"]

_LOG = logging.getLogger("emlio.daemon")
_LEAVING = "this daemon is shutting down"
_Place = tuple[object, ...]


class Arrivals:
    """See the module.

    Attributes:
        draining: whether everyone is turned away.
    """

    def __init__(
        self,
        admission: Admission,
        inspections: Inspections,
        refuse: Callable[[bytes, Refused], object],
        let_in: Callable[[Caller, Reserve | None], None],
        clock: Clock,
        *,
        most: int = MOST_SESSIONS,
    ) -> None:
        """See the class.

        Args:
            admission: judges what they ask for.
            inspections: of the datasets' files.
            refuse: tells the one at a connection why it cannot have it.
            let_in: is given those who may have it, with files that are as they were indexed, and the lanes they asked for.
            clock: for the log, which says each reason once a minute.
            most: may wait.
        """
        self.draining = False
        self._admission = admission
        self._inspections = inspections
        self._refuse = refuse
        self._let_in = let_in
        self._clock = clock
        self._most = most
        self._complaints = Complaints(_LOG)
        self._callers: dict[bytes, Caller] = {}
        self._connections: dict[_Place, bytes] = {}
        self._reserves: dict[bytes, Reserve] = {}

    def waits(self, connection: bytes) -> bool:
        """Return whether a loader waits at this connection."""
        return connection in self._callers

    def greet(self, caller: Caller) -> None:
        """Take a hello from a connection that has no session and does not wait."""
        if self.draining:
            self._refuse(caller.connection, Refused(code="draining", text=_LEAVING))
            return
        try:
            served = self._admission.judge(caller).served
        except RefusedError as error:
            self._turn_down(caller, error.code, str(error))
            return
        if self._take_place(caller):
            self._inspections.ask(served, lambda error: self._looked(caller, error))
        else:
            text = f"{self._most} wait for a look at the files of their datasets, there is no room for more: call again later"
            self._turn_down(caller, "no-session", text)

    def reserve(self, connection: bytes, reserve: Reserve) -> None:
        """Keep a request for lanes that came right behind a hello, until its loader is let in. The first one counts."""
        self._reserves.setdefault(connection, reserve)

    def gone(self, connection: bytes) -> None:
        """The connection has ended; harmless when nobody waited there."""
        caller = self._callers.pop(connection, None)
        self._reserves.pop(connection, None)
        if caller is not None:
            del self._connections[_place(caller)]

    def _take_place(self, caller: Caller) -> bool:
        place = _place(caller)
        before = self._connections.get(place)
        if before is not None:
            self.gone(before)
        elif len(self._callers) >= self._most:
            return False
        self._callers[caller.connection] = caller
        self._connections[place] = caller.connection
        return True

    def _looked(self, caller: Caller, error: EmlioError | None) -> None:
        if self._callers.get(caller.connection) is not caller:
            return  # it called again, or has gone
        reserve = self._reserves.get(caller.connection)
        self.gone(caller.connection)
        if self.draining:
            self._refuse(caller.connection, Refused(code="draining", text=_LEAVING))
        elif error is not None:
            self._turn_down(caller, code_of_files(error), str(error))
        else:
            self._let_in(caller, reserve)

    def _turn_down(self, caller: Caller, code: str, text: str) -> None:
        complaint = f"rank {caller.hello.rank} at {caller} is refused: {text}"
        self._complaints.add(complaint, self._clock.monotonic_ns(), reason=text)
        self._refuse(caller.connection, Refused(code=code, text=text))


def _place(caller: Caller) -> _Place:
    return *caller.loader, *caller.claim
