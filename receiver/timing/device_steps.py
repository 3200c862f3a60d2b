"""The times at which a device worked on the user's steps, by the device's own events.

A host runs ahead of a device: it requests the next batch while the device still has steps to do, so
the host's clock would count that time as waiting. The device records an event when it reaches it.
Within an epoch nothing waits for the device; at its two edges everything does, once.

Covers: marks at both ends of each step, reading them without waiting, converting device times to
the host's clock. Does not cover: making events (emlio.receiver.torch_adapter), host time
(emlio.receiver.timing.epoch_notes).
"""

from collections import deque
from typing import Protocol

from emlio.clock import Clock

__all__ = ["DeviceEvent", "DeviceEvents", "DeviceSteps"]

_LOOKS = 4
"""Steps checked for each new one, so that no more are waiting than the device lags behind."""

_LEAST_FOR_DRIFT_MS = 1000.0
"""Over a shorter time, the delays of two clock reads on the host would be taken for drift of the
device's clock."""


class DeviceEvent(Protocol):
    """An event like `torch.cuda.Event` made with `enable_timing=True`."""

    def query(self) -> bool:
        """Return whether the device has reached it."""
        ...

    def synchronize(self) -> None:
        """Wait until the device has reached it."""
        ...

    def elapsed_time(self, end_event: "DeviceEvent", /) -> float:
        """Return the milliseconds from this event to another; both must have been reached."""
        ...


class DeviceEvents(Protocol):
    """Makes the events of a device.

    Attributes:
        name: the device's name, such as "cuda:0".
    """

    name: str

    def mark(self, used: DeviceEvent | None) -> DeviceEvent:
        """Return an event behind the work given to the device so far; `used` is reused if given."""
        ...


class DeviceSteps:
    """The steps of one epoch at a time. Used by the user's thread."""

    def __init__(self, events: DeviceEvents, clock: Clock) -> None:
        """Begin without marks."""
        self.name = events.name
        self._events = events
        self._clock = clock
        self._free: list[DeviceEvent] = []
        self._anchor: DeviceEvent | None = None
        self._anchor_ns = 0
        self._begun: DeviceEvent | None = None
        self._waiting: deque[tuple[DeviceEvent, DeviceEvent]] = deque()
        self._found_ms: list[tuple[float, float]] = []

    def begin(self) -> None:
        """Begin an epoch. Waits until the device is idle."""
        self._begun = None
        self._waiting.clear()
        self._found_ms = []
        self._anchor, self._anchor_ns = self._pair()

    def _pair(self) -> tuple[DeviceEvent, int]:
        """Return an event and the time of the host's clock at which it was reached."""
        self._mark().synchronize()
        before_ns = self._clock.monotonic_ns()
        event = self._mark()
        event.synchronize()
        return event, (before_ns + self._clock.monotonic_ns()) // 2

    def _mark(self) -> DeviceEvent:
        return self._events.mark(self._free.pop() if self._free else None)

    def handed(self) -> None:
        """Mark the begin of a step: a batch was handed out."""
        self._begun = self._mark()

    def asked(self) -> None:
        """Mark the end of a step: the next batch is requested.

        All work of the step has been given to the device.
        """
        begun, self._begun = self._begun, None
        if begun is None:
            return
        self._waiting.append((begun, self._mark()))
        for _ in range(_LOOKS):
            if not self._waiting or not self._waiting[0][1].query():
                return
            self._read()

    def _read(self) -> None:
        """Read the times of the first waiting step, which is over."""
        begun, ended = self._waiting.popleft()
        if self._anchor is not None:
            self._found_ms.append((self._anchor.elapsed_time(begun), self._anchor.elapsed_time(ended)))
        self._free += (begun, ended)

    def end(self) -> list[tuple[int, int]]:
        """End the epoch; return its steps by the host's clock, in ns.

        Waits until the device is idle.
        """
        self.asked()
        anchor = self._anchor
        if anchor is None:
            return []
        last, last_ns = self._pair()
        while self._waiting:
            self._read()
        length_ms = anchor.elapsed_time(last)
        ns_a_ms = (last_ns - self._anchor_ns) / length_ms if length_ms >= _LEAST_FOR_DRIFT_MS else 1e6
        self._free += (anchor, last)
        self._anchor = None
        return [
            (self._anchor_ns + round(begun * ns_a_ms), self._anchor_ns + round(ended * ns_a_ms))
            for begun, ended in self._found_ms
        ]
