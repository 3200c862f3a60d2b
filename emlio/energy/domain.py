"""What a figure is about, and how it came to be.

Covers: the two words that every figure carries. Does not cover: which device has which (emlio.energy.device).
"""

from enum import StrEnum

__all__ = ["Domain", "Method"]


class Domain(StrEnum):
    """The part of a node that used the energy."""

    CPU = "cpu"
    DRAM = "dram"
    GPU = "gpu"
    BOARD = "board"
    """A whole board or platform, which contains others: shown, never added."""


class Method(StrEnum):
    """How a figure came to be."""

    MEASURED = "measured"
    """A counter of energy was read."""
    DERIVED = "derived"
    """A sensor of power was read, and integrated here."""
    ESTIMATED = "estimated"
    """A model made it of something else. Not for claims across machines."""
