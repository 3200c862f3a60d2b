"""Comparison of this loader's options with those of the other ranks, made by the ranks themselves.

Daemons compare ranks too, but not ranks that read local directories or share no daemon. Where
torch.distributed is initialised with this loader's rank and world size, each rank records its
loaders in the store of the process group, and looks at the records of the ranks before and after
it. No rank waits for another: of two that differ, the one that comes later is told. Ranks that all
agree with their neighbours agree with each other. A collective would not do: all ranks must enter
it, in the same order as the training's own collectives, and a loader cannot know that order.
"""

import logging
import os
import socket
import weakref
from collections.abc import Callable
from dataclasses import fields
from typing import Protocol

import msgspec

from emlio.errors import ConfigError
from emlio.interrupts import is_interrupt
from emlio.planner.plan import Plan
from emlio.receiver.assignment.agreement import offer_of
from emlio.receiver.own_loaders import OWN_LOADERS, Kind, OwnLoader, OwnLoaders
from emlio.receiver.setup.config import LoaderConfig
from emlio.receiver.setup.world import check_world
from emlio.receiver.threads.rank_gate import RankGate
from emlio.receiver.torch_adapter import distributed_world, group_store
from emlio.session.terms import (
    Ledger,
    Point,
    Terms,
    describe_difference,
    describe_left,
    describe_places,
    terms_of,
)
from emlio.tokens import TokenBatches
from emlio.wire.control import Compared, Made

__all__ = ["OtherRanks", "Store", "further_options"]

_LOG = logging.getLogger("emlio.receiver")


def further_options(batch_size: int | None, tokens: TokenBatches | None, epochs: int | None) -> dict[str, str]:
    """Return the options that ranks must agree on beside those of the plan, with their values in words."""
    given: dict[str, object] = {"epochs": epochs}
    if tokens is not None:  # the plan has the pool as its batch size
        given["batch_size"] = batch_size
        given |= {field.name: getattr(tokens, field.name) for field in fields(tokens)}
    return {name: repr(value) for name, value in given.items()}


class Store(Protocol):
    """Named values that all ranks see. No call waits for another rank."""

    def put(self, key: str, value: bytes) -> None:
        """Set the value."""
        ...

    def look(self, key: str) -> bytes | None:
        """Return the value, or None if there is none."""
        ...


class _Used(msgspec.Struct, frozen=True, kw_only=True):
    """A living loader whose user has asked for a batch, and where it began."""

    values: tuple[tuple[str, str | int | bool], ...]
    further: tuple[tuple[str, str], ...]
    start: Point

    @property
    def terms(self) -> Terms:
        return Terms(self.values, self.further)


class _Said(msgspec.Struct, frozen=True, kw_only=True):
    """A rank's entry in the store: what its process has made, and what it uses."""

    rank: int
    who: str
    made: list[Made]
    used: list[_Used]

    @property
    def name(self) -> str:
        return f"rank {self.rank} ({self.who})"

    @property
    def ledger(self) -> Ledger:
        return Ledger(
            living=frozenset(one.digest for one in self.made if one.living),
            made=frozenset(one.digest for one in self.made),
            left=frozenset((one.digest, (one.epoch, one.reach)) for one in self.made if one.closed and not one.living),
        )

    def only(self, digest: str) -> _Used | None:
        """Return the loader in use with these terms, if the process has made no other one with them."""
        made = [one for one in self.made if one.digest == digest and (one.living, one.closed) == (1, 0)]
        return next((one for one in self.used if made and one.terms.digest == digest), None)


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(_Said)


class OtherRanks:
    """One loader's comparison with the other ranks. Used in the user's thread."""

    def __init__(
        self,
        config: LoaderConfig,
        *,
        world_was_given: bool,
        run_is_named: bool = True,
        own: OwnLoaders = OWN_LOADERS,
        find_group: Callable[[], tuple[int, int] | None] = distributed_world,
        find_store: Callable[[], Store | None] = group_store,
    ) -> None:
        """Prepare the comparison.

        Args:
            config: the loader's configuration.
            world_was_given: rank and world size come from the user, whatever torch.distributed
                says.
            run_is_named: whether all ranks of the run give daemons the same name for it.
            own: the loaders that this process has made.
            find_group: returns this process's rank in its process group and the group's size, or
                None without a group.
            find_store: returns the process group's store, or None without one.
        """
        self._config = config
        self._world_was_given = world_was_given
        self._find_group = find_group
        self._find_store = find_store
        self._own = own
        self._noted: OwnLoader | None = None
        self._difference: str | None = None
        self._start: Point | None = None
        self._closed = False
        dataset, rank = config.address.dataset, config.rank
        # A process has one rank of a group, but if no launcher names the run, each loader is a job
        # of its own.
        self._group_kind: Kind = ("", dataset, rank)
        parts = [part.dataset for part in config.address.parts] or [dataset]
        self._kinds = [self._group_kind, *((config.job, part, rank) for part in dict.fromkeys(parts))]
        if config.world_size == 1:  # a rank may make a loader for itself alone that others do not
            self._kinds = []
        elif config.address.peers and not run_is_named and not own.is_known(self._group_kind):
            self._tell_unnamed()

    def _tell_unnamed(self) -> None:
        """Warn, once per dataset, that the ranks cannot be compared by the daemons.

        A difference between ranks, or a rank that was started twice, would go unnoticed.
        """
        rank, world_size = self._config.rank, self._config.world_size
        if self._find_group() != (rank, world_size):
            _LOG.warning(
                "rank %d of %d has no job name, so the daemons of %r do not compare it with the other ranks. Set "
                "EMLIO_JOB to the same name in all ranks",
                rank,
                world_size,
                self._config.address.dataset,
            )

    def teller(self) -> Callable[[str], list[Made]]:
        """Return what tells, of a dataset, what this process has made beside this loader. It does not keep this alive."""
        this = weakref.ref(self)

        def tell(dataset: str) -> list[Made]:
            there = this()
            return there._made_before(dataset) if there is not None else []

        return tell

    def _made_before(self, dataset: str) -> list[Made]:
        found = self._own.made((self._config.job, dataset, self._config.rank))
        if self._noted is None or self._noted.is_refused():
            return found
        mine = self._noted.terms.digest
        return [msgspec.structs.replace(one, living=one.living - 1) if one.digest == mine else one for one in found]

    def made(self, plan: Plan, gate: RankGate) -> None:
        """Note that the loader is made: its plan is agreed."""
        if not self._kinds:
            return
        compared = Compared(options=dict(self._config.options), made=[])
        offer = msgspec.structs.replace(offer_of(plan, session=0), compared=compared)
        terms, this = terms_of(offer, self._config.world_size), weakref.ref(self)
        self._noted = OwnLoader(
            terms=terms,
            lives=lambda: (there := this()) is not None and not there._closed,
            place=gate.place,
            is_refused=lambda: gate.differs,
            start=lambda: there._start if (there := this()) is not None else None,
        )
        self._own.note(self._kinds, self._noted)
        self._asked_of_store(self._tell)

    def check(self, flow: tuple[int, int]) -> None:
        """Check this loader against the other ranks when a pass begins.

        Args:
            flow: the epoch and origin from which it begins.

        Raises:
            ConfigError: torch.distributed has another world, or another rank has other options.
        """
        rank, world_size = self._config.rank, self._config.world_size
        if not self._world_was_given:
            check_world(rank, world_size)
        if self._difference is None and self._noted is not None:
            first = self._start is None
            self._start = self._start or flow
            self._asked_of_store(lambda store: self._compare(store, flow, first=first))
        if self._difference is not None:
            self.forget()
            self._asked_of_store(self._tell)
            raise ConfigError(self._difference)

    def forget(self) -> None:
        """Undo `made`, for a loader that was refused."""
        if self._noted is not None:
            self._own.forget(self._kinds, self._noted)
            self._noted = None

    def close(self) -> None:
        """Record that the loader is no longer in use."""
        self._closed = True

    # ---- inside ---------------------------------------------------------------------------------------------------

    def _asked_of_store(self, ask: Callable[[Store], None]) -> None:
        """Use the process group's store, if there is one for this loader."""
        config = self._config
        try:
            store = self._find_store() if self._find_group() == (config.rank, config.world_size) else None
            if store is not None:
                ask(store)
        except Exception as error:  # a store that fails is torch's to tell of, at its next collective
            if is_interrupt(error):
                raise
            _LOG.debug("the ranks were not compared: the process group's store failed: %r", error)

    def _tell(self, store: Store) -> None:
        store.put(self._key(self._config.rank), _ENCODER.encode(self._said()))

    def _key(self, rank: int) -> str:
        return f"emlio/{self._config.address.dataset}/rank {rank}"

    def _said(self) -> _Said:
        used: list[_Used] = []
        for one in self._own.living(self._group_kind):
            start = one.start()
            if start is not None:
                used.append(_Used(values=one.terms.values, further=one.terms.further, start=start))
        who = f"{socket.gethostname()}:{os.getpid()}"
        return _Said(rank=self._config.rank, who=who, made=self._own.made(self._group_kind), used=used)

    def _compare(self, store: Store, flow: tuple[int, int], *, first: bool) -> None:
        rank, world_size = self._config.rank, self._config.world_size
        mine = self._said()
        store.put(self._key(rank), _ENCODER.encode(mine))
        for neighbour in dict.fromkeys(((rank - 1) % world_size, (rank + 1) % world_size)):
            said = store.look(self._key(neighbour))
            if said is not None and self._difference is None:
                self._difference = self._differs(mine, _DECODER.decode(said), flow, first=first)

    def _differs(self, mine: _Said, other: _Said, flow: tuple[int, int], *, first: bool) -> str | None:
        noted = self._noted
        if noted is None:
            return None
        dataset, digest = self._config.address.dataset, noted.terms.digest
        here, there, me = mine.ledger, other.ledger, (mine.name, noted.terms)
        lacking = there.lacking(here)
        theirs = next((one.terms for one in other.used if one.terms.digest in lacking), None)
        if theirs is not None and digest in here.lacking(there):
            return describe_difference(dataset, me, (other.name, theirs))
        left = here.left_by(there).get(digest)
        if theirs is not None and left is not None and flow > left:
            return describe_left(dataset, me, (other.name, theirs), left)
        alike = other.only(digest)
        if first and mine.only(digest) is not None and alike is not None and alike.start != flow:
            return describe_places(dataset, (mine.name, flow), (other.name, alike.start))
        return None
