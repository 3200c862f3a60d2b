"""An energy counter, and a candidate for recording: whether it can be read, and what to do if not."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from emlio.energy.values.device import Device, Domain, Method
from emlio.errors import ConfigError

__all__ = ["EnergyCounter", "Finding", "State"]


class EnergyCounter(Protocol):
    """A device that is read.

    One thread owns it. The code that opened it closes it, which releases descriptors and vendor
    libraries. Closing again does nothing.
    """

    @property
    def device(self) -> Device:
        """The description of the device; it never changes."""
        ...

    def read(self) -> int | None:
        """Return cumulative microjoules; None where the device is unreadable now.

        The value is raw: it may wrap at the device's range, or start at 0 again. A power sensor is
        integrated from reading to reading, so it should be read often; None then means that a
        period is missing from its total.
        """
        ...

    def close(self) -> None:
        """Release all resources."""
        ...


class State(StrEnum):
    """The state of a candidate."""

    UNTRIED = "untried"
    """It exists and has not been read yet."""
    LIVE = "live"
    """It moved while a core was kept busy. It will be recorded."""
    DEAD = "dead"
    """It exists but does not move, or cannot be read at all. It is treated as absent."""
    NO_PERMISSION = "no-permission"
    ABSENT = "absent"
    DUPLICATE = "duplicate"
    """Another recorded device counts the same energy."""
    CONTAINED = "contained"
    """It is part of another device, or it is unknown what it covers. Not recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A candidate.

    Attributes:
        source: as in `emlio.energy.values.device.SOURCES`.
        name: the device's name where it is one.
        state: of the candidate.
        detail: why, or what to do; may be empty.
        domain: of the energy; None where a whole source is absent.
        method: how its figures are obtained; None where there can be none.
        device: recorded under this description; None for what cannot be recorded.
        remedy: what to do if permission to read it is missing.
        open: opens `device`; raises OSError where that is impossible.
    """

    source: str
    name: str
    state: State
    detail: str = ""
    domain: Domain | None = None
    method: Method | None = None
    device: Device | None = None
    remedy: str = ""
    open: Callable[[], EnergyCounter] | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.state in (State.UNTRIED, State.LIVE) and (self.device is None or self.open is None):
            raise ConfigError(f"{self.name} is {self.state} and must be a device that can be opened")

    def opened(self) -> EnergyCounter:
        """Open the candidate.

        Raises:
            ConfigError: the candidate cannot be opened.
            OSError: it cannot be opened now.
        """
        if self.open is None:
            raise ConfigError(f"{self.name} is {self.state}, so it cannot be opened")
        return self.open()

    @classmethod
    def untried(cls, device: Device, opener: Callable[[], EnergyCounter], *, remedy: str) -> "Finding":
        """Return a candidate for an existing device; the device's note is the detail."""
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
        """Return a finding for a whole source that does not exist."""
        return cls(source=source, name="-", state=State.ABSENT, detail=detail)
