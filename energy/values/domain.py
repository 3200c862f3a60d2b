"""The domain and the method of an energy figure."""

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
    """The method by which a figure was obtained."""

    MEASURED = "measured"
    """An energy counter was read."""
    DERIVED = "derived"
    """A power sensor was read, and its values were integrated here."""
    ESTIMATED = "estimated"
    """A model computed it from other quantities. Not for comparisons across machines."""
