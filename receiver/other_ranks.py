"""Comparison of this loader's options with those of the other ranks, made by the ranks themselves.

Daemons compare ranks too, but not ranks that read local directories or share no daemon. Where
torch.distributed is initialised with this loader's rank and world size, the ranks record their
loaders in the store of the process group. No rank waits for another: the first one leaves its
options, later ones find and compare them. A collective would not do: all ranks must enter it, in
the same order as the training's own collectives, and a loader cannot know that order.

Covers: the entries in the store and what follows from them, once per loader. Does not cover: the
comparison (emlio.session.terms), the store (emlio.receiver.torch_adapter).
"""

import logging
import os
import socket
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

import msgspec

from emlio.errors import ConfigError
from emlio.interrupts import is_interrupt
from emlio.planner.plan import Plan
from emlio.receiver.assignment.agreement import offer_of
from emlio.receiver.own_loaders import OWN_LOADERS, Kind, OwnLoaders
from emlio.receiver.setup.config import LoaderConfig
from emlio.receiver.setup.world import check_world
from emlio.receiver.torch_adapter import distributed_world, group_store
from emlio.session.terms import MadeLoader, Terms, clash, describe_difference, terms_of
from emlio.tokens import TokenBatches

__all__ = ["OtherRanks", "Store"]

_LOG = logging.getLogger("emlio.receiver")


class Store(Protocol):
    """Named values that all ranks see. No call waits for another rank."""

    def claim(self, key: str, value: bytes) -> bytes:
        """Set the value if there is none; return the value that is then there."""
        ...

    def put(self, key: str, value: bytes) -> None:
        """Set the value."""
        ...

    def look(self, key: str) -> bytes | None:
        """Return the value, or None if there is none."""
        ...


class _Said(msgspec.Struct, frozen=True, kw_only=True):
    """A rank's entry in the store: ordinal, terms and whether it is in use, for each loader."""

    rank: int
    who: str
    loaders: list[tuple[int, tuple[tuple[str, str | int | bool], ...], bool]]

    @staticmethod
    def of(rank: int, loaders: Sequence[MadeLoader]) -> "_Said":
        said = [(one.ordinal, one.terms.values, one.lives) for one in loaders]
        return _Said(rank=rank, who=f"{socket.gethostname()}:{os.getpid()}", loaders=said)

    def made(self) -> list[MadeLoader]:
        return [MadeLoader(ordinal=ordinal, terms=Terms(terms), lives=lives) for ordinal, terms, lives in self.loaders]

    @property
    def name(self) -> str:
        return f"rank {self.rank} ({self.who})"


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(_Said)


class OtherRanks:
    """One loader's comparison with the other ranks. Used in the user's thread.

    Attributes:
        config: the loader's configuration. After `count` it includes the ordinal by which daemons
            compare ranks.
    """

    def __init__(
        self,
        config: LoaderConfig,
        *,
        tokens: TokenBatches | None,
        world_was_given: bool,
        run_is_named: bool = True,
        own: OwnLoaders = OWN_LOADERS,
        find_group: Callable[[], tuple[int, int] | None] = distributed_world,
        find_store: Callable[[], Store | None] = group_store,
    ) -> None:
        """Prepare the comparison.

        Args:
            config: the loader's configuration.
            tokens: how records become batches.
            world_was_given: rank and world size come from the user, whatever torch.distributed
                says.
            run_is_named: whether all ranks of the run give daemons the same name for it.
            own: the loaders that this process has made.
            find_group: returns this process's rank in its process group and the group's size, or
                None without a group.
            find_store: returns the process group's store, or None without one.
        """
        self._kinds: tuple[Kind, ...] = ()
        if config.world_size > 1:  # a rank may make a loader for itself alone that others do not
            dataset, rank = config.address.dataset, config.rank
            # A process has one rank of a group, but if no launcher names the run, each loader is a
            # job of its own.
            self._kinds = (config.job, dataset, rank), ("", dataset, rank)
        self._ordinals: list[int] = []
        self.config = config
        self._tokens = tokens
        self._world_was_given = world_was_given
        self._find_group = find_group
        self._find_store = find_store
        self._own = own
        self._run_is_named = run_is_named
        self._compared = False
        self._difference: str | None = None
        self._closed = False

    def count(self) -> LoaderConfig:
        """Count the loader among those of this process; return its new `config`.

        Undone by `withdraw`.
        """
        for kind in self._kinds:
            self._own.count(kind, self._ordinals)
        if self._kinds:
            self.config = replace(self.config, ordinal=self._ordinals[0])
            if self.config.address.peers and not self._run_is_named and not self._ordinals[1]:
                self._tell_unnamed()
        return self.config

    def _tell_unnamed(self) -> None:
        """Warn, once per dataset, that the ranks cannot be compared by the daemons.

        A difference between ranks, or a rank that was started twice, would go unnoticed.
        """
        rank, world_size = self.config.rank, self.config.world_size
        if self._find_group() != (rank, world_size):
            _LOG.warning(
                "rank %d of %d has no job name, so the daemons of %r do not compare it with the other ranks. Set "
                "EMLIO_JOB to the same name in all ranks",
                rank,
                world_size,
                self.config.address.dataset,
            )

    def check(self, plan: Plan, flow: tuple[int, int]) -> None:
        """Check this loader against the other ranks when an iteration begins.

        Args:
            plan: the plan.
            flow: the epoch and origin from which the iteration begins.

        Raises:
            ConfigError: torch.distributed has another world, or another rank has other options.
        """
        rank, world_size = self.config.rank, self.config.world_size
        if not self._world_was_given:
            check_world(rank, world_size)
        if not self._compared and self._kinds and self._find_group() == (rank, world_size):
            store = self._find_store()
            if store is not None:
                self._compared = True
                self._difference = self._compare(store, self._ordinals[1], self._terms(plan, flow))
        if self._difference is not None:
            raise ConfigError(self._difference)

    def _terms(self, plan: Plan, flow: tuple[int, int]) -> Terms:
        values = terms_of(offer_of(plan, session=0), self.config.world_size).values
        tokens = (("tokens", repr(self._tokens)), ("rows", str(self.config.rows))) if self._tokens is not None else ()
        return Terms((*values, *tokens, ("epoch", flow[0]), ("samples consumed", flow[1])))

    def withdraw(self) -> None:
        """Undo `count`, for a loader that could not be made: the next one gets its ordinal.

        The loader may have been counted in part, or not at all.
        """
        for kind, ordinal in zip(self._kinds, self._ordinals, strict=False):
            self._own.uncount(kind, ordinal)

    def close(self) -> None:
        """Record that the loader is no longer in use."""
        self._closed = True

    def _compare(self, store: Store, ordinal: int, terms: Terms) -> str | None:
        config, this = self.config, weakref.ref(self)
        loaders = self._own.note(
            self._kinds[1], ordinal, terms, lambda: (there := this()) is not None and not there._closed
        )
        mine = _Said.of(config.rank, loaders)
        place = f"emlio/{config.address.dataset}"
        try:
            store.put(f"{place}/rank {config.rank}", _ENCODER.encode(mine))
            first = _DECODER.decode(store.claim(f"{place}/loader {ordinal}", _ENCODER.encode(mine)))
            if first.rank == config.rank or first.made()[-1].terms == terms:
                return None
            # That rank may have made more loaders since, or closed some.
            latest = store.look(f"{place}/rank {first.rank}")
            other = first if latest is None else _DECODER.decode(latest)
        except Exception as error:  # a store that fails is torch's to tell of, at its next collective
            if is_interrupt(error):
                raise
            _LOG.debug("the ranks were not compared: the process group's store failed: %r", error)
            return None
        pair = clash(loaders, other.made())
        if pair is None:
            return None
        own, others = (mine.name, pair[0].terms), (other.name, pair[1].terms)
        return describe_difference(config.address.dataset, own, others)
