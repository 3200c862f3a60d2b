"""Output in a Jupyter notebook: a place in the cell's output that can be drawn again.

IPython is never imported here: in a notebook it is loaded already.

Covers: whether this process is a notebook's kernel, showing HTML there, tables. Does not cover: the
contents (emlio.progress, emlio.receiver.stats).
"""

import sys
from collections.abc import Callable, Iterable
from html import escape
from typing import Any, Protocol

__all__ = ["Markup", "Place", "begin_place", "table"]


class Markup:
    """HTML, and the text for a front end that shows no HTML."""

    def __init__(self, html: str, text: str) -> None:
        """See the class."""
        self._html = html
        self._text = text

    def _repr_html_(self) -> str:
        return self._html

    def __repr__(self) -> str:
        return self._text


class Place(Protocol):
    """A place in a cell's output."""

    def update(self, markup: Markup) -> None:
        """Show this instead of what is there."""
        ...


def begin_place(markup: Markup) -> Place | None:
    """Show this below the running cell; return its place, or None if this process is no kernel."""
    ipython: Any = sys.modules.get("IPython")
    shown: Any = sys.modules.get("IPython.display")
    find: Callable[[], Any] | None = getattr(ipython, "get_ipython", None)
    shell: Any = find() if find is not None else None
    if shown is None or getattr(shell, "kernel", None) is None:
        return None  # no IPython, or IPython in a terminal, which shows text
    place: Place | None = shown.display(markup, display_id=True)
    return place


def table(title: str, rows: Iterable[tuple[str, str]]) -> str:
    """Return an HTML table of names and values, with a title above it; all of them are escaped."""
    body = "".join(
        f'<tr><td style="text-align:left">{escape(name)}</td><td style="text-align:left">{escape(value)}</td></tr>'
        for name, value in rows
    )
    return f"<table><caption>{escape(title)}</caption><tbody>{body}</tbody></table>"
