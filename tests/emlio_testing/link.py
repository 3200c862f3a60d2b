"""A faulty connection for control messages, the same at every run."""

import heapq
import random
from dataclasses import dataclass

from emlio.clock import Clock

__all__ = ["Link", "LinkFaults"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkFaults:
    """The faults of a link.

    Attributes:
        delay_ns: the least delay of a message.
        jitter_ns: the largest additional delay.
        loss: the fraction of messages that never arrive.
        repetition: the fraction of messages that arrive twice.
        keeps_order: whether messages never overtake each other, as over TCP.
    """

    delay_ns: int = 0
    jitter_ns: int = 0
    loss: float = 0.0
    repetition: float = 0.0
    keeps_order: bool = True

    def __post_init__(self) -> None:
        if self.delay_ns < 0 or self.jitter_ns < 0:
            raise ValueError(f"delays must be at least 0, got {self.delay_ns} and {self.jitter_ns}")
        for name, share in (("loss", self.loss), ("repetition", self.repetition)):
            if not 0.0 <= share <= 1.0:
                raise ValueError(f"{name} must be in [0, 1], got {share}")


class Link:
    """One direction. `send` takes a message, `arrived` returns those that are due."""

    def __init__(self, clock: Clock, faults: LinkFaults | None = None, *, seed: int = 0) -> None:
        """See the class.

        Args:
            clock: decides when messages arrive.
            faults: the faults; none by default.
            seed: decides which messages meet which fault.
        """
        self.sent = 0
        self.lost = 0
        self._clock = clock
        self._faults = faults if faults is not None else LinkFaults()
        self._random = random.Random(seed)
        self._under_way: list[tuple[int, int, bytes]] = []
        self._number = 0
        self._last_ns = 0
        self._cut = False

    def send(self, data: bytes) -> None:
        """Send a message."""
        self.sent += 1
        faults, draw = self._faults, self._random
        # All draws are made for each message, so that one fault's rate does not affect another's.
        loses, repeats = draw.random() < faults.loss, draw.random() < faults.repetition
        if self._cut or loses:
            self.lost += 1
            return
        for _ in range(2 if repeats else 1):
            due_ns = self._clock.monotonic_ns() + faults.delay_ns + draw.randint(0, faults.jitter_ns)
            if faults.keeps_order:
                due_ns = self._last_ns = max(due_ns, self._last_ns)
            self._number += 1
            heapq.heappush(self._under_way, (due_ns, self._number, data))

    def arrived(self) -> list[bytes]:
        """Return the messages that are due, in the order in which they arrive."""
        found: list[bytes] = []
        while self._under_way and self._under_way[0][0] <= self._clock.monotonic_ns():
            found.append(heapq.heappop(self._under_way)[2])
        return found

    def next_ns(self) -> int | None:
        """Return the time at which the next message arrives; None if none is under way."""
        return self._under_way[0][0] if self._under_way else None

    def cut(self) -> None:
        """Lose what is under way and everything after."""
        self.lost += len(self._under_way)
        self._under_way.clear()
        self._cut = True
