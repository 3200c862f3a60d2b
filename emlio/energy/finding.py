"""What was found of a counter: what it would be, whether it can be read, what to do.

Covers: one row of the table that `emlio energy probe` prints, and how to open what it speaks of. Does not cover:
finding (one file for each kind of source), judging (emlio.energy.probe).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from emlio.energy.device import Device
from emlio.energy.domain import Domain, Method
from emlio.energy.source import Source
from emlio.errors import ConfigError

__all__ = ["Finding", "State"]


class State(StrEnum):
    """What became of a candidate."""

    UNTRIED = "untried"
    """It is there; nobody has read it yet."""
    LIVE = "live"
    """It moved while a core was kept busy: it will be recorded."""
    DEAD = "dead"
    """It is there and does not move, or cannot be read at all. As good as absent."""
    NO_PERMISSION = "no-permission"
    ABSENT = "absent"
    DUPLICATE = "duplicate"
    """Something else that is recorded counts the same."""
    CONTAINED = "contained"
    """A part of something else, or nothing that is known. Not recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A candidate.

    Attributes:
        source: as in `emlio.energy.device.SOURCES`.
        name: what it is called; a device's name where it is one.
        state: what became of it.
        detail: why, or what to do; may be empty.
        domain: what it is about; None where a whole source is absent.
        method: how its figures come to be; None where there can be none.
        device: what it would be recorded as; None for what cannot be recorded.
        remedy: what to do if reading it is not permitted.
        open: makes a source of `device` alone; raises OSError where that cannot be.
    """

    source: str
    name: str
    state: State
    detail: str = ""
    domain: Domain | None = None
    method: Method | None = None
    device: Device | None = None
    remedy: str = ""
    open: Callable[[], Source] | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.state in (State.UNTRIED, State.LIVE) and (self.device is None or self.open is None):
            raise ConfigError(f"{self.name} is {self.state}, so it must be a device that can be opened")

    def opened(self) -> Source:
        """A source of it.

        Raises:
            ConfigError: it is nothing that can be opened.
            OSError: it cannot be opened now.
        """
        if self.open is None:
            raise ConfigError(f"{self.name} is {self.state}, so it cannot be opened")
        return self.open()

    @classmethod
    def untried(cls, device: Device, opener: Callable[[], Source], *, remedy: str) -> "Finding":
        """A device that is there; its note is the detail."""
        return cls(
            source=device.source,
            name=device.name,
            state=State.UNTRIED,
            detail=device.note,
            domain=device.domain,
            method=device.method,
            device=device,
            remedy=remedy,
            open=opener,
        )

    @classmethod
    def absent(cls, source: str, detail: str) -> "Finding":
        """A whole source that is not there."""
        return cls(source=source, name="-", state=State.ABSENT, detail=detail)
