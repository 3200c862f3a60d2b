"""One device whose energy is counted, with the domain and the method of its figures."""

from dataclasses import dataclass
from enum import StrEnum

from emlio.errors import ConfigError

__all__ = ["SOURCES", "Device", "Domain", "Method"]


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


SOURCES = frozenset({"powercap", "perf", "nvml", "hwmon", "host-export", "model"})
"""The possible sources of a device's energy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A device's description, stored with its readings.

    Attributes:
        name: unique on the node, such as "package-0", "dram-0", "GPU-<uuid>".
        domain: the part of the node.
        source: one of `SOURCES`.
        method: how its figures are obtained.
        range_uj: the counter's modulus: its highest value plus 1. None where it does not wrap.
        most_watts: more than it can ever draw, for detecting glitches. None where it is unknown.
        rated_watts: its long-term rated power, for judging means. None where it is unknown.
        error: relative error of an estimate, such as 0.5; None for what was not estimated.
        note: what a reader of its figures must know; may be empty.
        adds: whether it belongs in a total. False if it contains other devices.
    """

    name: str
    domain: Domain
    source: str
    method: Method
    range_uj: int | None = None
    most_watts: float | None = None
    rated_watts: float | None = None
    error: float | None = None
    note: str = ""
    adds: bool = True

    def __post_init__(self) -> None:
        if not self.name or not self.name.isprintable():
            raise ConfigError(f"a device's name must be printable and not empty, got {self.name!r}")
        if not self.note.isprintable():
            raise ConfigError(f"the note of {self.name} must be printable, got {self.note!r}")
        if self.source not in SOURCES:
            raise ConfigError(f"the source of {self.name} must be one of {sorted(SOURCES)}, got {self.source!r}")
        if self.range_uj is not None and self.range_uj < 2:
            raise ConfigError(f"the range of {self.name} must be at least 2 µJ, got {self.range_uj}")
        for what, watts in (("most_watts", self.most_watts), ("rated_watts", self.rated_watts)):
            if watts is not None and not 0 < watts < float("inf"):
                raise ConfigError(f"{what} of {self.name} must be above 0, got {watts}")
        if (self.error is None) is (self.method is Method.ESTIMATED):
            raise ConfigError(
                f"only an estimate must have an error, {self.name} is {self.method} with error {self.error}"
            )
        if self.error is not None and not 0 < self.error < float("inf"):
            raise ConfigError(f"the error of {self.name} must be above 0, got {self.error}")
        if self.adds and self.domain is Domain.BOARD:
            raise ConfigError(f"{self.name} contains other devices, so it must not be added to them")
