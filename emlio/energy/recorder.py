"""Reads on a schedule until it is told to end, and hands the readings on.

Covers: the loop, readings that somebody asks for between two moments, what is handed on when. Does not cover: waiting, files,
sockets and signals, which are arguments (emlio.cli.energy.record puts them together).
"""

from collections import deque
from collections.abc import Callable, Sequence

from emlio.clock import Clock
from emlio.energy.meter import Meter
from emlio.energy.reading import Reading
from emlio.energy.schedule import Schedule
from emlio.energy.tally import Tally

__all__ = ["Recorder"]

_HELD_NS = 1_000_000_000
"""A reading is handed on before it is so old: what a killed recorder loses."""

_MOST_EDGES_A_SECOND = 100
"""Epochs and steps of a second or so end a few times a second at most; whoever asks more often fills the disk for nothing."""


class Recorder:
    """The loop. One thread runs it, and asks for edges from inside `wait`; any thread or signal may end it.

    Attributes:
        last: the latest reading; None before the first.
        tally: what all readings so far come to.
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
        """Nothing read yet.

        Args:
            meter: what reads.
            schedule: when.
            clock: the schedule's.
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
        """Read at each moment, and once more at the end.

        Args:
            until_ns: end then; None: when told to.
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
        """Read now, because somebody wants to know. None where that was asked too often."""
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
        """Hand readings on if it is time: the next moment may be too late."""
        if self._held and (now or self._schedule.next_ns - self._held[0].mono_ns >= _HELD_NS):
            held, self._held = self._held, []
            self._keep(held)
