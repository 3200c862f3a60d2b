"""Four ranks, three daemons with overlapping shards, every order, five epochs: what is seen is what was planned.

Covers: ids inside the records' bytes, ids the loader names, batches, against a plan computed here from the files alone.
Does not cover: faults.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from emlio.index.opening import open_dataset
from emlio.planner.catalog import Catalog
from emlio.planner.order import Shuffle
from emlio.planner.owners import assign_owners, merge_holdings
from emlio.planner.plan import Plan, PlanSpec
from emlio_testing.datasets import make_dataset
from emlio_testing.processes import DaemonProcess, RankProcess

RECORDS = 1003  # divides by no number of ranks or batches used here
SHARDS = 8
RANKS = 4
BATCH = 16
EPOCHS = 5
SEED = 20_240_607
HELD = ((0, 1, 2, 3, 4), (3, 4, 5, 6), (5, 6, 7, 0))
ORDERS: dict[str, "bool | str"] = {"global": "global", "block": "block", "shard": "shard", "none": False}

RANK = """
import json, sys
from emlio import EmlioLoader
from emlio_testing.loader_arguments import loader_arguments

address, order, rank, ranks, batch, seed, epochs, options = sys.argv[1:]
shuffle = False if order == "none" else order
with EmlioLoader(address, batch_size=int(batch), shuffle=shuffle, seed=int(seed), rank=int(rank), world_size=int(ranks),
                 raw=True, ids=True, to="numpy", **loader_arguments(timeout="20s", **json.loads(options))) as loader:
    for epoch in range(int(epochs)):
        announced, inside, named = len(loader), [], []
        for batch in loader:
            inside.append([int.from_bytes(record[:8], "little") for record in batch["record"]])
            named.append(batch["__id__"].tolist())
        print(json.dumps({"announced": announced, "inside": inside, "named": named, "lanes": loader.stats().lanes}))
"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("acceptance") / "whole"
    make_dataset(directory, records=RECORDS, shards=SHARDS)
    return directory


@pytest.fixture(scope="module")
def parts(whole: Path) -> list[Path]:
    """Three folders that share shards by hard links; the second also has the mappings of shards it does not hold."""
    made: list[Path] = []
    for number, shards in enumerate(HELD):
        part = whole.parent / f"part{number}"
        part.mkdir()
        for shard in range(SHARDS):
            names = [path.name for path in whole.glob(f"train-{shard:05d}-*")] if shard in shards else []
            if shard in shards or number == 1:
                names.append(f"mapping_shard_{shard:05d}.json")
            for name in names:
                os.link(whole / name, part / name)
        made.append(part)
    return made


@pytest.fixture(scope="module")
def daemons(parts: list[Path]) -> Iterator[list[DaemonProcess]]:
    with ExitStack() as stack:
        yield [stack.enter_context(DaemonProcess({"photos": part}, folder=part.parent)) for part in parts]


def planned(whole: Path, order: "bool | str", *, drop_last: bool = False, pad: bool = False) -> Plan:
    with open_dataset("photos", whole) as dataset:
        catalog = Catalog(shards=tuple(dataset.entries))
    spec = PlanSpec(
        seed=SEED, shuffle=Shuffle.parse(order), batch_size=BATCH, world_size=RANKS, drop_last=drop_last, pad=pad
    )
    return Plan(catalog, spec)


def batches(plan: Plan, epoch: int, rank: int) -> list[list[int]]:
    of_epoch = plan.epoch(epoch)
    return [of_epoch.ids(rank, *of_epoch.batch_slots(rank, step)).tolist() for step in range(of_epoch.steps)]


def run_ranks(daemons: list[DaemonProcess], order: str, epochs: int, options: str) -> list[list[dict[str, object]]]:
    address = daemons[0].address("photos", *daemons[1:])
    with ExitStack() as stack:
        ranks = [
            stack.enter_context(
                RankProcess(RANK, address, order, str(rank), str(RANKS), str(BATCH), str(SEED), str(epochs), options)
            )
            for rank in range(RANKS)
        ]
        ends = [rank.finish() for rank in ranks]
        assert ends == [0] * RANKS, "\n".join(rank.log for rank in ranks)
        return [rank.lines() for rank in ranks]


def test_each_of_the_three_daemons_has_a_part_of_the_work(parts: list[Path]) -> None:
    held = {}
    for number, part in enumerate(parts):
        with open_dataset("photos", part) as dataset:
            held[f"daemon{number}"] = list(dataset.entries)
    assert set(assign_owners(merge_holdings(held)).tolist()) == {0, 1, 2}


@pytest.mark.parametrize("order", list(ORDERS))
def test_ids_seen_are_exactly_the_ids_planned_in_order_on_every_rank(
    whole: Path, daemons: list[DaemonProcess], order: str
) -> None:
    plan = planned(whole, ORDERS[order])
    seen = run_ranks(daemons, order, EPOCHS, "{}")
    for rank in range(RANKS):
        assert len(seen[rank]) == EPOCHS
        for epoch, line in enumerate(seen[rank]):
            expected = batches(plan, epoch, rank)
            assert line["inside"] == expected, f"rank {rank}, epoch {epoch}"
            assert line["named"] == expected, f"rank {rank}, epoch {epoch}"
            assert line["announced"] == len(expected)
            assert int(str(line["lanes"])) >= len(HELD), "every daemon must have sent something"
    for epoch in range(EPOCHS):
        all_ids = [record for rank in seen for batch in rank[epoch]["inside"] for record in batch]  # type: ignore[attr-defined]  # lists, by the script
        assert sorted(all_ids) == list(range(RECORDS))
    if order != "none":
        first, second = (np.array(seen[0][epoch]["inside"][0]) for epoch in (0, 1))  # type: ignore[index]  # as above
        assert not np.array_equal(first, second), "epochs must differ"


@pytest.mark.parametrize("tail", ["drop_last", "pad"])
def test_the_other_tails_come_out_as_planned_too(whole: Path, daemons: list[DaemonProcess], tail: str) -> None:
    plan = planned(whole, "global", drop_last=tail == "drop_last", pad=tail == "pad")
    seen = run_ranks(daemons, "global", 2, f'{{"{tail}": true}}')
    for rank in range(RANKS):
        for epoch, line in enumerate(seen[rank]):
            assert line["inside"] == batches(plan, epoch, rank)
            assert {len(batch) for batch in line["inside"]} == {BATCH}  # type: ignore[attr-defined]  # as above
