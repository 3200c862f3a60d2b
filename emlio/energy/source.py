"""The seam between what counts energy and what records it.

Covers: the contract. Does not cover: its makers, one file each; what a reading means (emlio.energy.counter).
"""

from typing import Protocol

from emlio.energy.device import Device

__all__ = ["Source"]


class Source(Protocol):
    """Some devices that are read together.

    One thread owns it. Whoever opened it closes it; what it holds (descriptors, a vendor's library) is free afterwards, and
    closing again does nothing.
    """

    @property
    def devices(self) -> tuple[Device, ...]:
        """What it reads; the same for all its life."""
        ...

    def read(self) -> tuple[int | None, ...]:
        """Cumulative microjoules since some moment, one for each device and in their order; None where unreadable now.

        They are raw: they may wrap at the device's range, or start anew. A sensor of power is integrated inside, from reading to
        reading, so it wants to be read often; None then means that a stretch of time is missing from its count.
        """
        ...

    def close(self) -> None:
        """Free what it holds."""
        ...
