"""Drawing: figures, one style, and their forms for a file and for a page.

Covers: a figure and its file; a picture for a desktop and for a phone, as svg elements of a page and
as PNG; axes, labels and titles as all plots have them. matplotlib is imported in this module only,
and only when a plot is requested. Does not cover: the contents of a plot, colours
(emlio_bench.harness.palette).
"""

import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from importlib import import_module
from io import BytesIO, StringIO
from math import log10
from pathlib import Path
from textwrap import wrap
from typing import Any, Final

from emlio.errors import ConfigError
from emlio_bench.harness.page import Picture
from emlio_bench.harness.palette import GRID, INK

__all__ = [
    "NARROW",
    "WIDE",
    "Drawing",
    "Sheet",
    "blank_figure",
    "dress",
    "plain_logarithms",
    "png_bytes",
    "sheet",
    "svg_text",
]

_FEW_DECADES: Final = 2.6
_NARROW_LETTERS: Final = 38
"""The letters of a line of a narrow title."""
_LINE: Final = 0.17
"""The height of a line of the title, in inches."""
_ID: Final = re.compile(r'\b(id="|xlink:href="#|url\(#)')
_SIZE: Final = re.compile(r'<svg [^>]*?viewBox="([^"]+)"[^>]*>', re.DOTALL)
_FONT: Final = re.compile(r"font: ([^;\"]*?)'DejaVu Sans'[^;\"]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """The size of a plot for one kind of reader.

    Attributes:
        width: width in inches. A phone shows a narrow plot without scaling.
        font: size of its words in points.
    """

    width: float
    font: float


WIDE: Final = Sheet(width=8.6, font=9.0)
NARROW: Final = Sheet(width=3.6, font=8.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """A plot that is not drawn yet.

    Attributes:
        name: name of its files.
        title: title; the part before ": " and the rest are lines of their own for a phone.
        where: circumstances, appended to the title; may be empty.
        caption: caption, after title and circumstances.
        draw: returns a matplotlib figure; its arguments are the sheet and the title.
    """

    name: str
    title: str
    where: str
    caption: str
    draw: Callable[[Sheet, str], Any]

    def on(self, chosen: Sheet) -> Any:
        """Draw the plot, and return the matplotlib figure."""
        if chosen is WIDE:
            return self.draw(chosen, self._named)
        head, _, rest = self.title.partition(": ")
        lines = [line for part in (head, rest, self.where) for line in wrap(part, _NARROW_LETTERS)]
        return self.draw(chosen, "\n".join(lines))

    @property
    def _named(self) -> str:
        return ": ".join(filter(None, (self.title, self.where)))

    def picture(self) -> Picture:
        """Draw the plot for a desktop and for a phone."""
        wide = self.on(WIDE)
        caption = f"{self._named}; {self.caption}"
        return Picture(
            name=self.name,
            caption=caption,
            wide=_element(wide, self.name, caption),
            narrow=_element(self.on(NARROW), f"{self.name}-narrow", caption),
            png=png_bytes(wide),
        )


def _element(figure: Any, name: str, caption: str) -> str:
    """Return an svg element that can be placed in a page beside other plots.

    It has unique ids, a size set by the page, and the reader's fonts.
    """
    said = _ID.sub(lambda match: f"{match[1]}{name}-", svg_text(figure, name))
    head = _SIZE.search(said)
    if head is None:
        return said
    _, _, width, height = head[1].split()
    fresh = (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="{head[1]}" '
        f'width="{float(width):g}pt" height="{float(height):g}pt" role="img" aria-label="{escape(caption)}">'
    )
    return _FONT.sub(r"font: \1sans-serif", said[: head.start()] + fresh + said[head.end() :])


@contextmanager
def sheet(path: Path, *, width: float, height: float, panels: int = 1) -> Generator[tuple[Any, Any], None, None]:
    """Provide a matplotlib figure and its axes, and write the figure to `path` when the block ends.

    Args:
        path: file of the plot.
        width: width in inches.
        height: height in inches.
        panels: number of panels, side by side; with more than one the axes are an array.
    """
    matplotlib: Any = import_module("matplotlib")
    matplotlib.use("Agg")
    pyplot: Any = import_module("matplotlib.pyplot")
    figure, axes = pyplot.subplots(1, panels, figsize=(width, height), dpi=150)
    try:
        yield figure, axes
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)
    except OSError as error:
        raise ConfigError(f"a picture must go where files can be written: {path}: {error.strerror or error}") from error
    finally:
        pyplot.close(figure)


def blank_figure(
    width: float, height: float, *, title: str = "", font: float = WIDE.font, panels: tuple[int, int] = (1, 1)
) -> tuple[Any, Any]:
    """Return a matplotlib figure and its axes. The caller need not close the figure.

    Args:
        width: width in inches.
        height: height in inches, to which each further line of the title adds.
        title: title at the top.
        font: size of words; that of the title is larger.
        panels: rows and columns of panels; with more than one panel the axes are an array.
    """
    height += _LINE * title.count("\n")
    figure = import_module("matplotlib.figure").Figure(figsize=(width, height), dpi=150)
    style = {"fontsize": font + 1.5, "color": INK, "fontweight": "bold"}
    figure.text(0.02, 1 - 0.06 / height, title, va="top", linespacing=1.25, **style)
    return figure, figure.subplots(*panels)


def dress(axes: Any, font: float = WIDE.font, *, grid: str = "both") -> None:
    """Style the axes: light lines, plain numbers, and colours that a page can change.

    Args:
        axes: matplotlib axes.
        font: size of the labels of ticks.
        grid: axes with lines: "x", "y" or "both".
    """
    axes.tick_params(axis="both", which="both", length=0, labelsize=font, colors=INK)
    for axis, scale in ((axes.xaxis, axes.get_xscale()), (axes.yaxis, axes.get_yscale())):
        axis.label.set(fontsize=font, color=INK)
        if scale == "log":
            plain_logarithms(axis)
    axes.grid(axis=grid, color=GRID, linewidth=0.8, zorder=0)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(GRID)


def plain_logarithms(axis: Any) -> None:
    """Label a logarithmic axis with plain numbers: three in a decade, or one over many decades."""
    ticker: Any = import_module("matplotlib.ticker")
    low, high = axis.get_view_interval()
    subs = (1, 2, 5) if log10(high / low) <= _FEW_DECADES else (1,)
    axis.set_major_locator(ticker.LogLocator(base=10, subs=subs, numticks=30))
    axis.set_minor_locator(ticker.NullLocator())
    axis.set_major_formatter(ticker.FuncFormatter(_plainly))


def _plainly(value: float, place: int | None) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


def svg_text(figure: Any, name: str) -> str:
    """Return the figure as an svg element, with its words as text.

    The same figure and name give the same text. A different name gives different ids.
    """
    written = StringIO()
    matplotlib: Any = import_module("matplotlib")
    with matplotlib.rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):
        figure.savefig(written, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = written.getvalue()
    return text[text.index("<svg") :].strip()


def png_bytes(figure: Any) -> bytes:
    """Return the figure as a PNG file."""
    written = BytesIO()
    figure.savefig(written, format="png")
    return written.getvalue()
