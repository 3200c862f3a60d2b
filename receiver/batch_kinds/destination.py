"""The place that batches go to: this host's memory, or a CUDA device.

Covers: both places. Does not cover: copying (emlio.receiver.torch_adapter).
"""

from typing import Any

import msgspec

from emlio.receiver.batches.prefetch import MadeBatch
from emlio.receiver.torch_adapter import DeviceMover

__all__ = ["Destination", "Device"]


class Destination:
    """The place that batches go to: this process's memory, where nothing is to be done.

    Attributes:
        ahead: the number of batches that are made before the user asks, for a copy to have time.
    """

    ahead = 0

    def start(self, value: Any) -> Any:
        """Begin to bring a value there; called by the thread that made it."""
        return value

    def arrived(self, made: MadeBatch) -> MadeBatch:
        """Return a batch whose value was started, with the value there; called by the user's thread."""
        return made

    def brought(self, made: MadeBatch) -> MadeBatch:
        """Return a batch whose value was not started, with the value there; likewise."""
        return made


class Device(Destination):
    """A CUDA device."""

    ahead = 2

    def __init__(self, name: str) -> None:
        """Use this device; raise `ConfigError` if it is not there."""
        self._mover = DeviceMover(name)

    def start(self, value: Any) -> Any:
        """See `Destination`."""
        return self._mover.start(value)

    def arrived(self, made: MadeBatch) -> MadeBatch:
        """See `Destination`."""
        return msgspec.structs.replace(made, value=self._mover.finish(made.value))

    def brought(self, made: MadeBatch) -> MadeBatch:
        """See `Destination`."""
        return self.arrived(msgspec.structs.replace(made, value=self._mover.start(made.value)))
