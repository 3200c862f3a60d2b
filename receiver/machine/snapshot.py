"""Taking the state of a group of objects as a value, and putting it back.

The objects stay the same; their attributes change. A state is nested tuples, equal where states are equal, so a search over
all orders of events can recognise one that it has seen (tests/model).
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from operator import attrgetter
from types import MethodType
from typing import Any

import msgspec
import numpy as np

from emlio.errors import EmlioError
from emlio.planner.plan import EpochPlan, Plan
from emlio.receiver.addresses.address import Address, Peer, Target
from emlio.receiver.addresses.trust import Trust
from emlio.receiver.assignment.agreement import Agreement, Holding
from emlio.receiver.machine.surroundings import Surroundings
from emlio.receiver.placement.epoch_places import EpochPlaces
from emlio.receiver.placement.schedule import PlanSchedule
from emlio.receiver.setup.config import LoaderConfig

__all__ = ["PartState", "Snapshots"]

PartState = tuple[Any, ...]
"""The values of one object's attributes, hashable."""

_CONSTANT: tuple[type, ...] = (
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
"""Objects that do not change, except for their caches."""

_ATOMS: frozenset[type] = frozenset({int, str, bytes, bool, float, type(None)})


class Snapshots:
    """The states of a group of objects, from the first snapshot on."""

    def __init__(self, parts: Callable[[], tuple[object, ...]]) -> None:
        """Prepare for the objects that `parts` returns when the first snapshot is taken."""
        self._find = parts
        self._parts: tuple[object, ...] = ()
        self._names: list[list[str]] = []

    def _begin(self) -> None:
        self._parts = self._find()
        self._values = _Values(self._parts)
        # What an attribute refers to for good is not part of the state.
        fixed = self._values.is_fixed
        for part in self._parts:
            names = [name for name, value in part.__dict__.items() if not fixed(value)]
            # The other attributes follow from the owners, or do not change.
            self._names.append(["_owners"] if isinstance(part, EpochPlaces) else names)

    def take(self) -> list[PartState]:
        """Return the state of each object."""
        if not self._parts:
            self._begin()
        freeze = self._values.freeze
        found: list[PartState] = []
        for part, names in zip(self._parts, self._names, strict=True):
            attributes = part.__dict__
            values = [value if type(value := attributes[name]) in _ATOMS else freeze(value) for name in names]
            found.append(tuple(values))
        return found

    def put(self, states: Sequence[PartState], since: Sequence[PartState]) -> None:
        """Restore the state of each object, except where `states` and `since` have the same tuple."""
        thaw = self._values.thaw
        for part, names, was, wanted in zip(self._parts, self._names, since, states, strict=True):
            if was is not wanted:
                part.__dict__.update(zip(names, map(thaw, wanted), strict=True))
                if isinstance(part, EpochPlaces):
                    part.forget()


class _Values:
    """Objects as nested tuples, and back. The first item says how.

    Most of a search's time is spent here. So an atom inside another value costs no call, and how a type is taken is looked up.
    """

    def __init__(self, parts: Iterable[object]) -> None:
        self._stays: tuple[type, ...] = (Snapshots, *{type(part) for part in parts}, *_CONSTANT)
        self._kinds: list[tuple[type[object], tuple[str, ...]]] = []  # of objects, and their attributes
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
        kind: type[object] = value.__class__
        how = self._how.get(kind)
        if how is None:
            how = self._how[kind] = self._learn(value, kind)
        return how(value)

    def _items(self, values: Iterable[Any]) -> list[Any]:
        return [value if type(value) in _ATOMS else self.freeze(value) for value in values]

    def _learn(self, value: Any, kind: type[object]) -> Callable[[Any], Any]:
        if isinstance(value, msgspec.Struct) and _is_said(value):
            return lambda value: ("k", self._keep((kind, msgspec.msgpack.encode(value)), value))
        if isinstance(value, MethodType):  # another object each time, but equal
            return lambda value: ("k", self._keep(value, value))
        if isinstance(value, self._stays) or callable(value):
            return lambda value: ("k", self._keep(id(value), value))
        if isinstance(value, msgspec.Struct):
            names = value.__struct_fields__
        elif hasattr(value, "__dict__"):
            names = tuple(value.__dict__)
        else:
            names = tuple(name for base in kind.__mro__ for name in getattr(base, "__slots__", ()))
        number = len(self._kinds)
        self._kinds.append((kind, names))
        if not names:
            return lambda value: ("o", number)
        if len(names) == 1:
            return lambda value: ("o", number, *self._items([getattr(value, names[0])]))
        attributes = attrgetter(*names)
        return lambda value: ("o", number, *self._items(attributes(value)))

    def thaw(self, value: Any) -> Any:
        return self._made(value) if value.__class__ is tuple else value

    def _made(self, value: PartState) -> Any:
        how: Any = value[0]
        match how:
            case "k":
                return self._kept[value[1]]
            case "o":
                number: int = value[1]
                kind, names = self._kinds[number]
                if issubclass(kind, msgspec.Struct):
                    return kind(**dict(zip(names, self._thawed(value[2:]), strict=True)))
                made = object.__new__(kind)
                for name, item in zip(names, value[2:], strict=True):
                    object.__setattr__(made, name, self.thaw(item) if type(item) is tuple else item)
                return made
            case "t":
                return tuple(self._thawed(value[1:]))
            case "l":
                return self._thawed(value[1:])
            case "d":
                return {self.thaw(key): self.thaw(item) for key, item in value[1:]}
            case "a":
                return self._kept[value[1]].copy()
            case "m":
                return memoryview(value[1])
            case "q":
                return deque(self._thawed(value[2:]), maxlen=value[1])
            case _:
                return set(self._thawed(value[1:]))

    def _thawed(self, values: Iterable[Any]) -> list[Any]:
        return [self.thaw(value) if type(value) is tuple else value for value in values]

    def _keep(self, key: Any, value: Any) -> int:
        number = self._kept_as.get(key)
        if number is None:
            number = self._kept_as[key] = len(self._kept)
            self._kept.append(value.copy() if isinstance(value, np.ndarray) else value)
        return number


def _is_said(value: msgspec.Struct) -> bool:
    """Return whether this is a message or a part of one: it does not change, and its bytes tell all of it."""
    if not value.__struct_config__.frozen:
        return False
    try:
        msgspec.msgpack.encode(value)
    except TypeError:
        return False
    return True
