"""The rank's machine as a value: it is put into a state, told an event, and its new state is taken."""

from typing import Any

from world import HEARTBEAT_NS, HELD_BYTES, World

from emlio.errors import PeerLostError
from emlio.receiver.addresses.address import Target
from emlio.receiver.addresses.known_path import KnownPath
from emlio.receiver.machine.intake import IntakeTotals
from emlio.receiver.machine.rank import RankMachine
from emlio.receiver.machine.snapshot import PartState
from emlio.receiver.machine.surroundings import Surroundings
from emlio.wire.control import Hello

__all__ = ["NOW_NS", "Frozen", "RankState", "new_machine"]

NOW_NS = 1_000_000_000_000
"""Time stands still: steps say what would happen with time."""

Frozen = tuple[int, ...]
"""The state of the machine: of each part which of its states it is in, by number."""

_LOST = PeerLostError("it was lost")


class _Even:
    """Chance that always takes the smallest."""

    def uniform(self, a: float, b: float) -> float:
        return a


def new_machine(world: World) -> RankMachine:
    """A machine that has heard nothing."""
    around = Surroundings(
        chances=_Even(),
        receive_buffer_bytes=4 << 20,
        send_buffer_bytes=4 << 20,
        hello=lambda number, peer: Hello(
            job="job",
            client=f"rank-{number}",
            rank=0,
            world_size=1,
            dataset="numbers",
            host="rank",
            pid=1,
            software="0.1.0",
            lane_secret=bytes([number]) * 32,
            protections=("clear",),
        ),
        path=lambda way: KnownPath(lanes=world.lanes, offset=1),
    )
    targets = tuple(Target(peer=peer, ways=(peer,)) for peer in world.config.address.peers)
    machine = RankMachine(world.config, targets, (), around)
    limits: Any = machine.intake
    limits._bound_bytes = limits.grants.limit_bytes = world.bound * HELD_BYTES
    return machine


class RankState:
    """The machine's state as numbers, one for each part of a snapshot."""

    def __init__(self, machine: RankMachine) -> None:
        self.machine = machine
        assert machine.intake.reorder is not None
        for epoch in range(4):
            machine.intake.reorder.places(epoch)  # those that anything looks at
        self._known: dict[PartState, int] = {}
        self._states: list[PartState] = []
        self._now: list[PartState] = []

    def take(self) -> Frozen:
        """The state, which is equal to another one where the machine would do the same."""
        self._forget()
        found: list[int] = []
        for part in self.machine.snapshot():
            number = self._known.get(part)
            if number is None:
                number = self._known[part] = len(self._known)
                self._states.append(part)
            found.append(number)
        self._now = [self._states[number] for number in found]
        return tuple(found)

    def put(self, state: Frozen) -> None:
        """Be in this state."""
        wanted = [self._states[number] for number in state]
        self.machine.restore(wanted, self._now)
        self._now = wanted

    def _forget(self) -> None:
        """Clear what is only counted or told to users, and how often something was tried."""
        pool: Any = self.machine.pool
        pool._lost = pool.lanes.losses = pool.assignment.reopened = pool.assignment.moved = 0
        pool.assignment._stragglers._loans.clear()
        self.machine.intake.totals = IntakeTotals()
        self.machine.intake.grants.peak_bytes = 0
        for source in pool.sources:
            source.stream.patience_ns = min(source.stream.patience_ns, HEARTBEAT_NS)
            source.stream.lanes._failures = source.stream.lanes._due_ns = 0
            source.stream.damage, source.stream.damaged_ns = None, 0
            told = source.contact
            told._was_refused = told._was_connected = told._ended = told._ended_before = False
            if source.retry is not None:
                source.retry.attempts, source.retry.since = min(source.retry.attempts, 1), None
                source.retry.error = _LOST
