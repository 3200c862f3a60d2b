"""Reading of all counters of a node in one pass."""

from collections.abc import Callable, Sequence
from dataclasses import asdict

from emlio.clock import Clock
from emlio.energy.recording.node_use import NodeUse
from emlio.energy.sources.finding import EnergyCounter
from emlio.energy.values.counter import Counter, Event
from emlio.energy.values.device import Device
from emlio.energy.values.reading import Reading

__all__ = ["Meter"]


class Meter:
    """A maker of readings. One thread owns it; its caller owns the sources."""

    def __init__(
        self,
        sources: Sequence[EnergyCounter],
        *,
        clock: Clock,
        real_ns: Callable[[], int],
        use: Callable[[], NodeUse],
    ) -> None:
        """Create a meter without readings.

        Args:
            sources: read in this order.
            clock: the node's monotonic clock.
            real_ns: returns the time of day.
            use: returns the node's processor, network and memory use.
        """
        self.devices: tuple[Device, ...] = tuple(source.device for source in sources)
        self._sources = tuple(sources)
        self._clock = clock
        self._real_ns = real_ns
        self._use = use
        self._counters = [Counter(range_uj=one.range_uj, most_watts=one.most_watts) for one in self.devices]
        self._readings = 0
        self._last_ns = 0

    def read(self, *, missed: int = 0, edge: bool = False) -> Reading:
        """Read everything now. The arguments go into the reading."""
        before_ns = self._clock.monotonic_ns()
        raws = [source.read() for source in self._sources]
        after_ns = self._clock.monotonic_ns()
        real_ns = self._real_ns() - (after_ns - before_ns) // 2
        at_ns = max((before_ns + after_ns) // 2, self._last_ns + 1)  # readings never share a time stamp
        steps = [counter.step(raw, at_ns) for counter, raw in zip(self._counters, raws, strict=True)]
        events = tuple(step.event for step in steps)
        reading = Reading(
            seq=self._readings,
            mono_ns=at_ns,
            real_ns=real_ns,
            spread_ns=after_ns - before_ns,
            totals=tuple(None if raw is None else step.total_uj for raw, step in zip(raws, steps, strict=True)),
            events=events if any(event is not Event.NONE for event in events) else (),
            missed=missed,
            edge=edge,
            **asdict(self._use()),
        )
        self._readings += 1
        self._last_ns = at_ns
        return reading
