"""Options about batches, checked against each other, and the kinds of batches that follow from them."""

import os
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from emlio import DaliPipeline, EmlioLoader
from emlio.errors import ConfigError
from emlio.example.columns import Piece
from emlio.example.encode import encode_example
from emlio.planner.catalog import Catalog, ShardEntry
from emlio.planner.plan import Plan, PlanSpec
from emlio.planner.sample_seeds import sample_seeds
from emlio.receiver.batch_kinds.choose import choose_kind
from emlio.receiver.batch_kinds.options import BatchOptions
from emlio.receiver.batches.makers import ColumnMaker, Made, SampleMaker
from emlio.receiver.batches.prefetch import MadeBatch
from emlio.receiver.iteration.epoch_pass import Handed
from emlio.receiver.iteration.position import Position
from emlio.receiver.placement.reorder import WholeBatch
from emlio.receiver.records.bad_records import BadRecordPolicy
from emlio.receiver.torch_adapter import DeviceMover, torch_is_installed
from emlio.tokens import TokenBatches
from emlio_testing.datasets import make_dataset
from emlio_testing.loader_config import loader_config

_PLAIN: dict[str, Any] = {
    "raw": False,
    "fields": None,
    "ids": False,
    "seeds": False,
    "transform": None,
    "collate_fn": None,
    "threads": None,
    "dali": None,
    "tokens": None,
    "to": "numpy",
    "device": None,
}
_PRESET = DaliPipeline("image-train")
_NEEDS_TORCH = pytest.mark.skipif(not torch_is_installed(), reason="torch is not installed")


_CONFIG = loader_config(batch_size=4, seed=5)


def _same(value: Any) -> Any:
    return value


def _options(**changes: Any) -> BatchOptions:
    return BatchOptions(**(_PLAIN | changes))


# ---- options ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"to": "tensorflow"}, "to must be one of torch, numpy, or None, got 'tensorflow'"),
        ({"raw": True, "fields": ["label"]}, "with raw=True there are none"),
        ({"fields": "label"}, "must be a list of names, got the string 'label'"),
        ({"threads": 0}, "threads must be a whole number of at least 1, got 0"),
        ({"threads": 2.0}, "threads must be a whole number of at least 1, got 2.0"),
        ({"threads": True}, "threads must be a whole number of at least 1, got True"),
        ({"transform": 3}, "transform must be a function, or None, got 3"),
        ({"collate_fn": "stack"}, "collate_fn must be a function, or None, got 'stack'"),
        ({"device": "tpu"}, "device must be .*, got 'tpu'"),
        ({"device": "cuda:"}, "device must be .*, got 'cuda:'"),
        ({"device": "cuda:one"}, "device must be .*, got 'cuda:one'"),
        ({"device": "cuda:-1"}, "device must be .*, got 'cuda:-1'"),
        ({"device": "cpu:0"}, "device must be .*, got 'cpu:0'"),
        ({"device": 0}, "device must be .*, got 0"),
        ({"device": "cuda"}, "device 'cuda' needs torch's tensors, which to='numpy'"),
        ({"device": "cuda:1", "to": "torch", "raw": True}, "needs torch's tensors, which .* raw=True rules out"),
        ({"dali": "image-train"}, r"dali must be a DaliPipeline\(...\), got 'image-train'"),
        ({"dali": _PRESET, "raw": True}, "raw cannot be given beside it"),
        ({"dali": _PRESET, "fields": ["x"], "seeds": True}, "fields, seeds cannot be given beside it"),
        ({"dali": _PRESET, "transform": _same, "collate_fn": _same}, "transform, collate_fn cannot be given beside it"),
        ({"tokens": TokenBatches(pack=8), "transform": _same, "seeds": True}, "seeds, transform cannot be given for them"),
    ],
)  # fmt: skip
def test_options_that_cannot_be_are_refused_with_what_came(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        _options(**changes)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"raw": True},
        {"device": "cpu"},
        {"threads": 64, "transform": _same, "collate_fn": _same, "seeds": True, "ids": True},
        {"to": "torch", "device": "cuda"},
        {"to": "torch", "device": "cuda:12"},
        {"dali": DaliPipeline("image-train", args={"size": 3}, outputs=["a"]), "ids": True},
    ],
)
def test_options_that_go_together_are_taken(changes: dict[str, Any]) -> None:
    assert _options(**changes).on_device == ("device" in changes and changes["device"] != "cpu")


@pytest.mark.parametrize(
    ("to", "raw", "tensors"), [("numpy", False, False), ("torch", False, True), ("torch", True, False)]
)
def test_records_as_bytes_are_never_tensors(to: str, raw: bool, tensors: bool) -> None:
    assert _options(to=to, raw=raw).tensors is tensors


def test_without_a_word_numbers_come_as_tensors_where_torch_is_installed() -> None:
    assert _options(to=None).tensors is torch_is_installed()


# ---- makers -------------------------------------------------------------------------------------------------------


def _batch() -> WholeBatch:
    starts = np.arange(3)
    piece = Piece(buffer=memoryview(b"abc"), starts=starts, ends=starts + 1, slots=starts)
    return WholeBatch(epoch=2, step=0, count=3, ids=starts + 40, pieces=[piece])


@pytest.mark.parametrize(
    ("changes", "kind", "ahead"),
    [
        ({}, ColumnMaker, 0),
        ({"raw": True}, ColumnMaker, 0),
        ({"collate_fn": _same}, ColumnMaker, 2),
        ({"transform": _same, "threads": 1}, SampleMaker, 3),
        ({"transform": _same, "threads": 9}, SampleMaker, 5),
        ({"transform": _same, "collate_fn": _same, "threads": 4}, SampleMaker, 3),
    ],
)
def test_what_takes_microseconds_is_made_when_asked_and_the_rest_ahead(
    changes: dict[str, Any], kind: type, ahead: int
) -> None:
    with closing(choose_kind(_options(**changes), BadRecordPolicy("raise"), _CONFIG).maker) as maker:
        assert isinstance(maker, kind)
        assert maker.ahead == ahead


@pytest.mark.parametrize(("ranks", "most"), [("1000000", 1), ("1", None), ("0", None), ("none", None)])
def test_without_a_word_a_process_takes_its_share_of_the_processors(
    monkeypatch: pytest.MonkeyPatch, ranks: str, most: int | None
) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", ranks)
    with closing(choose_kind(_options(transform=_same), BadRecordPolicy("raise"), _CONFIG).maker) as maker:
        threads = len(maker.threads)
    assert threads == (most or len(os.sched_getaffinity(0)))


def _plan() -> Plan:
    catalog = Catalog(shards=(ShardEntry(name="a", records=20, size_bytes=1000, digest="x"),))
    return Plan(catalog, PlanSpec(seed=7, batch_size=3, world_size=1))


class _Batches:
    """One batch, which comes first for as long as it is asked for."""

    ready = True

    def __init__(self, made: MadeBatch) -> None:
        self.asked = self.told = 0
        self._made = made

    def first(self) -> MadeBatch:
        self.asked += 1
        return self._made

    def taken(self, made: MadeBatch) -> None:
        assert made is self._made
        self.told += 1


def test_the_user_gets_what_the_maker_made() -> None:
    kind = choose_kind(_options(), BadRecordPolicy("raise"), _CONFIG)
    made = MadeBatch(epoch=0, step=0, count=1, bad=0, size_bytes=1, value={"label": 3})
    batches, handed = _Batches(made), Handed()
    for _ in range(2):  # until it is counted
        assert kind.next(batches, handed, Position(_plan())) is made
    assert (batches.asked, batches.told) == (1, 2)
    assert kind.waited_ns == 0
    kind.drop()
    kind.close()


def test_seeds_follow_from_the_plans_seed_the_epoch_and_the_record() -> None:
    kind = choose_kind(_options(seeds=True, ids=True, raw=True), BadRecordPolicy("raise"), replace(_CONFIG, seed=9))
    made = kind.maker.make(_batch())
    assert isinstance(made, Made)
    assert made.value["__id__"].tolist() == [40, 41, 42]
    assert made.value["__seed__"].dtype == np.int64  # which every framework has
    drawn = sample_seeds(9, 2, np.arange(40, 43)).tolist()
    assert made.value["__seed__"].tolist() == [seed % (1 << 63) for seed in drawn]
    assert max(drawn) >= 1 << 63, "one of them needs the sign bit, so it would be negative"
    for seed in made.value["__seed__"]:
        assert np.random.default_rng(seed).random() >= 0  # which refuses negative seeds


# ---- devices ------------------------------------------------------------------------------------------------------


def _cuda_devices() -> int:
    if not torch_is_installed():
        return 0
    cuda = pytest.importorskip("torch").cuda
    return int(cuda.device_count()) if cuda.is_available() else 0


@_NEEDS_TORCH
@pytest.mark.parametrize("device", ["cuda", "cuda:0"])
def test_a_device_that_is_not_there_is_an_error_before_anybody_is_called(device: str) -> None:
    if _cuda_devices():
        pytest.skip("there is a CUDA device here")
    with pytest.raises(ConfigError, match=f"device '{device}' requires a CUDA device that PyTorch can use, found none"):
        EmlioLoader("emlio://127.0.0.1:1/nobody", batch_size=2, rank=0, world_size=1, device=device)


class _Pair(NamedTuple):
    image: Any
    label: Any


@pytest.fixture
def torch() -> Any:
    if not _cuda_devices():
        pytest.skip("torch.cuda finds no device here")
    return pytest.importorskip("torch")


@pytest.mark.gpu
def test_tensors_of_a_batch_arrive_on_the_device_wherever_they_are_in_it(torch: Any) -> None:
    mover = DeviceMover("cuda")
    numbers = torch.arange(12)
    batch = {"pair": _Pair(numbers.reshape(3, 4), [numbers, "text"]), "bytes": [b"a"], "both": (numbers, 5)}
    moved = mover.finish(mover.start(batch))
    assert type(moved["pair"]) is _Pair
    assert moved["bytes"] == [b"a"]
    assert moved["pair"].label[1] == "text"
    assert moved["both"][1] == 5
    for there in (moved["pair"].image.flatten(), moved["pair"].label[0], moved["both"][0]):
        assert there.device == torch.device("cuda", 0)
        assert torch.equal(there.cpu(), numbers)


@pytest.mark.gpu
def test_what_the_user_computes_waits_for_the_copy(torch: Any) -> None:
    mover = DeviceMover("cuda:0")
    sums = []
    for number in range(50):
        batch = torch.full((1 << 20,), number, dtype=torch.int64)
        moving = mover.start(batch)
        del batch  # pinned memory lives until it is copied
        with torch.cuda.stream(torch.cuda.Stream()):
            sums.append(mover.finish(moving).sum())
    torch.cuda.synchronize()
    assert [int(total) for total in sums] == [number << 20 for number in range(50)]


@pytest.mark.gpu
def test_a_device_of_too_high_a_number_is_an_error(torch: Any) -> None:
    with pytest.raises(ConfigError, match=f"device must be one of {torch.cuda.device_count()} CUDA devices"):
        DeviceMover(f"cuda:{torch.cuda.device_count()}")


@pytest.mark.gpu
@pytest.mark.parametrize("transform", [None, lambda sample: sample["label"] * 2])
def test_a_loader_hands_out_its_batches_on_the_device(torch: Any, tmp_path: Path, transform: Any) -> None:
    make_dataset(tmp_path / "x", records=10, shards=1, payload=lambda number: encode_example({"label": [number]}))
    with EmlioLoader(tmp_path / "x", batch_size=4, shuffle=False, device="cuda", transform=transform) as loader:
        labels = [batch["label"] if transform is None else batch for batch in loader]
    assert all(part.is_cuda for part in labels)
    assert torch.cat(labels).tolist() == [number * (1 if transform is None else 2) for number in range(10)]
