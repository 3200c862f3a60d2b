"""The colours of plots: a subject has the same colour in all of them.

Covers: subjects, text, grid. Does not cover: drawing (emlio_bench.harness.plot).
"""

import zlib
from typing import Final

__all__ = ["GRID", "INK", "MUTED", "PAPER", "colour"]

INK: Final = "#333333"
MUTED: Final = "#767676"
GRID: Final = "#e4e4e4"
PAPER: Final = "#ffffff"

_COLOURS: Final = {
    "emlio": "#1f77c4",
    "emlio-local": "#7cb3d9",
    "paper": "#9aa3b0",
    "dali-file": "#d0743c",
    "dali-tfrecord": "#e0a458",
    "pytorch-files": "#b0566b",
    "litdata": "#8f79b8",
    "mosaic": "#3f9b68",
    "mosaic-stratified": "#c2703d",
    "webdataset": "#b3912a",
}
_OTHERS: Final = ("#5aa9a0", "#a8785a", "#7a9e3f", "#c77fa5", "#6b7fa8", "#94714f")


def colour(subject: str) -> str:
    """Return the colour of a subject. Its name selects one if it has none of its own."""
    return _COLOURS.get(subject) or _OTHERS[zlib.crc32(subject.encode()) % len(_OTHERS)]
