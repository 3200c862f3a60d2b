import dataclasses

import numpy as np
import pytest

from emlio.planner import permutation
from emlio.planner.catalog import Catalog, ShardEntry
from emlio.planner.order import Shuffle, make_order
from emlio.planner.plan import PLAN_VERSION, Plan, PlanSpec

_SIZES = (120, 0, 333, 75, 1, 471)
_CATALOG = Catalog(
    shards=tuple(
        ShardEntry(name=f"part-{number}", records=size, size_bytes=100 * size, digest=f"digest-{number}")
        for number, size in enumerate(_SIZES)
    )
)
_SPEC = PlanSpec(seed=42, batch_size=16, world_size=3)
_GOLDEN = {
    "global": ("d085af819a3efe7d7380fc8eb6eaa18e4df3f6326b1d1d32d42f07f1910693cd", [174, 875, 768, 403, 149, 694]),
    "block:16:4": ("f51806fc110a00b5d9ad3fbd08995c26628b3515e2abe8dbf198fcbbb3e1b53f", [391, 536, 18, 20, 40, 185]),
    "shard": ("adc4c456bb7a110342e92637aea44abed6d72937e49d384f45c6d99a2755c9b7", [483, 484, 517, 518, 519, 520]),
    "none": ("d87b422ff982501ab70d240f70bbaeca2b2b92788a9c508e2ce74e3a46531d77", [30, 31, 64, 65, 66, 67]),
}


@pytest.mark.parametrize("shuffle", list(_GOLDEN))
def test_plan_and_first_ids_are_those_of_version_1(shuffle: str) -> None:
    plan = Plan(_CATALOG, dataclasses.replace(_SPEC, shuffle=Shuffle.parse(shuffle)))
    digest, ids = _GOLDEN[shuffle]
    assert PLAN_VERSION == 1
    assert plan.epoch(1).ids(1, 14, 20).tolist() == ids
    assert plan.digest == digest


def test_the_digest_follows_from_everything_in_spec_and_dataset() -> None:
    specs = [
        _SPEC,
        dataclasses.replace(_SPEC, seed=43),
        dataclasses.replace(_SPEC, batch_size=17),
        dataclasses.replace(_SPEC, world_size=4),
        dataclasses.replace(_SPEC, drop_last=True),
        dataclasses.replace(_SPEC, pad=True),
        *(
            dataclasses.replace(_SPEC, shuffle=Shuffle.parse(text))
            for text in ("block", "block:256:63", "block:255:64", "shard", "none")
        ),
    ]
    digests = {Plan(_CATALOG, spec).digest for spec in specs}
    renamed = dataclasses.replace(_CATALOG.shards[0], digest="other")
    digests.add(Plan(Catalog(shards=(renamed, *_CATALOG.shards[1:])), _SPEC).digest)
    assert len(digests) == len(specs) + 1
    assert Plan(Catalog(shards=_CATALOG.shards), dataclasses.replace(_SPEC)).digest == Plan(_CATALOG, _SPEC).digest


def test_a_build_that_computes_another_order_has_another_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = Plan(_CATALOG, _SPEC).digest
    monkeypatch.setattr(permutation, "_ROUNDS_SMALL", 26)
    assert Plan(_CATALOG, _SPEC).digest != ours


def test_the_order_knows_nothing_of_ranks_and_batches() -> None:
    whole = make_order(_CATALOG, Shuffle(), 42, 0).ids(np.arange(1000)).tolist()
    for batch, world in ((1, 1), (16, 3), (7, 5), (1000, 1)):
        epoch = Plan(_CATALOG, PlanSpec(seed=42, batch_size=batch, world_size=world)).epoch(0)
        taken = [
            record
            for step in range(epoch.steps)
            for rank in range(world)
            for record in epoch.ids(rank, *epoch.batch_slots(rank, step)).tolist()
        ]
        assert taken[:1000] == whole
        assert len(taken) - 1000 == epoch.repeated
