"""The position of a job in its data, as a checkpoint keeps it.

Covers: the state, its JSON form, whether it belongs to a dataset and spec. It does not depend on
ranks and batches, so it is the same on all ranks and fits another number of them. Does not cover:
counting what was handed out (the loader).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self, cast

from emlio.errors import ConfigError, PlanError
from emlio.planner.mixture.sampling import MixtureSampling
from emlio.planner.order import PLAN_VERSION, Shuffle
from emlio.planner.plan import Plan
from emlio.planner.sampling import mark_in_words, sampling_mark

__all__ = ["PlanState", "integer_of", "order_of", "text_of", "value_of"]

_NEWER = "If the dataset has a newer generation, name in the address the one that the state is of, as in NAME@1"
_MIXED = "A mixture must have the datasets, and the order of them, with which the state was saved"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanState:
    """A position: samples up to here were handed to the user; those after it were not.

    Attributes:
        fingerprint: the fingerprint of the dataset.
        seed: the seed of the plan.
        shuffle: the shuffle mode of the plan.
        sampling: the mark of the plan's sampling; "" for every record once.
        epoch: the current epoch.
        consumed: the number of places of this epoch that were handed out, over all ranks.
    """

    fingerprint: str
    seed: int
    shuffle: Shuffle
    epoch: int
    consumed: int
    sampling: str = ""

    def __post_init__(self) -> None:
        for name in ("seed", "epoch", "consumed"):
            value: int = getattr(self, name)
            if not 0 <= value < 2**63:
                raise ConfigError(f"a state's {name} must be in [0, 2**63), got {value}")
        if not 0 < len(self.fingerprint) <= 128:
            raise ConfigError(f"a state's fingerprint must have 1 to 128 characters, got {len(self.fingerprint)}")

    def to_json(self) -> dict[str, Any]:
        """Return a dictionary of less than 1 KB for json.dumps."""
        document = {
            "version": PLAN_VERSION,
            "fingerprint": self.fingerprint,
            "seed": self.seed,
            "shuffle": str(self.shuffle),
            "epoch": self.epoch,
            "consumed": self.consumed,
        }
        return document | {"sampling": self.sampling} if self.sampling else document

    @classmethod
    def from_json(cls, document: Mapping[str, object]) -> Self:
        """Return the state that `to_json` wrote; unknown keys are ignored.

        Raises:
            PlanError: it was written by another version of the plan, whose order differs.
            ConfigError: a key is missing or of the wrong type.
        """
        version = integer_of(document, "version")
        if version != PLAN_VERSION:
            raise PlanError(f"a state must be of plan version {PLAN_VERSION}, got version {version}")
        return cls(**order_of(document))

    def check(self, plan: Plan) -> None:
        """Check that a job with this plan may continue from here.

        Raises:
            PlanError: the state is of another dataset, seed or shuffle; the error names both
                values.
        """
        catalog, spec = plan.catalog, plan.spec
        if self.fingerprint != catalog.fingerprint:
            raise PlanError(
                f"state of another dataset: its fingerprint is {self.fingerprint}, this dataset's is "
                f"{catalog.fingerprint}. " + (_MIXED if isinstance(spec.sampling, MixtureSampling) else _NEWER)
            )
        if self.seed != spec.seed:
            raise PlanError(
                f"state of another order: it was saved with seed={self.seed}, this loader has seed={spec.seed}"
            )
        if self.shuffle != spec.shuffle:
            raise PlanError(
                f"state of another order: it was saved with {self.shuffle.argument}, this loader has "
                f"{spec.shuffle.argument}"
            )
        if self.sampling != sampling_mark(spec.sampling):
            raise PlanError(
                f"state of another choice of records: it was saved with {mark_in_words(self.sampling)}, this loader "
                f"has {mark_in_words(sampling_mark(spec.sampling))}"
            )
        if self.consumed > plan.places:
            raise PlanError(
                f"a state must have consumed at most the {plan.places} records of an epoch, got {self.consumed}"
            )


def order_of(document: Mapping[str, object]) -> dict[str, Any]:
    """Return what the states of all kinds of batches have in common, read from a saved one.

    Raises:
        ConfigError: a key is missing or of the wrong type.
    """
    return {
        "fingerprint": text_of(document, "fingerprint"),
        "seed": integer_of(document, "seed"),
        "shuffle": Shuffle.parse(text_of(document, "shuffle")),
        "epoch": integer_of(document, "epoch"),
        "consumed": integer_of(document, "consumed"),
        "sampling": text_of(document, "sampling") if "sampling" in document else "",
    }


def value_of(document: Mapping[str, object], key: str) -> object:
    """Return one value of a saved state.

    Raises:
        ConfigError: the document is not a state, or has no such key.
    """
    if not isinstance(cast("object", document), Mapping):
        raise ConfigError(f"a state must be a dictionary that state_dict() returned, got {document!r}")
    if key not in document:
        raise ConfigError(f"a state must have the key {key!r}, has only {sorted(document)}")
    return document[key]


def integer_of(document: Mapping[str, object], key: str) -> int:
    """Return a whole number of a saved state, see `value_of`."""
    value = value_of(document, key)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ConfigError(f"a state's {key!r} must be an integer, got {value!r}")
    return value


def text_of(document: Mapping[str, object], key: str) -> str:
    """Return a text of a saved state, see `value_of`."""
    value = value_of(document, key)
    if not isinstance(value, str):
        raise ConfigError(f"a state's {key!r} must be a string, got {value!r}")
    return value
