"""A sampling: a subset of the records, all of it, and each record several times.

The chosen records form a dataset of their own, with the same shards, and are put in order as such. So each shuffle mode means
what it means for the whole dataset. With `repeat=K`, epoch e consists of the orders of K epochs: those numbered e*K to
e*K + K-1 without it.

Covers: the number of places, their order, which time of a record a place is. Does not cover: which records a subset chooses
(fraction.py, record_set.py), weights (weighted.py), the text (text.py).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from emlio.errors import ConfigError
from emlio.planner.catalog import Catalog
from emlio.planner.choice.selection import Selected, Subset
from emlio.planner.order import Order, Shuffle, ShuffleMode, make_order
from emlio.planner.permutation import LARGEST

__all__ = ["CHOICE", "MOST_REPEATS", "Choice"]

CHOICE: Final = "choice "
"""The beginning of the text of a choice."""

MOST_REPEATS: Final = 2**20

_ORDERS_KEPT: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A subset, and how often each of its records comes in an epoch.

    Attributes:
        subset: the records; None for all.
        repeat: the number of times that each comes.
    """

    subset: Subset | None = None
    repeat: int = 1
    _made: dict[str, Selected] = field(default_factory=dict[str, Selected], init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not 1 <= self.repeat <= MOST_REPEATS:
            raise ConfigError(f"repeat must be a whole number in [1, {MOST_REPEATS}], got {self.repeat}")
        if self.subset is None and self.repeat == 1:
            raise ConfigError("a choice must have a subset or repeat records, got neither")

    def __str__(self) -> str:
        """Return the text that `parse_choice` reads."""
        parts = ([] if self.subset is None else [str(self.subset)]) + (
            [f"repeat={self.repeat}"] if self.repeat > 1 else []
        )
        return CHOICE + " ".join(parts)

    def places(self, catalog: Catalog) -> int:
        """See `Sampling`."""
        places = self._within(catalog).records * self.repeat
        if places > LARGEST:
            raise ConfigError(
                f"an epoch must have at most {LARGEST} samples, got {places // self.repeat:,} records "
                f"x {self.repeat} repeats"
            )
        return places

    def order(self, catalog: Catalog, shuffle: Shuffle, seed: int, epoch: int) -> Order:
        """See `Sampling`."""
        selected = None if self.subset is None else self._selected(catalog)
        within = catalog if selected is None else selected.within
        in_order = shuffle.mode is not ShuffleMode.GLOBAL

        def one_pass(number: int) -> Order:
            order = make_order(within, shuffle, seed, epoch * self.repeat + number)
            return order if selected is None else _ChosenOrder(order, selected, in_order=in_order)

        return one_pass(0) if self.repeat == 1 else _RepeatedOrder(within.records, one_pass)

    def is_fixed(self, shuffle: Shuffle) -> bool:
        """See `Sampling`."""
        return shuffle.mode is ShuffleMode.NONE

    def _within(self, catalog: Catalog) -> Catalog:
        return catalog if self.subset is None else self._selected(catalog).within

    def _selected(self, catalog: Catalog) -> Selected:
        assert self.subset is not None
        selected = self._made.get(catalog.fingerprint)
        if selected is None:
            # Kept for one catalog: a loader has no other. Two threads may both make it, which does no harm.
            selected = self.subset.select(catalog)
            self._made.clear()
            self._made[catalog.fingerprint] = selected
        return selected


class _ChosenOrder:
    """An order of chosen records, by their ids in the whole dataset."""

    __slots__ = ("_in_order", "_order", "_selected")

    def __init__(self, order: Order, selected: Selected, *, in_order: bool) -> None:
        self._order = order
        self._selected = selected
        self._in_order = in_order

    def ids(self, places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return self._selected.records(self._order.ids(places), in_order=self._in_order)


class _RepeatedOrder:
    """Orders of the same records, one behind the other."""

    __slots__ = ("_make", "_orders", "_records")

    def __init__(self, records: int, make: Callable[[int], Order]) -> None:
        self._records = records
        self._make = make
        self._orders: dict[int, Order] = {}

    def ids(self, places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        passes, within = np.divmod(places, self._records)
        ids = np.empty_like(places)
        for number in np.unique(passes).tolist():
            here = passes == number
            ids[here] = self._order(number).ids(within[here])
        return ids

    def times(self, places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return places // self._records

    def _order(self, number: int) -> Order:
        orders = self._orders
        order = orders.get(number)
        if order is None:
            order = self._make(number)
            # A new dictionary each time, as threads share an order: one that was lost is made again.
            kept = sorted(orders, key=lambda known: abs(known - number))[: _ORDERS_KEPT - 1]
            self._orders = {**{known: orders[known] for known in kept}, number: order}
        return order
