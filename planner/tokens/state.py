"""The position of a job with token batches in its data, as a checkpoint keeps it.

Batches of similar length are not a prefix of the order, so one number does not describe what was
handed out. A layer does: with the layout that it names, and nothing else, the batches of one group
can be computed again.

Covers: the state, its JSON form, whether it belongs to a plan. Does not cover: what follows from it
(plan.py).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self, cast

import msgspec

from emlio.errors import ConfigError, PlanError
from emlio.planner.order import PLAN_VERSION
from emlio.planner.plan import Plan
from emlio.planner.state import PlanState, integer_of, order_of, text_of, value_of
from emlio.planner.tokens.packed import Packed
from emlio.planner.tokens.padded import Padded

__all__ = ["TOKEN_VERSION", "TokenLayer", "TokenState"]

TOKEN_VERSION: Final = 1
"""Raised whenever the same plan and lengths give other batches. States of different versions are
incompatible."""

_VERSION: Final = f"{PLAN_VERSION}/tokens/{TOKEN_VERSION}"
_MOST_LAYERS: Final = 1000
"""A state with more layers was not written by a training job."""

_LAYER: Final[tuple[str, ...]] = ("origin", "world_size", "pool_records", "cut", "batches")
_PADDED = re.compile(r"padded:([0-9]{1,10})(:truncate)?")
_PACKED = re.compile(r"packed:([0-9]{1,10})x([0-9]{1,10})")


class TokenLayer(msgspec.Struct, frozen=True, kw_only=True):
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
        for name in ("world_size", "pool_records", "batches"):
            value: int = getattr(self, name)
            if not 1 <= value < 2**63:
                raise ConfigError(f"a layer's {name} must be in [1, 2**63), got {value}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenState(PlanState):
    """A position: all places before `consumed`, and of those after it what the layers describe.

    `consumed` is the number of places before the current group.

    Attributes:
        tokens: the tokens of the whole dataset: tokens of another width give other batches.
        layers: the layers, the oldest first. The last one is the current group if it begins at
            `consumed`.
    """

    tokens: int
    layers: tuple[TokenLayer, ...] = ()

    def __post_init__(self) -> None:
        PlanState.__post_init__(self)
        if not 0 <= self.tokens < 2**63:
            raise ConfigError(f"a state's tokens must be in [0, 2**63), got {self.tokens}")
        if len(self.layers) > _MOST_LAYERS:
            raise ConfigError(f"a state must have at most {_MOST_LAYERS} layers, got {len(self.layers)}")
        origins = [*(layer.origin for layer in self.layers), self.consumed]
        if origins != sorted(origins):
            raise ConfigError(f"a state's layers must have increasing origins below consumed, got {origins}")

    def to_json(self) -> dict[str, Any]:
        """Return a dictionary for json.dumps: less than 1 KB with up to ten layers."""
        layers = [
            [layer.origin, layer.world_size, layer.pool_records, str(layer.cut), layer.batches] for layer in self.layers
        ]
        return PlanState.to_json(self) | {"version": _VERSION, "tokens": self.tokens, "layers": layers}

    @classmethod
    def from_json(cls, document: Mapping[str, object]) -> Self:
        """Return the state that `to_json` wrote; unknown keys are ignored.

        Raises:
            PlanError: it was written by another version, or without token batches.
            ConfigError: a key is missing or of the wrong type.
        """
        version = value_of(document, "version")
        if version != _VERSION:
            raise PlanError(f"a state of token batches must be of version {_VERSION!r}, got version {version!r}")
        layers = tuple(_layer(item) for item in _list(value_of(document, "layers"), "layers"))
        return cls(**order_of(document), tokens=integer_of(document, "tokens"), layers=layers)

    def check_tokens(self, plan: Plan, tokens: int) -> None:
        """Check that a job with this plan and number of tokens may continue from here.

        The layout may differ.

        Raises:
            PlanError: the state is of another dataset, seed, shuffle or width of tokens; the error
                names both values.
        """
        self.check(plan)
        if self.tokens != tokens:
            raise PlanError(f"a state must have the same number of tokens as the plan, {tokens}, got {self.tokens}")


def _layer(item: object) -> TokenLayer:
    values = _list(item, "layer")
    if len(values) != len(_LAYER):
        raise ConfigError(f"a state's layer must have {len(_LAYER)} items, got {values!r}")
    layer: dict[str, object] = dict(zip(_LAYER, values, strict=True))
    numbers = {name: integer_of(layer, name) for name in _LAYER if name != "cut"}
    return TokenLayer(cut=_cut(text_of(layer, "cut")), **numbers)


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


def _list(value: object, key: str) -> list[object]:
    if not isinstance(value, list | tuple):
        raise ConfigError(f"a state's {key!r} must be a list, got {value!r}")
    return list(cast("list[object]", value))
