"""The position of a job with token batches in its data, as a checkpoint keeps it.

Batches of similar length are not a prefix of the order, so one number does not describe what was
handed out. A layer does: with the layout that it names, and nothing else, the batches of one group
can be computed again.

Covers: the state, its JSON form, whether it belongs to a plan. Does not cover: what follows from it
(token_plan.py).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self, cast

from emlio.errors import ConfigError, PlanError
from emlio.planner.order import PLAN_VERSION, Shuffle
from emlio.planner.packed import Packed
from emlio.planner.padded import Padded
from emlio.planner.plan import Plan
from emlio.planner.state import check_same_order, state_value

__all__ = ["TOKEN_VERSION", "TokenLayer", "TokenState"]

TOKEN_VERSION: Final = 1
"""Raised whenever the same plan and lengths give other batches. States of different versions are
incompatible."""

_VERSION: Final = f"{PLAN_VERSION}/tokens/{TOKEN_VERSION}"
_MOST_LAYERS: Final = 1000
"""A state with more layers was not written by a training job."""

_PADDED = re.compile(r"padded:([0-9]{1,10})(:truncate)?")
_PACKED = re.compile(r"packed:([0-9]{1,10})x([0-9]{1,10})")


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLayer:
    """Batches of one group that were handed out, on all ranks.

    Attributes:
        origin: the epoch's place at which the group begins.
        world_size: the number of ranks.
        pool_records: records of one rank in a pool.
        cut: the rule by which batches were made.
        batches: the number of the group's batches that every rank had.
    """

    origin: int
    world_size: int
    pool_records: int
    cut: Padded | Packed
    batches: int

    def __post_init__(self) -> None:
        if not 0 <= self.origin < 2**63:
            raise ConfigError(f"a layer's origin must be in [0, 2**63), got {self.origin}")
        for name, value in (
            ("world_size", self.world_size),
            ("pool_records", self.pool_records),
            ("batches", self.batches),
        ):
            if not 1 <= value < 2**63:
                raise ConfigError(f"a layer's {name} must be in [1, 2**63), got {value}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenState:
    """A position: all places before `consumed`, and of those after it what the layers describe.

    Attributes:
        fingerprint: the fingerprint of the dataset.
        seed: the seed of the plan.
        shuffle: the shuffle mode of the plan.
        sampling: the mark of the plan's sampling; "" for every record once.
        tokens: the tokens of the whole dataset: tokens of another width give other batches.
        epoch: the current epoch.
        consumed: the number of places before the current group.
        layers: the layers, the oldest first. The last one is the current group if it begins at
            `consumed`.
    """

    fingerprint: str
    seed: int
    shuffle: Shuffle
    tokens: int
    epoch: int
    consumed: int
    layers: tuple[TokenLayer, ...] = ()
    sampling: str = ""

    def __post_init__(self) -> None:
        for name in ("seed", "tokens", "epoch", "consumed"):
            value: int = getattr(self, name)
            if not 0 <= value < 2**63:
                raise ConfigError(f"a state's {name} must be in [0, 2**63), got {value}")
        if not 0 < len(self.fingerprint) <= 128:
            raise ConfigError(f"a state's fingerprint must have 1 to 128 characters, got {len(self.fingerprint)}")
        if len(self.layers) > _MOST_LAYERS:
            raise ConfigError(f"a state must have at most {_MOST_LAYERS} layers, got {len(self.layers)}")
        origins = [*(layer.origin for layer in self.layers), self.consumed]
        if origins != sorted(origins):
            raise ConfigError(f"a state's layers must have increasing origins below consumed, got {origins}")

    def to_json(self) -> dict[str, object]:
        """Return a dictionary for json.dumps: less than 1 KB with up to ten layers."""
        document: dict[str, object] = {
            "version": _VERSION,
            "fingerprint": self.fingerprint,
            "seed": self.seed,
            "shuffle": str(self.shuffle),
            "tokens": self.tokens,
            "epoch": self.epoch,
            "consumed": self.consumed,
            "layers": [
                [layer.origin, layer.world_size, layer.pool_records, str(layer.cut), layer.batches]
                for layer in self.layers
            ],
        }
        return document | {"sampling": self.sampling} if self.sampling else document

    @classmethod
    def from_json(cls, document: Mapping[str, object]) -> Self:
        """Return the state that `to_json` wrote; unknown keys are ignored.

        Raises:
            PlanError: it was written by another version, or without token batches.
            ConfigError: a key is missing or of the wrong type.
        """
        version = state_value(document, "version")
        if version != _VERSION:
            raise PlanError(f"a state of token batches must be of version {_VERSION!r}, got version {version!r}")
        return cls(
            fingerprint=_text(state_value(document, "fingerprint"), "fingerprint"),
            seed=_integer(state_value(document, "seed"), "seed"),
            shuffle=Shuffle.parse(_text(state_value(document, "shuffle"), "shuffle")),
            tokens=_integer(state_value(document, "tokens"), "tokens"),
            epoch=_integer(state_value(document, "epoch"), "epoch"),
            consumed=_integer(state_value(document, "consumed"), "consumed"),
            layers=tuple(_layer(item) for item in _list(state_value(document, "layers"), "layers")),
            sampling=_text(document["sampling"], "sampling") if "sampling" in document else "",
        )

    def check(self, plan: Plan, tokens: int) -> None:
        """Check that a job with this plan and number of tokens may continue from here.

        The layout may differ.

        Raises:
            PlanError: the state is of another dataset, seed, shuffle or width of tokens; the error
                names both values.
        """
        check_same_order(self.fingerprint, self.seed, self.shuffle, self.sampling, plan)
        if self.tokens != tokens:
            raise PlanError(f"a state must have the same number of tokens as the plan, {tokens}, got {self.tokens}")
        if self.consumed > plan.places:
            raise PlanError(
                f"a state must have consumed at most the {plan.places} records of an epoch, got {self.consumed}"
            )


def _layer(item: object) -> TokenLayer:
    values = _list(item, "layer")
    if len(values) != 5:
        raise ConfigError(f"a state's layer must have 5 items, got {values!r}")
    origin, world_size, pool_records, cut, batches = values
    return TokenLayer(
        origin=_integer(origin, "origin"),
        world_size=_integer(world_size, "world_size"),
        pool_records=_integer(pool_records, "pool_records"),
        cut=_cut(_text(cut, "cut")),
        batches=_integer(batches, "batches"),
    )


def _cut(text: str) -> Padded | Packed:
    padded = _PADDED.fullmatch(text)
    if padded is not None:
        return Padded(max_tokens=int(padded[1]), truncate=padded[2] is not None)
    packed = _PACKED.fullmatch(text)
    if packed is not None:
        return Packed(rows=int(packed[1]), row_tokens=int(packed[2]))
    raise ConfigError(
        f"a state's cut must be 'padded:TOKENS', 'padded:TOKENS:truncate' or 'packed:ROWSxTOKENS', got {text!r}"
    )


def _integer(value: object, key: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ConfigError(f"a state's {key!r} must be an integer, got {value!r}")
    return value


def _text(value: object, key: str) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"a state's {key!r} must be a string, got {value!r}")
    return value


def _list(value: object, key: str) -> list[object]:
    if not isinstance(value, list | tuple):
        raise ConfigError(f"a state's {key!r} must be a list, got {value!r}")
    return list(cast("list[object]", value))
