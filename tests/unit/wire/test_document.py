"""The Python with which docs/reference/wire.md describes the plan, run beside the library."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from emlio.planner.catalog import Catalog, ShardEntry
from emlio.planner.order import Shuffle
from emlio.planner.permutation import Permutation
from emlio.planner.plan import Plan, PlanSpec
from emlio.wire.control import ControlMessage
from emlio.wire.credit import Credit
from emlio.wire.data import DataHeader, ids_checksum

TEXT = (Path(__file__).resolve().parents[3] / "docs" / "reference" / "wire.md").read_text(encoding="utf-8")
SIZES = (120, 0, 333, 75, 1, 471)
SHARDS = [(f"part-{number}", size, 100 * size, f"digest-{number}") for number, size in enumerate(SIZES)]
CATALOG = Catalog(
    shards=tuple(ShardEntry(name=name, records=n, size_bytes=size, digest=digest) for name, n, size, digest in SHARDS)
)
SHUFFLES = [("global", 256, 64), ("block", 16, 4), ("block", 7, 3), ("shard", 256, 64), ("none", 256, 64)]

Described = Callable[[str], Any]


@pytest.fixture(scope="module")
def described() -> Described:
    """A function of the document, by name."""
    blocks = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert len(blocks) == 2
    names: dict[str, Any] = {}
    for block in blocks:
        exec(block, names)
    return names.__getitem__


def _shuffle(name: str, block: int, window: int) -> Shuffle:
    return Shuffle.parse(f"block:{block}:{window}" if name == "block" else name)


def test_the_fingerprint_is_the_described_one(described: Described) -> None:
    assert described("fingerprint")(SHARDS) == CATALOG.fingerprint


@pytest.mark.parametrize("n", [1, 2, 6, 1000, 4095, 4096, 1_000_003, 2**40])
def test_the_permutation_is_the_described_one(described: Described, n: int) -> None:
    asked = sorted({place % n for place in (0, 1, 2, 3, 500, n // 2, n - 1)})
    numbers = Permutation(n, b"golden").forward(np.array(asked, np.int64)).tolist()
    assert [described("permute")(n, b"golden", place) for place in asked] == numbers
    tweaked = Permutation(n, b"golden").forward(np.array(asked, np.int64), np.arange(len(asked))).tolist()
    assert [described("permute")(n, b"golden", place, tweak) for tweak, place in enumerate(asked)] == tweaked


@pytest.mark.parametrize(("name", "block", "window"), SHUFFLES)
def test_orders_and_digests_are_the_described_ones(described: Described, name: str, block: int, window: int) -> None:
    plan = Plan(CATALOG, PlanSpec(seed=42, batch_size=16, world_size=3, shuffle=_shuffle(name, block, window)))
    ids = plan.epoch(1).ids_at(np.arange(1000)).tolist()
    assert described("order")(SIZES, name, 42, 1, block, window) == ids
    found = described("digest")(CATALOG.fingerprint, SIZES, 42, name, 16, 3, block=block, window=window)
    assert found == plan.digest


@pytest.mark.parametrize(("drop_last", "pad"), [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize(
    ("world", "batch", "origin"), [(1, 7, 0), (3, 16, 0), (4, 249, 0), (3, 333, 0), (9, 37, 331), (6, 5, 998)]
)
def test_places_are_the_described_ones(
    described: Described, world: int, batch: int, origin: int, drop_last: bool, pad: bool
) -> None:
    spec = PlanSpec(batch_size=batch, world_size=world, drop_last=drop_last, pad=pad, shuffle=Shuffle.parse(False))
    epoch = Plan(CATALOG, spec).epoch(0, origin)
    for rank in range(world):
        ours = epoch.places(rank, 0, epoch.slots(rank)).tolist()
        assert described("places")(CATALOG.records, world, batch, rank, drop_last, pad, origin) == ours


def test_the_golden_values_of_the_document_are_those_of_the_library() -> None:
    plan = Plan(CATALOG, PlanSpec(seed=42, batch_size=16, world_size=3))
    epoch = plan.epoch(1)
    ids = epoch.ids(1, 14, 20)
    for value in (
        CATALOG.fingerprint,
        ", ".join(map(str, Permutation(1000, b"golden").forward(np.arange(4)).tolist())),
        f"{epoch.steps}; {', '.join(str(epoch.slots(rank)) for rank in range(3))}",
        ", ".join(map(str, epoch.places(1, 14, 20).tolist())),
        ", ".join(map(str, ids.tolist())),
        str(ids_checksum(ids)),
        plan.digest,
    ):
        assert f"| {value} |" in TEXT or f"| `{value}` |" in TEXT


def test_every_message_and_each_of_its_fields_is_described() -> None:
    rows = {match[1]: match[2] for match in re.finditer(r"^\| `(\w+)` \| (.*?) \| [^|]* \|$", TEXT, re.MULTILINE)}
    for kind in get_args(ControlMessage):
        fields = set(re.findall(r"`(\w+)`", rows[kind.__name__.lower()]))
        assert fields == set(kind.__struct_fields__), kind.__name__
    listed = re.findall(r"^\| (\d+)(?:, \d)? \| ([\w, ]+) \|", TEXT, re.MULTILINE)
    fields_in_order = [*Credit.__struct_fields__, *DataHeader.__struct_fields__]
    assert [name for _, names in listed for name in names.split(", ")] == fields_in_order
