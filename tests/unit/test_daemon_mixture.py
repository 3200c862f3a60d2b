"""Offers of mixtures as a daemon judges them: which of the shards are its own, who sends the catalog, what is refused.

Covers: `Plans` with a dataset of two shards. Does not cover: loaders (e2e/test_mixtures.py).
"""

import dataclasses
from typing import Any

import msgspec
import numpy as np
import pytest

from emlio.daemon.datasets.plans import AgreedPlan, Needed, Plans
from emlio.daemon.datasets.served import ServedDataset
from emlio.errors import ConfigError, DatasetError
from emlio.planner.catalog import Catalog, ShardEntry
from emlio.planner.mixture.merged import prefix_of
from emlio.planner.plan import Plan, PlanSpec
from emlio.planner.sampling import parse_sampling
from emlio.session.instructions import Judge
from emlio.wire.control import PlanOffer, ShardRow
from emlio_testing.reading import made_up

SAMPLING = "mixture/1/first/0:2,1"


def served(name: str, records: int) -> ServedDataset:
    with made_up(name, dict.fromkeys(("s0", "s1"), range(records + 1)), digest=name) as dataset:
        return ServedDataset(dataset)


WEB, CODE = served("web", 20), served("code", 5)


def merged(*datasets: ServedDataset) -> Catalog:
    return Catalog(
        shards=tuple(
            dataclasses.replace(entry, name=prefix_of(number) + entry.name)
            for number, dataset in enumerate(datasets)
            for entry in dataset.dataset.entries
        )
    )


def offer(catalog: Catalog, **changes: Any) -> PlanOffer:
    plan = Plan(catalog, PlanSpec(batch_size=2, sampling=parse_sampling(SAMPLING)))
    said: dict[str, Any] = {
        "session": 1,
        "fingerprint": catalog.fingerprint,
        "digest": plan.digest,
        "seed": 0,
        "shuffle": "global",
        "block_records": 256,
        "window_blocks": 64,
        "batch_size": 2,
        "drop_last": False,
        "pad": False,
        "sampling": SAMPLING,
        "part": 0,
    }
    return PlanOffer(**(said | changes))


def rows(catalog: Catalog) -> list[ShardRow]:
    return [
        ShardRow(name=one.name, records=one.records, size_bytes=one.size_bytes, digest=one.digest)
        for one in catalog.shards
    ]


def judged(
    plans: Plans,
    dataset: ServedDataset,
    said: PlanOffer,
    sent: list[ShardRow] | None,
    came: list[object] | None = None,
) -> AgreedPlan | Needed:
    kept: list[object] = [] if came is None else came
    return plans.judge(dataset, 1, Judge(offer=said, rows=sent), kept.append)


def test_a_dataset_finds_its_own_shards_and_others_use_the_catalog_that_one_was_sent() -> None:
    plans, catalog, came = Plans(), merged(WEB, CODE), list[object]()
    assert judged(plans, WEB, offer(catalog), None, came) == Needed(), "its catalog must be asked for"
    web = judged(plans, WEB, offer(catalog), rows(catalog), came)
    code = judged(plans, CODE, offer(catalog, part=1), None, came)
    assert isinstance(web, AgreedPlan)
    assert isinstance(code, AgreedPlan)
    assert web.local.tolist() == [0, 1, -1, -1]
    assert code.local.tolist() == [-1, -1, 0, 1]
    assert web.plan.catalog is code.plan.catalog
    assert len(came) == 1


def test_one_dataset_may_be_mixed_with_another_of_the_same_names_of_shards() -> None:
    plans, catalog = Plans(), merged(CODE, WEB)
    agreed = judged(plans, WEB, offer(catalog, part=1), rows(catalog))
    assert isinstance(agreed, AgreedPlan)
    assert agreed.local.tolist() == [-1, -1, 0, 1]


def test_a_shard_that_differs_from_the_one_held_here_is_refused() -> None:
    first, *others = merged(WEB, CODE).shards
    changed = Catalog(shards=(dataclasses.replace(first, digest="other"), *others))
    with pytest.raises(DatasetError, match=r"in the rank's catalog 000/s0 has .* digest other"):
        judged(Plans(), WEB, offer(changed), rows(changed))


@pytest.mark.parametrize("part", [None, 2, 255], ids=str)
def test_an_offer_must_name_its_dataset_of_the_mixture(part: int | None) -> None:
    catalog = merged(WEB, CODE)
    said = offer(catalog) if part is None else offer(catalog, part=part)
    said = PlanOffer(
        **{name: getattr(said, name) for name in said.__struct_fields__ if name != "part" or part is not None}
    )
    with pytest.raises(ConfigError, match=rf"must name its dataset of the 2 datasets of its mixture, got {part}"):
        judged(Plans(), WEB, said, rows(catalog))


def test_a_dataset_of_a_mixture_needs_a_mixture() -> None:
    entry = ShardEntry(name="s0", records=20, size_bytes=20, digest="web")
    catalog = Catalog(shards=(entry,))
    digest = Plan(catalog, PlanSpec(batch_size=2)).digest
    said = PlanOffer(
        session=1,
        fingerprint=catalog.fingerprint,
        digest=digest,
        seed=0,
        shuffle="global",
        block_records=256,
        window_blocks=64,
        batch_size=2,
        drop_last=False,
        pad=False,
        part=0,
    )
    with pytest.raises(ConfigError, match=r"must name its dataset of the 0 datasets of its mixture, got 0"):
        judged(Plans(), WEB, said, rows(catalog))


def test_a_hostile_mixture_is_refused_soon() -> None:
    catalog = merged(WEB, CODE)
    for sampling in (
        "mixture/1/first/0:1",
        "mixture/1/first/0:1,1,1",
        "mixture/1/longest/0:1,0",
        "mixture/9/first/0:1,1",
    ):
        with pytest.raises(ConfigError):
            judged(Plans(), WEB, offer(catalog, sampling=sampling), rows(catalog))


def test_the_plan_of_a_mixture_of_many_datasets_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = [served(f"d{number}", 3 + number) for number in range(40)]
    catalog, sampling = merged(*datasets), "mixture/1/first/0:" + ",".join(["1"] * 40)
    digest = Plan(catalog, PlanSpec(batch_size=2, sampling=parse_sampling(sampling))).digest
    first = offer(merged(WEB, CODE), fingerprint=catalog.fingerprint, digest=digest, sampling=sampling)
    made: list[Plan] = []

    def counted(*given: Any) -> Plan:
        made.append(Plan(*given))
        return made[-1]

    monkeypatch.setattr("emlio.daemon.datasets.plans.Plan", counted)
    plans = Plans()
    for _ in range(3):
        for number, dataset in enumerate(datasets):
            agreed = judged(plans, dataset, msgspec.structs.replace(first, part=number), rows(catalog))
            assert isinstance(agreed, AgreedPlan)
            here = np.full(80, -1)
            here[2 * number : 2 * number + 2] = (0, 1)
            assert agreed.local.tolist() == here.tolist()
    assert len(made) == 1
    for dataset in datasets[:-1]:
        plans.forget(dataset)
    last = msgspec.structs.replace(first, part=39)
    assert isinstance(judged(plans, datasets[-1], last, None), AgreedPlan)
    assert len(made) == 1
    plans.forget(datasets[-1])
    assert isinstance(judged(plans, datasets[-1], last, rows(catalog)), AgreedPlan)
    assert len(made) == 2
