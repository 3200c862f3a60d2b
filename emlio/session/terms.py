"""The options that ranks must agree on, and when the loaders of two ranks conflict.

All ranks run the same program, but not at the same moment: one may be a stage ahead, or make a
loader that the others do not. So the loaders of two ranks are paired by their terms, with all that
the other rank has made, and two ranks conflict only if both have a living loader left over.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b

from emlio.wire.control import Compared, Made, Place, PlanOffer

__all__ = [
    "STEPS_AHEAD",
    "Made",
    "Terms",
    "Walk",
    "describe_difference",
    "describe_left",
    "describe_places",
    "left_over",
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


# ---- which loaders each rank has made -----------------------------------------------------------------------------


def left_over(mine: Mapping[str, Made], theirs: Mapping[str, Made]) -> list[str]:
    """Return the digests of which this rank has a living loader that the other rank never made.

    Living loaders are paired with living ones first. Those that are left are paired with closed
    ones, less those that belong to loaders that were closed here.
    """
    found: list[str] = []
    for digest, one in mine.items():
        other = theirs.get(digest)
        paired = other.living + max(other.closed - one.read, 0) if other is not None else 0
        if one.living > paired:
            found.append(digest)
    return found


# ---- where ranks are ----------------------------------------------------------------------------------------------

_Point = tuple[int, int]
_BEFORE = (0, -1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Walk:
    """The way of one loader's user through the plan. A point is an epoch and samples over all ranks.

    Attributes:
        start: where it began, or went to last other than by going on to the next epoch.
        begin: where the pass in progress began.
        at: how far that has come.
        done: everything before this was handed out earlier on this rank, if it matters at all.
        whole: whether the beginning of the walk was seen.
    """

    start: _Point
    begin: _Point
    at: _Point
    done: _Point = _BEFORE
    whole: bool = True

    @staticmethod
    def first(place: Place, *, whole: bool) -> "Walk":
        """Return the walk of a loader that was not known before."""
        begin = place.epoch, place.begin
        return Walk(start=begin, begin=begin, at=(place.epoch, place.reach), whole=whole)

    def gone_on(self, place: Place) -> "Walk":
        """Return the walk after the user came to this place."""
        begin, at = (place.epoch, place.begin), (place.epoch, place.reach)
        following = self.at[0] + 1, 0
        if begin in (self.begin, following):
            return Walk(start=self.start, begin=begin, at=at, done=self.done, whole=self.whole)
        return Walk(start=begin, begin=begin, at=at, done=max(self.done, following))

    def misses(self, other: "Walk", done: _Point) -> bool:
        """Return whether the other hands out what this one, and what was `done` on this rank before, leave out."""
        done = max(done, self.done)
        since = max(done, other.begin if other.whole else other.at)
        return since < self.start and (since < other.at or done == _BEFORE)


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


def describe_left(dataset: str, stays: tuple[str, Terms], left: tuple[str, Terms], at: _Point) -> str:
    """Return the error text where one rank left a loader for another one, and the other goes on with the first."""
    (who, terms), (whom, others) = stays, left
    return (
        f"all ranks of a job must leave a loader of dataset {dataset!r} at the same step: {whom} closed its loader with "
        f"{terms.unlike(others)} at sample {at[1]:,} of epoch {at[0]} and uses {others.unlike(terms)}, {who} goes on with "
        f"{terms.unlike(others)}{_in_words(terms, others)}. Have all ranks change at the same step, also after an error "
        "on one of them"
    )


def describe_places(dataset: str, mine: tuple[str, _Point], other: tuple[str, _Point]) -> str:
    """Return the error text for ranks that begin at different places."""
    (who, here), (whom, there) = mine, other
    return (
        f"all ranks of a job must begin at the same place of dataset {dataset!r}: {who} begins at sample {here[1]:,} of "
        f"epoch {here[0]}, {whom} at sample {there[1]:,} of epoch {there[0]}. Load the same state on all ranks, or on none"
    )
