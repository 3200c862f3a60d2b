"""When a device worked on the user's steps, by the device's own events.

Covers: marks at both ends of each step, reading them without waiting, a device's moments by the host's clock. Does not cover:
making events (emlio.receiver.torch_adapter), host time (emlio.receiver.energy_notes).

A host runs ahead of a device: it asks for the next batch while the device has steps to do, so its own clock would call that time
waiting. An event is noted by the device when it gets there. Within an epoch nothing waits for the device; at its two edges
everything does, once.
"""

from collections import deque
from typing import Protocol

from emlio.clock import Clock

__all__ = ["DeviceEvent", "DeviceEvents", "DeviceSteps"]

_LOOKS = 4
"""Steps looked at for each that begins, so that no more wait than the device lies behind."""

_LEAST_FOR_DRIFT_MS = 1000.0
"""In less, what two readings of the host's clock are late would be taken for the drift of the device's."""


class DeviceEvent(Protocol):
    """As `torch.cuda.Event` made with `enable_timing=True`."""

    def query(self) -> bool:
        """Whether the device got there."""
        ...

    def synchronize(self) -> None:
        """Wait until it has."""
        ...

    def elapsed_time(self, end_event: "DeviceEvent", /) -> float:
        """Milliseconds from this event to another; both must have been reached."""
        ...


class DeviceEvents(Protocol):
    """Makes the events of a device.

    Attributes:
        name: of the device, such as "cuda:0".
    """

    name: str

    def mark(self, used: DeviceEvent | None) -> DeviceEvent:
        """An event behind what the user's thread has given the device to do so far; `used` again if one is given."""
        ...


class DeviceSteps:
    """The steps of one epoch at a time. Used by the user's thread."""

    def __init__(self, events: DeviceEvents, clock: Clock) -> None:
        """Nothing marked yet."""
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
        """An epoch begins. Waits until the device has nothing left to do."""
        self._begun = None
        self._waiting.clear()
        self._found_ms = []
        self._anchor, self._anchor_ns = self._pair()

    def _pair(self) -> tuple[DeviceEvent, int]:
        """An event and the moment of the host's clock at which it was reached."""
        self._mark().synchronize()
        before_ns = self._clock.monotonic_ns()
        event = self._mark()
        event.synchronize()
        return event, (before_ns + self._clock.monotonic_ns()) // 2

    def _mark(self) -> DeviceEvent:
        return self._events.mark(self._free.pop() if self._free else None)

    def handed(self) -> None:
        """A batch was handed out: a step begins."""
        self._begun = self._mark()

    def asked(self) -> None:
        """The next one is asked for: all of the step has been given to the device."""
        begun, self._begun = self._begun, None
        if begun is None:
            return
        self._waiting.append((begun, self._mark()))
        for _ in range(_LOOKS):
            if not self._waiting or not self._waiting[0][1].query():
                return
            self._read()

    def _read(self) -> None:
        """Take in the first step of those that wait; it is over."""
        begun, ended = self._waiting.popleft()
        if self._anchor is not None:
            self._found_ms.append((self._anchor.elapsed_time(begun), self._anchor.elapsed_time(ended)))
        self._free += (begun, ended)

    def end(self) -> list[tuple[int, int]]:
        """The epoch is over. Waits until the device has nothing left to do; returns its steps by the host's clock, in ns."""
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
