"""A user's choice that needs the dataset before it is a sampling: predicates, and weights.

The daemons are asked predicates, and answer with a bit for each record. Weights of classes are found the same way: the classes
are numbered, and one predicate for each binary digit of the numbers tells a record's class. A thousand classes take ten
predicates. Classes given by name are numbered apart from those given by number: only daemons know which names are which numbers,
so only their answers show that a class was given both ways.

Covers: the predicates to ask, the sampling that follows from the answers. Does not cover: asking
(emlio.receiver.machine), the samplings (choice.py, weighted.py).
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from emlio.errors import ConfigError
from emlio.planner.catalog import Catalog
from emlio.planner.choice.choice import Choice
from emlio.planner.choice.predicate import parse_predicate
from emlio.planner.choice.record_set import RecordSet
from emlio.planner.choice.record_weights import RecordWeights
from emlio.planner.choice.selection import Subset
from emlio.planner.choice.weighted import MOST_DRAWS, Weighted
from emlio.planner.choice.where import Where
from emlio.planner.order import Order, Shuffle
from emlio.planner.permutation import LARGEST

__all__ = ["OTHERS", "ClassWeights", "GivenWeights", "Wanted", "set_of_ids"]

OTHERS: Final = "*"
"""The name of all classes that have no weight of their own."""

Bits = npt.NDArray[np.uint8]


def set_of_ids(ids: npt.NDArray[Any], words: str = "the ids of a subset") -> RecordSet:
    """Return the set of these ids.

    Args:
        ids: ids of records, in any order, each once.
        words: what they are, for errors.

    Raises:
        ConfigError: there are none, or one is not valid.
    """
    if ids.ndim == 1 and not ids.size:
        raise ConfigError(f"{words} must be a list of at least one whole number, got an empty list")
    if ids.ndim != 1 or ids.dtype.kind not in "iu":
        raise ConfigError(f"{words} must be a list of at least one whole number, got {ids.dtype} of shape {ids.shape}")
    wrong = np.flatnonzero((ids < 0) | (ids >= LARGEST))
    if wrong.size:
        raise ConfigError(f"{words} must be in [0, {LARGEST}), got {ids[wrong[0]]} at position {wrong[0]}")
    numbers = ids.astype(np.int64)
    if bool((np.diff(numbers) > 0).all()):
        return RecordSet.of_ids(numbers)
    order = np.argsort(numbers, kind="stable")
    rising = numbers[order]
    again = order[1:][rising[1:] == rising[:-1]]
    if again.size:
        first = int(again.min())
        raise ConfigError(f"{words} must hold each id once, got {numbers[first]} again at position {first}")
    return RecordSet.of_ids(rising)


class GivenWeights(msgspec.Struct, frozen=True, eq=False):
    """A weight for each record."""

    weights: RecordWeights

    @property
    def questions(self) -> tuple[str, ...]:
        """See `Wanted`."""
        return ()

    def of_records(
        self, catalog: Catalog, answers: Sequence[Bits]
    ) -> tuple[npt.NDArray[np.float64], tuple[int | str, ...]]:
        """Return the weight of each record, and no class that has none."""
        if self.weights.count != catalog.records:
            raise ConfigError(
                f"weights must be given for each of {catalog.records:,} records of the dataset, got {self.weights.count:,}"
            )
        return np.diff(self.weights.before(np.arange(catalog.records + 1, dtype=np.int64))).astype(np.float64), ()


class ClassWeights(msgspec.Struct, frozen=True, eq=False):
    """A weight for each class.

    Attributes:
        weights: by class, its number or its name; "*" stands for all others.
        column: the column that holds the class.
    """

    weights: Mapping[int | str, float]
    column: str

    def __post_init__(self) -> None:
        for name, weight in self.weights.items():
            if not np.isfinite(weight) or weight < 0:
                raise ConfigError(f"weights must be finite and at least 0, got {weight!r} for class {name!r}")
        if not any(self.weights.values()):
            raise ConfigError("weights must be above 0 for at least one class, all are 0")
        for question in self.questions:
            parse_predicate(question)

    @property
    def _kinds(self) -> tuple[list[int | str], list[int | str]]:
        """The classes given by number, and those given by name."""
        named: list[int | str] = [name for name in self.weights if isinstance(name, str) and name != OTHERS]
        return [name for name in self.weights if not isinstance(name, str)], named

    @property
    def questions(self) -> tuple[str, ...]:
        """See `Wanted`: of each kind of classes one for each binary digit of their numbers, which begin at 1."""
        column = self.column.replace("`", "``")
        return tuple(
            f"`{column}` in {{{', '.join(_quoted(name) for number, name in enumerate(classes, 1) if number >> digit & 1)}}}"
            for classes in self._kinds
            for digit in range(len(classes).bit_length())
        )

    def of_records(
        self, catalog: Catalog, answers: Sequence[Bits]
    ) -> tuple[npt.NDArray[np.float64], tuple[int | str, ...]]:
        """Return the weight of each record, and the classes that no record has."""
        numbered, named = self._kinds
        digits = len(numbered).bit_length()
        classes = _numbers_of(catalog, answers[:digits], len(numbered))
        by_name = _numbers_of(catalog, answers[digits:], len(named))
        both = np.flatnonzero((classes > 0) & (by_name > 0))
        if both.size:
            number, name = (int(found[both[0]]) - 1 for found in (classes, by_name))
            raise ConfigError(
                f"weights must name each class once, got {numbered[number]} and {named[name]!r}, which are the same class"
            )
        classes += np.where(by_name > 0, by_name + np.int32(len(numbered)), np.int32(0))
        others = int(np.count_nonzero(classes == 0))
        if others and OTHERS not in self.weights:
            raise ConfigError(
                f"weights must be given for the classes of all records, {others:,} of {catalog.records:,} have another "
                f"class or none. Give {OTHERS!r} a weight for all others: 0 leaves them out"
            )
        names = (*numbered, *named)
        present = np.bincount(classes, minlength=len(names) + 1)[1:]
        table = [self.weights.get(OTHERS, 0.0), *(self.weights[name] for name in names)]
        return np.array(table, np.float64)[classes], tuple(
            name for name, count in zip(names, present.tolist(), strict=True) if not count
        )


def _numbers_of(catalog: Catalog, answers: Sequence[Bits], most: int) -> npt.NDArray[np.int32]:
    """Return the number of each record's class, from its binary digits; 0 for none."""
    found = np.zeros(catalog.records, np.int32)
    for digit, bits in enumerate(answers):
        found += np.unpackbits(bits, count=catalog.records, bitorder="little").astype(np.int32) << digit
    if int(found.max(initial=0)) > most:
        raise ConfigError("daemons must agree on the classes of records, they gave a class that does not exist")
    return found


def _quoted(name: int | str) -> str:
    if not isinstance(name, str):
        return str(name)
    quote = '"' if "'" in name else "'"
    return f"{quote}{name.replace(quote, 2 * quote)}{quote}"


class Wanted(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A choice that is not settled yet.

    Attributes:
        subset: the records; None for all.
        repeat: how often each comes; only without weights.
        weights: the records' weights; None for equal ones, without replacement.
        samples: the draws of an epoch; None for as many as there are records. Only with weights.
    """

    subset: Subset | None = None
    repeat: int = 1
    weights: ClassWeights | GivenWeights | None = None
    samples: int | None = None

    def __post_init__(self) -> None:
        if self.weights is None and self.samples is not None:
            raise ConfigError(f"samples must be given with weights only, got samples={self.samples} without")
        if self.weights is not None and self.repeat != 1:
            raise ConfigError(
                f"repeat must be 1 with weights, which draw with replacement, got repeat={self.repeat}. Give samples="
            )
        if self.samples is not None and not 1 <= self.samples <= MOST_DRAWS:
            raise ConfigError(f"samples must be a whole number in [1, {MOST_DRAWS}], got {self.samples}")

    @property
    def questions(self) -> tuple[str, ...]:
        """The predicates whose matches must be known before there is a plan."""
        where = (self.subset.predicate,) if isinstance(self.subset, Where) else ()
        return where + (() if self.weights is None else self.weights.questions)

    def settle(self, catalog: Catalog, answers: Sequence[Bits]) -> Choice | Weighted:
        """Return the sampling.

        Args:
            catalog: the whole dataset.
            answers: to each question, a bit for each record of the catalog.

        Raises:
            ConfigError: it does not fit the dataset, or nothing is left.
        """
        subset = self.subset
        if isinstance(subset, Where):
            subset, answers = subset.chosen(catalog, answers[0]), answers[1:]
        if self.weights is None:
            return Choice(subset=subset, repeat=self.repeat)
        weights, absent = self.weights.of_records(catalog, answers)
        records = catalog.records
        if subset is not None:
            selected = subset.select(catalog)
            weights[~selected.has(np.arange(records, dtype=np.int64))] = 0
            records = selected.within.records
        return Weighted(weights=RecordWeights.of(weights), samples=self.samples or records, absent=absent)

    def places(self, catalog: Catalog) -> int:
        """Refuse: see `settle`."""
        raise ConfigError(f"the choice of records must be settled first, got {self}")

    def order(self, catalog: Catalog, shuffle: Shuffle, seed: int, epoch: int) -> Order:
        """Refuse: see `settle`."""
        raise ConfigError(f"the choice of records must be settled first, got {self}")

    def is_fixed(self, shuffle: Shuffle) -> bool:
        """Refuse: see `settle`."""
        raise ConfigError(f"the choice of records must be settled first, got {self}")
