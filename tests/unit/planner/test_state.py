import dataclasses
import json

import pytest

from emlio.errors import ConfigError, PlanError
from emlio.planner.catalog import Catalog, ShardEntry
from emlio.planner.order import Shuffle
from emlio.planner.plan import PLAN_VERSION, Plan, PlanSpec
from emlio.planner.state import PlanState

_CATALOG = Catalog(shards=(ShardEntry(name="a", records=100, size_bytes=1000, digest="x"),))
_SPEC = PlanSpec(seed=7, batch_size=4, world_size=2)
_STATE = PlanState(fingerprint=_CATALOG.fingerprint, seed=7, shuffle=Shuffle(), epoch=3, consumed=40)


def test_a_state_is_what_its_json_says() -> None:
    assert _STATE.to_json() == {
        "version": PLAN_VERSION,
        "fingerprint": _CATALOG.fingerprint,
        "seed": 7,
        "shuffle": "global",
        "epoch": 3,
        "consumed": 40,
    }


@pytest.mark.parametrize("shuffle", ["global", "block", "block:7:3", "shard", "none"])
def test_a_state_survives_json_in_under_a_kilobyte(shuffle: str) -> None:
    state = PlanState(
        fingerprint="f" * 128, seed=2**63 - 1, shuffle=Shuffle.parse(shuffle), epoch=2**63 - 1, consumed=2**40
    )
    text = json.dumps(state.to_json())
    assert len(text) < 1024
    assert PlanState.from_json(json.loads(text)) == state


def test_a_state_knows_nothing_of_ranks_and_batches() -> None:
    _STATE.check(Plan(_CATALOG, _SPEC))
    _STATE.check(Plan(_CATALOG, dataclasses.replace(_SPEC, batch_size=9, world_size=5, drop_last=True)))
    assert Plan(_CATALOG, _SPEC).epoch(_STATE.epoch, _STATE.consumed).origin == 40


def test_a_state_of_another_plan_version_is_refused() -> None:
    with pytest.raises(PlanError, match="must be of plan version 1, got version 2"):
        PlanState.from_json(_STATE.to_json() | {"version": 2})


@pytest.mark.parametrize("key", ["version", "fingerprint", "seed", "shuffle", "epoch", "consumed"])
def test_a_missing_key_is_named(key: str) -> None:
    document = _STATE.to_json()
    del document[key]
    with pytest.raises(ConfigError, match=f"must have the key '{key}', has only"):
        PlanState.from_json(document)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("version", "1"),
        ("version", True),
        ("fingerprint", 5),
        ("seed", 1.0),
        ("seed", None),
        ("shuffle", True),
        ("epoch", "3"),
        ("consumed", [40]),
        ("consumed", False),
    ],
)
def test_a_value_of_the_wrong_type_is_named(key: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"'{key}' must be an? (integer|string), got") as caught:
        PlanState.from_json(_STATE.to_json() | {key: value})
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("seed", -1),
        ("epoch", 2**63),
        ("consumed", -5),
        ("fingerprint", ""),
        ("fingerprint", "f" * 129),
        ("shuffle", "x"),
    ],
)
def test_an_impossible_value_is_refused(key: str, value: int | str) -> None:
    with pytest.raises(ConfigError, match=f"{key} must"):
        PlanState.from_json(_STATE.to_json() | {key: value})


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        ("fingerprint", "0" * 32, ("state of another dataset", "0" * 32, _CATALOG.fingerprint)),
        ("seed", 8, ("saved with seed=8", "has seed=7")),
        ("shuffle", Shuffle.parse("block:7:3"), ("saved with shuffle='block:7:3'", "has shuffle=True")),
        ("consumed", 101, ("at most", "100 records", "got 101")),
    ],
)
def test_a_state_of_another_dataset_or_order_is_refused_with_both_values(
    field: str, value: object, named: tuple[str, ...]
) -> None:
    with pytest.raises(PlanError) as caught:
        dataclasses.replace(_STATE, **{field: value}).check(Plan(_CATALOG, _SPEC))  # type: ignore[arg-type]
    assert all(part in str(caught.value) for part in named)
