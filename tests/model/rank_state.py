"""The rank's machine as a value: it is put into a state, told an event, and its new state is taken.

The objects that the machine is built of stay the same while a search goes on. Their attributes are what changes: they are taken
as nested tuples, which are equal where states are. Only what changed is put back.

Covers: taking a state and putting it back, what does not count as a part of it. Does not cover: events (steps).
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from enum import Enum
from operator import attrgetter
from types import MethodType
from typing import Any

import msgspec
import numpy as np
from world import HEARTBEAT_NS, HELD_BYTES, World

from emlio.errors import EmlioError, PeerLostError
from emlio.planner.plan import EpochPlan, Plan
from emlio.receiver.addresses.address import Address, Peer, Target
from emlio.receiver.addresses.known_path import KnownPath
from emlio.receiver.addresses.trust import Trust
from emlio.receiver.assignment.agreement import Agreement, Holding
from emlio.receiver.machine.intake import IntakeTotals
from emlio.receiver.machine.rank import RankMachine
from emlio.receiver.machine.surroundings import Surroundings
from emlio.receiver.placement.epoch_places import EpochPlaces
from emlio.receiver.placement.schedule import PlanSchedule
from emlio.receiver.setup.config import LoaderConfig
from emlio.wire.control import Hello

__all__ = ["NOW_NS", "Frozen", "RankState", "new_machine"]

NOW_NS = 1_000_000_000_000
"""Time stands still: steps say what would happen with time."""

Frozen = tuple[int, ...]
"""The state of the machine: of each part which of its states it is in, by number."""

_LOST = PeerLostError("it was lost")

_CONSTANT = (
    Plan,
    EpochPlan,
    Agreement,
    PlanSchedule,
    Surroundings,
    Target,
    Peer,
    Holding,
    LoaderConfig,
    Address,
    Trust,
    Enum,
    EmlioError,
)
"""Objects that stay as they are, but for what they remember to be quicker."""

_ATOMS = frozenset({int, str, bytes, bool, float, type(None)})


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
    """See the module. To be made once all of the machine's parts are there."""

    def __init__(self, machine: RankMachine) -> None:
        """See the class."""
        self.machine = machine
        reorder: Any = machine.intake.reorder
        for epoch in range(4):
            reorder._epoch(epoch)  # those that anything looks at
        self._parts = machine.parts()
        self._values = _Values(self._parts)
        # What an attribute refers to for good is no part of the state.
        fixed = self._values.is_fixed
        self._names = [[name for name, value in part.__dict__.items() if not fixed(value)] for part in self._parts]
        self._places: list[Any] = [part for part in self._parts if isinstance(part, EpochPlaces)]
        for part, names in zip(self._parts, self._names, strict=True):
            if isinstance(part, EpochPlaces):
                names[:] = ["_owners"]
        self._now: Frozen = ()
        self._known: dict[Any, int] = {}
        self._states: list[Any] = []
        self._chunks: dict[tuple[int, bytes], OrderedDict[int, Any]] = {}

    def take(self) -> Frozen:
        """The state, which is equal to another one where the machine would do the same."""
        self._forget()
        freeze, known = self._values.freeze, self._known
        found: list[int] = []
        for part, names in zip(self._parts, self._names, strict=True):
            attributes = part.__dict__
            now = tuple([value if type(value := attributes[name]) in _ATOMS else freeze(value) for name in names])
            number = known.get(now)
            if number is None:
                number = known[now] = len(known)
                self._states.append(now)
            found.append(number)
        self._now = tuple(found)
        return self._now

    def put(self, state: Frozen) -> None:
        """Be in this state."""
        thaw = self._values.thaw
        for part, names, now, wanted in zip(self._parts, self._names, self._now, state, strict=True):
            if now != wanted:
                values = self._states[wanted]
                part.__dict__.update(
                    {
                        name: thaw(value) if type(value) is tuple else value
                        for name, value in zip(names, values, strict=True)
                    }
                )
        self._now = state
        for places in self._places:
            places._chunks = OrderedDict(self._chunks.get(_key(places), {}))

    def _forget(self) -> None:
        """What is only counted for the user, and how often something was tried."""
        pool: Any = self.machine.pool
        pool._lost = pool.lanes.losses = pool.assignment.reopened = pool.assignment.moved = 0
        pool.assignment._stragglers._loans.clear()
        intake: Any = self.machine.intake
        intake.totals = IntakeTotals()
        intake.grants.peak_bytes = 0
        for source in pool.sources:
            source.stream.patience_ns = min(source.stream.patience_ns, HEARTBEAT_NS)
            source.stream.lanes._failures = source.stream.lanes._due_ns = 0
            if source.retry is not None:
                source.retry.attempts, source.retry.since = min(source.retry.attempts, 1), None
                source.retry.error = _LOST
        for places in self._places:
            self._chunks.setdefault(_key(places), OrderedDict()).update(places._chunks)


def _key(places: Any) -> tuple[int, bytes]:
    return places.plan.epoch, places._owners.tobytes()


class _Values:
    """Objects as nested tuples, and back. The first item says how.

    Most of a search's time is spent here. So an atom inside another value costs no call, and how a type is taken is looked up.
    """

    def __init__(self, parts: Iterable[object]) -> None:
        self._stays = (*{type(part) for part in parts}, *_CONSTANT)
        self._kinds: list[tuple[type, tuple[str, ...]]] = []  # of objects, and their attributes
        self._kept: list[Any] = []  # what never changes
        self._kept_as: dict[Any, int] = {}
        self._how: dict[type, Callable[[Any], Any]] = {
            **dict.fromkeys(_ATOMS, lambda value: value),
            tuple: lambda value: ("t", *self._items(value)),
            list: lambda value: ("l", *self._items(value)),
            deque: lambda value: ("q", value.maxlen, *self._items(value)),
            set: lambda value: ("s", *sorted(self._items(value))),
            dict: lambda value: ("d", *zip(self._items(value), self._items(value.values()), strict=True)),
            memoryview: lambda value: ("m", bytes(value)),
            np.ndarray: lambda value: ("a", self._keep((value.dtype.str, value.tobytes()), value)),
            frozenset: lambda value: ("k", self._keep(value, value)),
            range: lambda value: ("k", self._keep(value, value)),
        }

    def is_fixed(self, value: Any) -> bool:
        """Return whether an attribute keeps its reference to this object for good."""
        return callable(value) or (isinstance(value, self._stays) and not isinstance(value, Enum | Peer | EmlioError))

    def freeze(self, value: Any) -> Any:
        how = self._how.get(type(value))
        if how is None:
            how = self._how[type(value)] = self._learn(value)
        return how(value)

    def _items(self, values: Iterable[Any]) -> list[Any]:
        return [value if type(value) in _ATOMS else self.freeze(value) for value in values]

    def _learn(self, value: Any) -> Callable[[Any], Any]:
        kind = type(value)
        if isinstance(value, msgspec.Struct):
            return lambda value: ("k", self._keep((kind, msgspec.msgpack.encode(value)), value))
        if isinstance(value, MethodType):  # another object each time, but equal
            return lambda value: ("k", self._keep(value, value))
        if isinstance(value, self._stays) or callable(value):
            return lambda value: ("k", self._keep(id(value), value))
        slots = [name for base in kind.__mro__ for name in getattr(base, "__slots__", ())]
        names = tuple(value.__dict__) if hasattr(value, "__dict__") else tuple(slots)
        number = len(self._kinds)
        self._kinds.append((kind, names))
        if not names:
            return lambda value: ("o", number)
        if len(names) == 1:
            return lambda value: ("o", number, *self._items([getattr(value, names[0])]))
        attributes = attrgetter(*names)
        return lambda value: ("o", number, *self._items(attributes(value)))

    def thaw(self, value: Any) -> Any:
        if type(value) is not tuple:
            return value
        kind = value[0]
        if kind == "k":
            return self._kept[value[1]]
        if kind == "o":
            made_as, names = self._kinds[value[1]]
            made = object.__new__(made_as)
            for name, item in zip(names, value[2:], strict=True):
                object.__setattr__(made, name, self.thaw(item) if type(item) is tuple else item)
            return made
        if kind == "t":
            return tuple(self._thawed(value[1:]))
        if kind == "l":
            return self._thawed(value[1:])
        if kind == "d":
            return {self.thaw(key): self.thaw(item) for key, item in value[1:]}
        if kind == "a":
            return self._kept[value[1]].copy()
        if kind == "m":
            return memoryview(value[1])
        if kind == "q":
            return deque(self._thawed(value[2:]), maxlen=value[1])
        assert kind == "s"
        return set(self._thawed(value[1:]))

    def _thawed(self, values: Iterable[Any]) -> list[Any]:
        return [self.thaw(value) if type(value) is tuple else value for value in values]

    def _keep(self, key: Any, value: Any) -> int:
        number = self._kept_as.get(key)
        if number is None:
            number = self._kept_as[key] = len(self._kept)
            self._kept.append(value.copy() if isinstance(value, np.ndarray) else value)
        return number
