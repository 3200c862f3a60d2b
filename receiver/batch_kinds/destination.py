"""The place that batches go to: this host's memory, or a CUDA device.

Covers: both places. Does not cover: copying (emlio.receiver.torch_adapter).
"""

from dataclasses import replace
from typing import Any, Protocol

from emlio.receiver.batches.prefetch import MadeBatch
from emlio.receiver.torch_adapter import DeviceMover

__all__ = ["Destination", "Device", "Host"]


class Destination(Protocol):
    """The place that batches go to."""

    @property
    def ahead(self) -> int:
        """The number of batches that are made before the user asks, for the copy to have time."""
        ...

    def start(self, value: Any) -> Any:
        """Begin to bring a value there; called by the thread that made it."""
        ...

    def arrived(self, made: MadeBatch) -> MadeBatch:
        """Return a batch whose value was started, with the value there; called by the user's thread."""
        ...

    def brought(self, made: MadeBatch) -> MadeBatch:
        """Return a batch whose value was not started, with the value there; likewise."""
        ...


class Host:
    """The memory of this process. See `Destination`."""

    ahead = 0

    def start(self, value: Any) -> Any:
        """See `Destination`."""
        return value

    def arrived(self, made: MadeBatch) -> MadeBatch:
        """See `Destination`."""
        return made

    def brought(self, made: MadeBatch) -> MadeBatch:
        """See `Destination`."""
        return made


class Device:
    """A CUDA device. See `Destination`."""

    ahead = 2

    def __init__(self, name: str) -> None:
        """Use this device; raise `ConfigError` if it is not there."""
        self._mover = DeviceMover(name)

    def start(self, value: Any) -> Any:
        """See `Destination`."""
        return self._mover.start(value)

    def arrived(self, made: MadeBatch) -> MadeBatch:
        """See `Destination`."""
        return replace(made, value=self._mover.finish(made.value))

    def brought(self, made: MadeBatch) -> MadeBatch:
        """See `Destination`."""
        return self.arrived(replace(made, value=self._mover.start(made.value)))
