"""A progress bar for long work, on a terminal or in a notebook.

Covers: one bar on one line, or one place in a cell's output. Does not cover: logs.
"""

import sys
import time
from html import escape
from types import TracebackType
from typing import Self, TextIO

from emlio.notebook import Markup, Place, begin_place
from emlio.units import format_duration, format_size

__all__ = ["Progress"]

_REDRAW_S = 0.1
_REDRAW_IN_NOTEBOOK_S = 0.3
"""Each drawing is a message to the browser."""

_WIDTH = 28


class Progress:
    """A count towards a total, or towards an unknown end.

    It is drawn on a terminal or in a notebook, and nowhere else.

    It has one owner; `close` (or `with`) ends the line. Calls from several threads may lose a
    redraw, but never a count that matters.
    """

    def __init__(self, label: str, total: int | None, *, in_bytes: bool = False, stream: TextIO | None = None) -> None:
        self._label = label
        self._total = None if total is None else max(total, 1)
        self._in_bytes = in_bytes
        self._stream = stream if stream is not None else sys.stderr
        self._on_terminal = self._stream.isatty()
        self._shown = self._on_terminal or self._stream is sys.stderr
        self._place: Place | None = None
        self._redraw_s = _REDRAW_S if self._on_terminal else _REDRAW_IN_NOTEBOOK_S
        self._done = 0
        self._started = time.monotonic()
        self._drawn = 0.0

    def add(self, amount: int) -> None:
        """Add `amount` to what is done."""
        self._done += amount
        now = time.monotonic()
        if self._shown and now - self._drawn >= self._redraw_s:
            self._drawn = now
            self._draw(now)

    def _draw(self, now: float) -> None:
        seconds = max(now - self._started, 1e-9)
        amount = format_size(self._done) if self._in_bytes else f"{self._done:,}"
        rate = format_size(self._done / seconds) if self._in_bytes else f"{self._done / seconds:,.0f}"
        if self._total is None:
            self._show("", f"{amount}  {rate}/s  {format_duration(seconds * 1e9)}", None)
            return
        share = min(self._done / self._total, 1.0)
        filled = round(share * _WIDTH)
        left = format_duration((seconds / share - seconds) * 1e9) if 0 < share < 1 else format_duration(seconds * 1e9)
        bar = "█" * filled + "·" * (_WIDTH - filled)
        self._show(f" {bar} {share:4.0%}", f"{amount}  {rate}/s  {left}", share)

    def _show(self, bar: str, figures: str, share: float | None) -> None:
        text = f"{self._label}{bar}  {figures}"
        if self._on_terminal:
            self._stream.write(f"\r\x1b[K{text}")
            self._stream.flush()
            return
        filled = "" if share is None else f'<progress max="1" value="{share:.3f}"></progress> {share:.0%} '
        markup = Markup(f"<div>{escape(self._label)} {filled}{escape(figures)}</div>", text)
        if self._place is not None:
            self._place.update(markup)
        else:
            self._place = begin_place(markup)
            self._shown = self._place is not None  # neither a terminal nor a notebook

    def close(self) -> None:
        """Draw the last state and end the line. Closing again does nothing."""
        if self._shown:
            self._draw(time.monotonic())
            if self._on_terminal:
                self._stream.write("\n")
                self._stream.flush()
            self._shown = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
