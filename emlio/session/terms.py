"""The options that ranks must agree on, and when the loaders of two ranks conflict.

All ranks run the same program, but not at the same moment: one may be a stage ahead, or make a
loader that the others do not. So two ranks conflict only if each has a loader with terms of which
the other one's process has made none, or if one goes on with what the other left for something else.
"""

from dataclasses import dataclass, field
from hashlib import blake2b

import msgspec

from emlio.wire.control import Compared, PlanOffer

__all__ = [
    "STEPS_AHEAD",
    "Ledger",
    "Point",
    "Terms",
    "describe_difference",
    "describe_left",
    "describe_places",
    "terms_of",
]

STEPS_AHEAD = 16
"""Batches that a rank may take of a loader beyond the place at which another rank left it for
another loader. Ranks that stop at the same step differ by one, and by what their users' own queues
hold; those that stop at the same time, by a few more."""

_BLOCK = "block"
_SAMPLING = "sampling"
_MIXTURE = "mixture/"
"""The beginning of the text of each mixture, see emlio.planner.mixture.sampling."""

_REMEDY = (
    "Give both the same, stop a process left from an earlier run, or pass rank=0, world_size=1 to a loader that only "
    "one rank makes"
)


@dataclass(frozen=True, slots=True)
class Terms:
    """The options that must be the same on all ranks: names, as users know them, and values.

    Attributes:
        values: those of the plan.
        further: those beside it, with values in words.
        digest: stands for both.
    """

    values: tuple[tuple[str, str | int | bool], ...]
    further: tuple[tuple[str, str], ...] = ()
    digest: str = field(init=False, compare=False)

    def __post_init__(self) -> None:
        digest = blake2b(repr((self.values, self.further)).encode(), digest_size=12).hexdigest()
        object.__setattr__(self, "digest", digest)

    def unlike(self, other: "Terms") -> str:
        """Return the options that differ from the other's, with the values here."""
        here, there = self._in_words(), other._in_words()
        own = [f"{name}={value}" for name, value in here.items() if there.get(name) != value]
        lacking = there.keys() - here.keys()
        if _SAMPLING in lacking:
            own.append("all records")
        own += [f"no {name}" for name in sorted(lacking - {_SAMPLING})]
        return ", ".join(own)

    def _in_words(self) -> dict[str, str]:
        return {name: repr(value) for name, value in self.values} | dict(self.further)


def terms_of(offer: PlanOffer, world_size: int) -> Terms:
    """Return the terms of a plan that was offered."""
    shuffle = f"{_BLOCK}:{offer.block_records}:{offer.window_blocks}" if offer.shuffle == _BLOCK else offer.shuffle
    chosen = ((_SAMPLING, offer.sampling),) if isinstance(offer.sampling, str) else ()
    further = offer.compared.options if isinstance(offer.compared, Compared) else {}
    return Terms(
        (
            ("world_size", world_size),
            *(() if "batch_size" in further else (("batch_size", offer.batch_size),)),
            ("seed", offer.seed),
            ("shuffle", shuffle),
            ("drop_last", offer.drop_last),
            ("pad", offer.pad),
            ("fingerprint", offer.fingerprint),
            *chosen,
        ),
        tuple(further.items()),
    )


# ---- what two ranks compare ---------------------------------------------------------------------------------------

Point = tuple[int, int]
"""An epoch, and samples consumed over all ranks."""


class Ledger(msgspec.Struct, frozen=True, kw_only=True):
    """The loaders that one rank's process has made for a dataset. Digests stand for terms.

    Attributes:
        living: of the loaders that are not closed.
        made: of all its loaders, closed ones too.
        left: those of which none lives any more, and the farthest place at which one was closed.
    """

    living: frozenset[str] = frozenset()
    made: frozenset[str] = frozenset()
    left: frozenset[tuple[str, Point]] = frozenset()

    def lacking(self, other: "Ledger") -> frozenset[str]:
        """Return what this rank has and the other one never made. Two ranks conflict if each has something."""
        return self.living - other.made

    def left_by(self, other: "Ledger") -> dict[str, Point]:
        """Return where the other rank left what this one has, if it left that for something that this one never made."""
        if not other.lacking(self):
            return {}
        return {digest: at for digest, at in other.left if digest in self.living}


# ---- words --------------------------------------------------------------------------------------------------------


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


def describe_difference(dataset: str, mine: tuple[str, Terms], other: tuple[str, Terms]) -> str:
    """Return the error text for a rank whose loader conflicts with another rank's.

    `mine` and `other` are each a rank in words and its terms.
    """
    (who, terms), (whom, others) = mine, other
    return (
        f"all ranks of a job must give the same options for dataset {dataset!r}: {who} has {terms.unlike(others)}, "
        f"{whom} has {others.unlike(terms)}{_in_words(terms, others)}. {_REMEDY}"
    )


def describe_left(dataset: str, stays: tuple[str, Terms], left: tuple[str, Terms], at: Point, epoch: int = 0) -> str:
    """Return the error text where one rank left a loader, or an epoch, for another one, and the other goes on with the first.

    `epoch` is the one in which the rank that left is.
    """
    (who, terms), (whom, others) = stays, left
    if terms == others:
        return (
            f"all ranks of a job must leave an epoch of dataset {dataset!r} at the same step: {whom} left epoch {at[0]} at "
            f"sample {at[1]:,} and is in epoch {epoch}, {who} goes on with epoch {at[0]}. A new `for` begins the next epoch: "
            "after a look on one rank call set_epoch or load_state_dict there"
        )
    return (
        f"all ranks of a job must leave a loader of dataset {dataset!r} at the same step: {whom} closed its loader with "
        f"{terms.unlike(others)} at sample {at[1]:,} of epoch {at[0]} and uses {others.unlike(terms)}, {who} goes on with "
        f"{terms.unlike(others)}{_in_words(terms, others)}. Have all ranks change at the same step, also after an error "
        "on one of them"
    )


def describe_places(dataset: str, mine: tuple[str, Point], other: tuple[str, Point]) -> str:
    """Return the error text for ranks that begin at different places."""
    (who, here), (whom, there) = mine, other
    return (
        f"all ranks of a job must begin at the same place of dataset {dataset!r}: {who} begins at sample {here[1]:,} of "
        f"epoch {here[0]}, {whom} at sample {there[1]:,} of epoch {there[0]}. Load the same state on all ranks, or on none"
    )
