"""The live page of a daemon: what it serves, to whom, who waits for whom, and the rates of the last ten minutes.

Covers: the page, its document, the rates that are kept. Does not cover: asking the control thread.
"""

from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.resources import files
from typing import Final

import msgspec

from emlio.clock import Clock
from emlio.metrics.server import Page
from emlio.status.blame import blame_document, jobs_of
from emlio.status.document import status_document
from emlio.status.figures import figures_between
from emlio.wire.control import StatusReply

__all__ = ["LivePage"]

_EVERY_NS: Final = 5_000_000_000
_KEPT: Final = 120
_SHOWN: Final = 32
"""Datasets that rates are kept of: those of which most was sent."""

_ANSWER_NS: Final = 500_000_000
"""The daemon is asked so often at most, whatever the number of those that look at the page."""

_POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src data:"
)


class LivePage:
    """Answers with the page and its document. Used by one thread at a time."""

    def __init__(self, ask: Callable[[], StatusReply | None], clock: Clock) -> None:
        """Begin without rates; `ask` returns the daemon's status, None if it does not answer."""
        self._ask = ask
        self._clock = clock
        self._replies: deque[StatusReply] = deque(maxlen=2)
        self._history: deque[tuple[float, dict[str, int]]] = deque(maxlen=_KEPT)
        self._asked_ns = self._kept_ns = -_EVERY_NS
        self._text = ""

    def is_due(self) -> bool:
        """Return whether it is time for `tick`."""
        return self._clock.monotonic_ns() - self._kept_ns >= _EVERY_NS

    def tick(self) -> None:
        """Keep the totals of now, if it is time. A daemon that does not answer is not waited for again soon."""
        if self.is_due():
            self._keep(self._ask())

    def _keep(self, reply: StatusReply | None) -> None:
        self._kept_ns = self._clock.monotonic_ns()
        if reply is None:
            return
        sent: dict[str, int] = {}
        for one in reply.datasets:  # its bytes are those of all generations
            sent[one.name] = max(sent.get(one.name, 0), one.sent_bytes)
        most = sorted(sent, key=lambda name: -sent[name])[:_SHOWN]
        self._history.append((reply.up_ns / 1e9, {name: sent[name] for name in most}))

    def page(self) -> Page:
        """Return the page."""
        text = files("emlio.daemon.metrics").joinpath("page.html").read_text(encoding="utf-8")
        return Page(text=text, kind="text/html", headers=(("Content-Security-Policy", _POLICY),))

    def answer(self) -> Page:
        """Return its document as JSON."""
        now_ns = self._clock.monotonic_ns()
        if now_ns - self._asked_ns >= _ANSWER_NS:
            self._asked_ns = now_ns
            self._text = self._made()
        if not self._text:
            return Page(status="503 Service Unavailable", text='{"daemons": []}\n', kind="application/json")
        return Page(text=self._text, kind="application/json", headers=(("Cache-Control", "no-store"),))

    def _made(self) -> str:
        """Return the document of now; "" if the daemon does not answer."""
        reply = self._ask()
        if reply is None:
            return ""
        if self.is_due():
            self._keep(reply)
        before = self._replies[0] if self._replies else None
        self._replies.append(reply)
        found = [(reply.daemon, figures_between(before, reply))]
        document = {
            **status_document(found, datetime.now(UTC)),
            "blames": [blame_document(job) for job in jobs_of(found)],
            "history": [{"up_s": up_s, "sent_bytes": sent} for up_s, sent in self._history],
        }
        return msgspec.json.encode(document).decode() + "\n"
