"""The state of a job with token batches: JSON, versions, what it belongs to."""

import dataclasses
import json

import msgspec
import pytest

from emlio.errors import ConfigError, PlanError
from emlio.planner.catalog import Catalog, ShardEntry
from emlio.planner.order import Shuffle
from emlio.planner.plan import Plan, PlanSpec
from emlio.planner.state import PlanState
from emlio.planner.tokens.packed import Packed
from emlio.planner.tokens.padded import Padded
from emlio.planner.tokens.state import TokenLayer, TokenState

_PLAN = Plan(
    Catalog(shards=(ShardEntry(name="a", records=100, size_bytes=1000, digest="x"),)),
    PlanSpec(seed=7, batch_size=4, world_size=2),
)
_LAYER = TokenLayer(origin=8, world_size=2, pool_records=4, cut=Padded(max_tokens=64), batches=1)
_STATE = TokenState(
    fingerprint=_PLAN.catalog.fingerprint,
    seed=7,
    shuffle=Shuffle(),
    tokens=900,
    epoch=3,
    consumed=16,
    layers=(_LAYER, msgspec.structs.replace(_LAYER, origin=16, cut=Packed(row_tokens=32, rows=2))),
)


def test_a_state_is_what_its_json_says() -> None:
    assert _STATE.to_json() == {
        "version": "1/tokens/1",
        "fingerprint": _PLAN.catalog.fingerprint,
        "seed": 7,
        "shuffle": "global",
        "tokens": 900,
        "epoch": 3,
        "consumed": 16,
        "layers": [[8, 2, 4, "padded:64", 1], [16, 2, 4, "packed:2x32", 1]],
    }


@pytest.mark.parametrize(
    "cut", [Padded(max_tokens=2**31 - 1, truncate=True), Padded(max_tokens=5), Packed(row_tokens=2**31 - 1, rows=512)]
)
def test_a_state_with_ten_layers_survives_json_in_under_a_kilobyte(cut: Padded | Packed) -> None:
    layer = TokenLayer(origin=10**12, world_size=1024, pool_records=65536, cut=cut, batches=10**6)
    state = dataclasses.replace(
        _STATE, seed=2**63 - 1, tokens=2**62, epoch=10**6, consumed=10**12, layers=(layer,) * 10
    )
    text = json.dumps(state.to_json())
    assert len(text) < 1024
    assert TokenState.from_json(json.loads(text)) == state


def test_states_with_and_without_token_batches_are_not_taken_for_each_other() -> None:
    plain = PlanState(fingerprint="f", seed=7, shuffle=Shuffle(), epoch=3, consumed=16).to_json()
    with pytest.raises(PlanError, match="must be of version '1/tokens/1', got version 1"):
        TokenState.from_json(plain)
    with pytest.raises(ConfigError, match="'version' must be an integer"):
        PlanState.from_json(_STATE.to_json())


@pytest.mark.parametrize("key", ["version", "fingerprint", "seed", "shuffle", "tokens", "epoch", "consumed", "layers"])
def test_a_missing_key_is_named(key: str) -> None:
    document = _STATE.to_json()
    del document[key]
    with pytest.raises(ConfigError, match=f"must have the key '{key}', has only"):
        TokenState.from_json(document)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 1.0}, "'seed' must be an integer, got 1.0"),
        ({"epoch": True}, "'epoch' must be an integer, got True"),
        ({"shuffle": 5}, "'shuffle' must be a string, got 5"),
        ({"layers": 5}, "'layers' must be a list, got 5"),
        ({"layers": [5]}, "'layer' must be a list, got 5"),
        ({"layers": [[1, 2]]}, r"layer must have 5 items, got \[1, 2\]"),
        ({"layers": [[1, 2, 3, "padded", 5]]}, "cut must be 'padded:TOKENS'.* got 'padded'"),
        ({"layers": [[1, 2, 3, "padded:0", 5]]}, "max_tokens must be in"),
        ({"layers": [[1, 0, 3, "padded:4", 5]]}, "a layer's world_size must be in .*got 0"),
        ({"layers": [[-1, 1, 3, "padded:4", 5]]}, "a layer's origin must be in .*got -1"),
        ({"layers": [[17, 1, 3, "padded:4", 5]]}, r"increasing origins below consumed, got \[17, 16\]"),
        ({"layers": [[1, 1, 3, "padded:4", 5]] * 1001}, "at most 1000 layers, got 1001"),
        ({"tokens": -1}, "tokens must be in .*got -1"),
        ({"fingerprint": ""}, "fingerprint must have 1 to 128 characters"),
    ],
)
def test_an_impossible_state_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TokenState.from_json(_STATE.to_json() | change)


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        ("fingerprint", "0" * 32, ("state of another dataset", "0" * 32)),
        ("seed", 8, ("saved with seed=8", "has seed=7")),
        ("shuffle", Shuffle.parse("block:7:3"), ("saved with shuffle='block:7:3'", "has shuffle=True")),
        ("tokens", 450, ("number of tokens", "900", "got 450")),
        ("consumed", 101, ("at most", "100 records", "got 101")),
    ],
)
def test_a_state_of_another_dataset_order_or_width_is_refused_with_both_values(
    field: str, value: object, named: tuple[str, ...]
) -> None:
    _STATE.check_tokens(_PLAN, 900)
    with pytest.raises(PlanError) as caught:
        dataclasses.replace(_STATE, **{field: value}).check_tokens(_PLAN, 900)  # type: ignore[arg-type]  # one of each type
    assert all(part in str(caught.value) for part in named)
