"""The log of sessions, and the failures that it notes for people who ask later.

Covers: wording, fields, what counts as a failure. Used by the control thread. Does not cover:
loaders that were refused before they had a session (emlio.daemon.control.arrivals).
"""

import logging

from emlio.clock import Clock
from emlio.daemon.access.rate_limited_log import RateLimitedLog
from emlio.daemon.control.client import Client, refusal_of
from emlio.daemon.datasets.served import ServedDataset
from emlio.daemon.failures import Failure, Failures
from emlio.daemon.lanes.stream_totals import SessionFigures
from emlio.daemon.network.transport import Received
from emlio.daemon.ranks.claims import Caller
from emlio.errors import EmlioError
from emlio.units import counted, format_duration

__all__ = ["SessionLog"]

_LOG = logging.getLogger("emlio.daemon")
_ORDERLY = ("", "draining")


class SessionLog:
    """Logs what happens to sessions.

    Attributes:
        begun: the number of sessions since the start.
    """

    def __init__(self, failures: Failures, clock: Clock) -> None:
        self.begun = 0
        self._failures = failures
        self._clock = clock
        self._complaints = RateLimitedLog(_LOG)

    def began(self, client: Client) -> None:
        """Note that a session began."""
        self.begun += 1
        _LOG.info("%s began", client.label, extra=client.facts)

    def ended(self, client: Client, reason: str, failure: str, figures: SessionFigures) -> None:
        """Note that a session ended; `failure` is the code of what failed, if something did."""
        facts = {"bytes": figures.totals.sent_bytes, "code": failure, **client.facts}
        _LOG.info("%s ended: %s", client.label, reason, extra=facts)
        if failure not in _ORDERLY:
            self._failures.add(client.failed(failure, reason))

    def failed(self, client: Client, error: EmlioError) -> None:
        """Note that a session's stream failed."""
        _LOG.error("%s: %s", client.label, error, extra=client.facts)
        self._failures.add(client.failed("stream", str(error)))

    def refused(self, caller: Caller, code: str, text: str) -> None:
        """Note that a loader got no session."""
        facts = {"code": code, **caller.facts}
        self._complaints.add(f"{caller} was refused: {text}", self._clock.monotonic_ns(), facts=facts)
        self._failures.add(refusal_of(caller, code, text))

    def invalid(self, received: Received, client: Client | None, error: EmlioError) -> None:
        """Note a message that cannot be read."""
        who = client.label if client else f"an unknown client at {received.address}"
        facts = client.facts if client else {"address": received.address}
        text = f"invalid control message from {who}: {error}"
        self._complaints.add(text, self._clock.monotonic_ns(), facts=facts)
        if client is None:  # a session ends by it, which is noted then
            self._failures.add(Failure(kind="protocol", text=text), outside=True)

    def draining(self, sessions: int) -> None:
        """Note that the daemon begins to end."""
        _LOG.info("draining %s, accepting no new ones", counted(sessions, "session"), extra={"sessions": sessions})

    def stood_still(self, late_ns: int) -> None:
        """Note that this process did nothing for a while: what ranks said meanwhile was not heard."""
        text = f"this process stood still for {format_duration(late_ns)} or longer: it was stopped, had no memory or no processor"
        _LOG.warning("%s", text)
        self._failures.add(Failure(kind="stood-still", text=text))

    def closed(self, served: ServedDataset) -> None:
        """Note that a generation was closed."""
        name, place = served.dataset.name, served.dataset.place
        _LOG.info("dataset %s at %s: closed, no job reads it any more", name, place, extra={"dataset": name})
