"""Loaders that said hello, until the files of their dataset are checked.

A loader that calls again over another connection has given up the first one: the first hello is
dropped.

Covers: waiting loaders and their number, the log of refused ones. Does not cover: whether a loader
may have what it asks for (emlio.daemon.control.admission), checking files
(emlio.daemon.datasets.inspections), waiting for a rank (emlio.daemon.ranks.claims).
"""

import logging
from collections.abc import Callable

from emlio.clock import Clock
from emlio.daemon.access.rate_limited_log import RateLimitedLog
from emlio.daemon.control.admission import Admission
from emlio.daemon.control.answers import code_of_files
from emlio.daemon.control.client import refusal_of
from emlio.daemon.datasets.inspections import Inspections
from emlio.daemon.failures import Failures
from emlio.daemon.limits import MOST_SESSIONS
from emlio.daemon.ranks.claims import Caller
from emlio.errors import EmlioError, RefusedError
from emlio.wire.control import Refused

__all__ = ["Arrivals"]

_LOG = logging.getLogger("emlio.daemon")
_LEAVING = "this daemon is shutting down"
_Place = tuple[object, ...]


class Arrivals:
    """The loaders that wait for a check of their dataset. Used by the control thread."""

    def __init__(
        self,
        admission: Admission,
        inspections: Inspections,
        refuse: Callable[[bytes, Refused], object],
        admitted: Callable[[Caller], None],
        clock: Clock,
        failures: Failures,
        *,
        most: int = MOST_SESSIONS,
    ) -> None:
        """See the class.

        Args:
            admission: decides about what they ask for.
            inspections: checks the datasets' files.
            refuse: sends a refusal over a connection.
            admitted: called with each loader that may have a session and whose files are unchanged.
            clock: for the log, which has each reason once a minute.
            failures: the last failures, which refusals are added to.
            most: the number of loaders that may wait.
        """
        self._admission = admission
        self._inspections = inspections
        self._refuse = refuse
        self._admitted = admitted
        self._clock = clock
        self._failures = failures
        self._most = most
        self._complaints = RateLimitedLog(_LOG)
        self._callers: dict[bytes, Caller] = {}
        self._connections: dict[_Place, bytes] = {}

    def waits(self, connection: bytes) -> bool:
        """Return whether a loader waits at this connection."""
        return connection in self._callers

    def greet(self, caller: Caller) -> None:
        """Take a hello from a connection that has no session and does not wait."""
        if self._admission.is_draining:
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
            text = (
                f"the daemon is busy: {self._most} ranks already wait until it has checked the files of their "
                "datasets. Retry later"
            )
            self._turn_down(caller, "no-session", text)

    def gone(self, connection: bytes) -> None:
        """Note that the connection has ended; harmless when no loader waited there."""
        caller = self._callers.pop(connection, None)
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
            return  # the loader called again, or has gone
        self.gone(caller.connection)
        if self._admission.is_draining:
            self._refuse(caller.connection, Refused(code="draining", text=_LEAVING))
        elif error is not None:
            self._turn_down(caller, code_of_files(error), str(error))
        else:
            self._admitted(caller)

    def _turn_down(self, caller: Caller, code: str, text: str) -> None:
        complaint = f"rank {caller.hello.rank} at {caller} was refused: {text}"
        facts = {"code": code, **caller.facts}
        self._complaints.add(complaint, self._clock.monotonic_ns(), reason=text, facts=facts)
        self._failures.add(refusal_of(caller, code, text), outside=True)
        self._refuse(caller.connection, Refused(code=code, text=text))


def _place(caller: Caller) -> _Place:
    return *caller.loader, *caller.claim
