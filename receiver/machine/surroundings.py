"""The surroundings of the rank's machine: facts and random numbers that it asks for, the time, its instructions."""

from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec
from msgspec import UNSET, UnsetType

from emlio.receiver.addresses.address import Peer
from emlio.receiver.addresses.known_path import KnownPath
from emlio.receiver.machine.instructions import Instruction, Level, Note
from emlio.receiver.threads.rank_gate import RankGate
from emlio.wire.control import Compared, Hello, Made
from emlio.wire.data import TimedHeader
from emlio.wire.status import UserWaits

__all__ = ["Came", "Chances", "Outbox", "Surroundings"]

Came = Callable[[int, TimedHeader, int, int], None]


class Chances(Protocol):
    """A source of random numbers."""

    def uniform(self, a: float, b: float) -> float:
        """Return a random number in this range."""
        ...


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """The facts and functions that the machine may ask for.

    Attributes:
        chances: the source of random numbers.
        receive_buffer_bytes, send_buffer_bytes: of this host's connections.
        hello: returns the hello to the daemon with this number and address.
        path: returns what is remembered of the path to an address.
        gate: holds the user where daemons say so.
        made: returns what this process has made for a dataset, beside this loader.
        waits: returns the times of the user so far, for daemons' statuses.
        came: told of each message: the source, its header, the bytes of its payload, the time; None if nothing is traced.
    """

    chances: Chances
    receive_buffer_bytes: int
    send_buffer_bytes: int
    hello: Callable[[int, Peer], Hello]
    path: Callable[[Peer], KnownPath | None]
    gate: RankGate = msgspec.field(default_factory=RankGate)
    made: Callable[[str], list[Made]] = lambda _: []
    waits: Callable[[], UserWaits | UnsetType] = lambda: UNSET
    came: Came | None = None

    def compared(self, dataset: str, options: Mapping[str, str]) -> Compared:
        """Return what an offer says for the comparison with other ranks, beside the plan."""
        return Compared(options=dict(options), made=self.made(dataset), begun=self.gate.place() is not UNSET)


class Outbox:
    """The time of the current event and the instructions that follow, shared by the machine's parts.

    Attributes:
        now_ns: the time of the event.
    """

    def __init__(self) -> None:
        """Begin without instructions."""
        self.now_ns = 0
        self._waiting: list[Instruction] = []

    def add(self, instruction: Instruction) -> None:
        """Add an instruction after those added before."""
        self._waiting.append(instruction)

    def note(self, level: Level, text: str) -> None:
        """Add a line for the log."""
        self._waiting.append(Note(level, text))

    def take(self) -> list[Instruction]:
        """Return the instructions added since the last call."""
        waiting, self._waiting = self._waiting, []
        return waiting
