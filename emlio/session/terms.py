"""The options that ranks must agree on, and when the loaders of two ranks conflict.

All ranks run the same program, so the n-th loader of one rank should match the n-th of another.
Counts may drift: a rank may have made a loader that others did not. So two loaders are compared
only if they have the same number, both are in use, and neither finds a loader with its own options
among all that the other rank has made.

Covers: the comparison of two ranks, made by a daemon or by the ranks themselves. Does not cover:
which ranks are compared when (emlio.daemon.ranks.comparison, emlio.receiver.other_ranks).
"""

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from emlio.wire.control import PlanOffer

__all__ = ["MadeLoader", "Terms", "clash", "describe_difference", "terms_of"]

_BLOCK = "block"
_SAMPLING = "sampling"
_MIXTURE = "mixture/"
"""The beginning of the text of each mixture, see emlio.planner.mixture.sampling."""


@dataclass(frozen=True, slots=True)
class Terms:
    """The options that must be the same on all ranks: names, as users know them, and values."""

    values: tuple[tuple[str, str | int | bool], ...]

    def unlike(self, other: "Terms") -> str:
        """Return the options that differ from the other's, with the values here."""
        there = dict(other.values)
        own = [f"{name}={value!r}" for name, value in self.values if there.get(name) != value]
        if _SAMPLING in there.keys() - dict(self.values).keys():
            own.append("all records")
        return ", ".join(own)


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeLoader:
    """One loader of a rank.

    Attributes:
        ordinal: how many loaders the rank's process had made before, for this dataset.
        terms: its options.
        lives: whether it is in use. A closed loader still shows that the rank has used these
            options.
    """

    ordinal: int
    terms: Terms
    lives: bool


def terms_of(offer: PlanOffer, world_size: int) -> Terms:
    """Return the terms of a plan that was offered."""
    shuffle = f"{_BLOCK}:{offer.block_records}:{offer.window_blocks}" if offer.shuffle == _BLOCK else offer.shuffle
    chosen = ((_SAMPLING, offer.sampling),) if isinstance(offer.sampling, str) else ()
    return Terms(
        (
            ("world_size", world_size),
            ("batch_size", offer.batch_size),
            ("seed", offer.seed),
            ("shuffle", shuffle),
            ("drop_last", offer.drop_last),
            ("pad", offer.pad),
            ("fingerprint", offer.fingerprint),
            *chosen,
        )
    )


def clash(mine: Sequence[MadeLoader], theirs: Sequence[MadeLoader]) -> tuple[MadeLoader, MadeLoader] | None:
    """Return two loaders, one of each rank, that conflict; None if there are none."""
    keys: tuple[Callable[[MadeLoader], Hashable], ...] = (lambda one: (one.ordinal, one.terms), lambda one: one.terms)
    for key in keys:
        mine, theirs = _unpaired(mine, theirs, key), _unpaired(theirs, mine, key)
    there = {one.ordinal: one for one in theirs if one.lives}
    return next(((one, there[one.ordinal]) for one in mine if one.lives and one.ordinal in there), None)


def _in_words(terms: Terms, others: Terms) -> str:
    """Return what the values that are hashes stand for; "" if none of them differs."""
    here, there = dict(terms.values), dict(others.values)
    chosen = [str(values.get(_SAMPLING, "")) for values in (here, there)]
    mixed = all(text.startswith(_MIXTURE) for text in chosen)
    words: list[str] = []
    if here.get("fingerprint") != there.get("fingerprint"):
        words.append("other datasets or another order of them in the mixture" if mixed else "other data")
    if chosen[0] != chosen[1]:
        words.append(
            "other weights or another length of the mixture" if mixed else "another subset, repeat, weights or mixture"
        )
    return f" ({', '.join(words)})" if words else ""


def _unpaired(
    ours: Sequence[MadeLoader], theirs: Sequence[MadeLoader], key: Callable[[MadeLoader], Hashable]
) -> list[MadeLoader]:
    """Return those of `ours` that have no counterpart in `theirs` with the same key."""
    left = Counter(key(one) for one in theirs)
    unpaired: list[MadeLoader] = []
    for one in ours:
        if left[key(one)] > 0:
            left[key(one)] -= 1
        else:
            unpaired.append(one)
    return unpaired


def describe_difference(dataset: str, mine: tuple[str, Terms], other: tuple[str, Terms]) -> str:
    """Return the error text for a rank whose loader conflicts with another rank's.

    `mine` and `other` are each a rank in words and its terms.
    """
    (who, terms), (whom, others) = mine, other
    return (
        f"all ranks of a job must give the same options for dataset {dataset!r}: {who} has {terms.unlike(others)}, "
        f"{whom} has {others.unlike(terms)}{_in_words(terms, others)}. Give both the same, stop a process left from an "
        "earlier run, or pass rank=0, world_size=1 to a loader that only one rank makes"
    )
