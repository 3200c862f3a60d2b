"""Whether this loader goes with those of the other ranks, as far as the ranks can tell among themselves.

Daemons compare ranks too, but not those that read local directories or share no daemon. Where torch.distributed is initialised
and has this loader's rank and world size, ranks leave word of their loaders in the store of the process group. No rank waits for
another: the first one leaves its options, later ones find and compare them. A collective would have to be entered by all ranks,
in one order with the training's own, and a loader cannot know that of its user.

Covers: what is left in the store and what is made of it, once per loader. Does not cover: the comparison (emlio.session.terms),
the store (emlio.receiver.torch_adapter).
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
from emlio.planner.plan import Plan
from emlio.receiver.agreement import offer_of
from emlio.receiver.config import LoaderConfig
from emlio.receiver.own_loaders import OWN_LOADERS, Kind, OwnLoaders
from emlio.receiver.torch_adapter import distributed_world, group_store
from emlio.receiver.world import check_world
from emlio.session.terms import MadeLoader, Terms, clash, describe_difference, terms_of
from emlio.tokens import TokenBatches

__all__ = ["OtherRanks", "Store"]

_LOG = logging.getLogger("emlio.receiver")


class Store(Protocol):
    """Values by name that all ranks see. No call waits for another rank."""

    def claim(self, key: str, value: bytes) -> bytes:
        """Set the value if there is none; the value that is there then."""
        ...

    def put(self, key: str, value: bytes) -> None:
        """Set the value."""
        ...

    def look(self, key: str) -> bytes | None:
        """The value, or None where there is none."""
        ...


class _Said(msgspec.Struct, frozen=True, kw_only=True):
    """What a rank leaves of its loaders: of each its ordinal, terms, and whether it is in use."""

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
    """See the module. Belongs to one loader, and is used in its user's thread.

    Attributes:
        config: the loader's; once it is counted with its ordinal in it: daemons compare ranks by that.
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
        """See the class.

        Args:
            config: what the loader was told.
            tokens: how records become batches.
            world_was_given: rank and world size are the user's, whatever torch.distributed says.
            run_is_named: whether all ranks of the run give daemons the same name for it.
            own: the loaders that this process has made.
            find_group: this process's rank in its process group, and the group's size, or None where there is none.
            find_store: the process group's, or None where there is none.
        """
        self._kinds: tuple[Kind, ...] = ()
        if config.world_size > 1:  # a rank may well make a loader for itself alone that others do not
            dataset, rank = config.address.dataset, config.rank
            # A process has one rank of a group, but where no launcher names the run each loader is a job of its own.
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
        """Count the loader among those of this process; its `config` from now on. To be undone by `withdraw`."""
        for kind in self._kinds:
            self._own.count(kind, self._ordinals)
        if self._kinds:
            self.config = replace(self.config, ordinal=self._ordinals[0])
            if self.config.address.peers and not self._run_is_named and not self._ordinals[1]:
                self._tell_unnamed()
        return self.config

    def _tell_unnamed(self) -> None:
        """Once for a dataset: nobody finds out that ranks differ, or that one was started twice."""
        rank, world_size = self.config.rank, self.config.world_size
        if self._find_group() != (rank, world_size):
            _LOG.warning(
                "rank %d of %d is a run of its own for the daemons of %r, since nothing names the run: they do not compare it "
                "with the other ranks; set EMLIO_JOB to one name in all of them",
                rank,
                world_size,
                self.config.address.dataset,
            )

    def check(self, plan: Plan, flow: tuple[int, int]) -> None:
        """An iteration begins, with this plan, from this epoch and origin on.

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
        """The loader could not be made: the next one is counted in its place. It may have been counted in part, or not at all."""
        for kind, ordinal in zip(self._kinds, self._ordinals, strict=False):
            self._own.uncount(kind, ordinal)

    def close(self) -> None:
        """The loader is not in use any more."""
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
            # It may have made more loaders since, or closed some.
            latest = store.look(f"{place}/rank {first.rank}")
            other = first if latest is None else _DECODER.decode(latest)
        except Exception as error:  # noqa: BLE001  # a store that fails is torch's to tell of, at its next collective
            _LOG.debug("ranks are not compared: the process group's store failed: %r", error)
            return None
        pair = clash(loaders, other.made())
        if pair is None:
            return None
        own, others = (mine.name, pair[0].terms), (other.name, pair[1].terms)
        return describe_difference(config.address.dataset, own, others)
