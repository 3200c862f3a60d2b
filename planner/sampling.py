"""The choice of the records that an epoch consists of, and of how often each is in it.

The plan asks a sampling for the number of places of an epoch and for their order. Everything else, such as ranks, batches
and the tail, does not depend on it.

Covers: the interface of a sampling, every record once, the text that goes to daemons and into states. Does not cover: other
samplings, each in a module of its own.
"""

import hashlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Protocol

import msgspec

from emlio.errors import ConfigError
from emlio.planner.catalog import Catalog
from emlio.planner.choice.choice import CHOICE
from emlio.planner.choice.text import Content, parse_choice
from emlio.planner.mixture.sampling import MIXTURE, MixtureSampling
from emlio.planner.order import Order, Shuffle, ShuffleMode, make_order

__all__ = ["EVERYTHING", "Everything", "Sampling", "mark_in_words", "parse_sampling", "sampling_mark"]

_MARK_DIGITS: Final = 16
"""The digits of a hash that a state keeps in place of a sampling's text."""


class Sampling(Protocol):
    """A choice of records. Frozen and hashable; equal ones give equal orders on every machine.

    `str` of it is a text that `parse_sampling` reads; "" stands for every record once.
    """

    def places(self, catalog: Catalog) -> int:
        """Return the number of places of an epoch, at least 1.

        Raises:
            ConfigError: it does not fit the dataset, or nothing is left of it.
        """
        ...

    def order(self, catalog: Catalog, shuffle: Shuffle, seed: int, epoch: int) -> Order:
        """Return the record at each place of an epoch; its ids are those of the catalog."""
        ...

    def is_fixed(self, shuffle: Shuffle) -> bool:
        """Return whether each epoch has the records of the one before, at the same places."""
        ...


class Everything(msgspec.Struct, frozen=True):
    """Every record once per epoch."""

    def __str__(self) -> str:
        """Return "": no text says that nothing was chosen."""
        return ""

    def places(self, catalog: Catalog) -> int:
        """See `Sampling`."""
        return catalog.records

    def order(self, catalog: Catalog, shuffle: Shuffle, seed: int, epoch: int) -> Order:
        """See `Sampling`."""
        return make_order(catalog, shuffle, seed, epoch)

    def is_fixed(self, shuffle: Shuffle) -> bool:
        """See `Sampling`."""
        return shuffle.mode is ShuffleMode.NONE


EVERYTHING: Final = Everything()


def parse_sampling(text: str, contents: Mapping[str, Content] = MappingProxyType({})) -> Sampling:
    """Return the sampling of a text.

    Args:
        text: what `str` of a sampling returned.
        contents: what the text names by its digest.

    Raises:
        ConfigError: there is none with this text.
    """
    if not text:
        return EVERYTHING
    if text.startswith(CHOICE):
        return parse_choice(text, contents)
    if text.startswith(MIXTURE):
        return MixtureSampling.parse(text)
    raise ConfigError(f"a sampling must be one that this release knows, got {text[:80]!r}")


def sampling_mark(sampling: Sampling) -> str:
    """Return what a state keeps of a sampling: "" for every record once, else some digits of a hash."""
    if isinstance(sampling, MixtureSampling):
        return sampling.mark
    text = str(sampling)
    return hashlib.sha256(text.encode()).hexdigest()[:_MARK_DIGITS] if text else ""


def mark_in_words(mark: str) -> str:
    """Return what a state keeps of a sampling, as a user knows it."""
    if mark.startswith(MIXTURE):
        return MixtureSampling.words(mark)
    return f"a subset, repeats or weights of the mark {mark}" if mark else "all records"
