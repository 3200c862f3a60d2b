"""A loop that makes readings on a schedule and passes them on.

Covers: the loop, readings on request between scheduled ones, when readings are passed on. Does not
cover: waiting, files, sockets and signals; the caller supplies them.
"""

from collections import deque
from collections.abc import Callable, Sequence

from emlio.clock import Clock
from emlio.energy.recording.meter import Meter
from emlio.energy.recording.tally import Tally
from emlio.energy.values.reading import Reading
from emlio.errors import ConfigError

__all__ = ["Recorder", "Schedule"]

_HELD_NS = 1_000_000_000
"""The age at which a reading is passed on; a killed recorder loses at most this much."""

_MOST_EDGES_A_SECOND = 100
"""Limit of readings on request. Epochs and steps end a few times a second at most.

More frequent requests would only fill the disk.
"""


class Schedule:
    """The moments `start + k * interval`.

    A moment that is served late does not delay the next ones. Moments that passed meanwhile are
    missed.
    """

    def __init__(self, *, start_ns: int, interval_ns: int) -> None:
        """Start a schedule whose first moment is `start_ns`."""
        if interval_ns <= 0:
            raise ConfigError(f"the interval must be above 0, got {interval_ns} ns")
        self.interval_ns = interval_ns
        self._next_ns = start_ns

    @property
    def next_ns(self) -> int:
        """The next moment."""
        return self._next_ns

    def take(self, now_ns: int) -> int:
        """Serve the latest moment that has come, and advance to the one after it.

        Args:
            now_ns: not before `next_ns`.

        Returns:
            The number of moments before the served one that were missed.
        """
        late_ns = now_ns - self._next_ns
        if late_ns < 0:
            raise ConfigError(f"a reading must not be taken before its time, {-late_ns} ns too early")
        missed = late_ns // self.interval_ns
        self._next_ns += (missed + 1) * self.interval_ns
        return missed


class Recorder:
    """The loop. One thread runs it.

    Readings are requested from inside `wait`. Any thread or signal handler may end it.

    Attributes:
        last: the latest reading; None before the first.
        tally: of all readings so far.
    """

    def __init__(
        self,
        meter: Meter,
        schedule: Schedule,
        *,
        clock: Clock,
        wait: Callable[[int], None],
        keep: Callable[[Sequence[Reading]], None],
    ) -> None:
        """Create a recorder without readings.

        Args:
            meter: makes the readings.
            schedule: of the readings.
            clock: the schedule's clock.
            wait: returns when that moment has come, or earlier.
            keep: takes readings, each once and in order.
        """
        self.last: Reading | None = None
        self.tally = Tally(meter.devices)
        self._meter = meter
        self._schedule = schedule
        self._clock = clock
        self._wait = wait
        self._keep = keep
        self._held: list[Reading] = []
        self._edges_ns: deque[int] = deque(maxlen=_MOST_EDGES_A_SECOND)
        self._ending = False

    def run(self, until_ns: int | None = None) -> None:
        """Make a reading at each scheduled moment, and one at the end.

        Args:
            until_ns: when to end; None until `end` is called.
        """
        while not self._ending:
            now_ns = self._clock.monotonic_ns()
            if until_ns is not None and now_ns >= until_ns:
                break
            if now_ns >= self._schedule.next_ns:
                self._note(self._meter.read(missed=self._schedule.take(now_ns)))
                self._hand_on()
            next_ns = self._schedule.next_ns
            self._wait(next_ns if until_ns is None else min(next_ns, until_ns))
        self._note(self._meter.read(edge=True))
        self._hand_on(now=True)

    def end(self) -> None:
        """Make `run` return soon."""
        self._ending = True

    def edge(self) -> Reading | None:
        """Make a reading now, on request; None if there were too many requests."""
        now_ns = self._clock.monotonic_ns()
        if len(self._edges_ns) == _MOST_EDGES_A_SECOND and now_ns - self._edges_ns[0] < 1_000_000_000:
            return None
        self._edges_ns.append(now_ns)
        reading = self._meter.read(edge=True)
        self._note(reading)
        self._hand_on(now=True)
        return reading

    def _note(self, reading: Reading) -> None:
        self.last = reading
        self.tally.add(reading)
        self._held.append(reading)

    def _hand_on(self, *, now: bool = False) -> None:
        """Pass readings on if the next scheduled moment may be too late."""
        if self._held and (now or self._schedule.next_ns - self._held[0].mono_ns >= _HELD_NS):
            held, self._held = self._held, []
            self._keep(held)
