"""The plan: a pure function of dataset and spec that gives the record at each place.

Covers: the plan as a whole, and the digest that two sides compare. Does not cover: an epoch's
arithmetic (epoch.py), orders (order.py), which daemon sends what (owners.py).
"""

import hashlib
from typing import Final

from emlio.errors import ConfigError
from emlio.planner.catalog import Catalog
from emlio.planner.epoch import CHUNK, EpochPlan, stretches, walk
from emlio.planner.order import PLAN_VERSION
from emlio.planner.spec import PlanSpec

__all__ = ["CHUNK", "PLAN_VERSION", "EpochPlan", "Plan", "PlanSpec", "stretches", "walk"]

_PROBED_EPOCHS: Final = (0, 1, 2, 1000)
_PROBED_SLOTS: Final = 4


class Plan:
    """All epochs of one dataset under one spec. Immutable, so threads may share it.

    Attributes:
        catalog: the dataset.
        spec: the spec.
        places: the number of places of an epoch.
        digest: 64 hex digits that two sides compare before they work together.
    """

    __slots__ = ("catalog", "digest", "places", "spec")

    def __init__(self, catalog: Catalog, spec: PlanSpec) -> None:
        samples = spec.batch_size * spec.world_size
        places = spec.sampling.places(catalog)
        if spec.drop_last and samples > places:
            raise ConfigError(
                f"with drop_last batch_size x world_size must be at most the {places} records of the "
                f"epoch, got {spec.batch_size} x {spec.world_size} = {samples}: an epoch would have no steps "
                "(for batches of tokens the size is that of their pool)"
            )
        self.catalog: Final = catalog
        self.spec: Final = spec
        self.places: Final = places
        self.digest: Final = self._digest()

    def epoch(self, epoch: int, origin: int = 0) -> EpochPlan:
        """Return one epoch.

        Args:
            epoch: its number, from 0.
            origin: the number of its places handed out before, over all ranks, whatever their
                number was.
        """
        return EpochPlan(catalog=self.catalog, spec=self.spec, epoch=epoch, origin=origin)

    def _digest(self) -> str:
        """Return a hash of the inputs and of some results.

        Two builds that compute differently must not have equal digests.
        """
        spec = self.spec
        inputs: tuple[object, ...] = (
            PLAN_VERSION,
            self.catalog.fingerprint,
            spec.seed,
            str(spec.shuffle),
            spec.batch_size,
            spec.world_size,
            int(spec.drop_last),
            int(spec.pad),
        )
        chosen = str(spec.sampling)
        if chosen:
            inputs = (*inputs, chosen)
        state = hashlib.sha256("/".join(str(value) for value in inputs).encode())
        for number in _PROBED_EPOCHS:
            epoch = self.epoch(number)
            for rank in sorted({0, spec.world_size // 2, spec.world_size - 1}):
                slots = epoch.slots(rank)
                for first in (0, max(slots - _PROBED_SLOTS, 0)):
                    ids = epoch.ids(rank, first, min(first + _PROBED_SLOTS, slots))
                    state.update(ids.astype("<i8").tobytes())
        return state.hexdigest()
