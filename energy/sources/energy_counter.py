"""The interface between energy counters and the recorder."""

from typing import Protocol

from emlio.energy.values.device import Device

__all__ = ["EnergyCounter"]


class EnergyCounter(Protocol):
    """Some devices that are read together.

    One thread owns it. The code that opened it closes it, which releases descriptors and vendor
    libraries. Closing again does nothing.
    """

    @property
    def devices(self) -> tuple[Device, ...]:
        """The devices; they never change."""
        ...

    def read(self) -> tuple[int | None, ...]:
        """Return cumulative microjoules of each device, in order.

        None where a device is unreadable now.

        The values are raw: they may wrap at the device's range, or start at 0 again. A power sensor
        is integrated from reading to reading, so it should be read often; None then means that a
        period is missing from its total.
        """
        ...

    def close(self) -> None:
        """Release all resources."""
        ...
