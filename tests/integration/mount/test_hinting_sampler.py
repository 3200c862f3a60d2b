"""A sampler that tells mounts the order of each epoch; no mount is needed, only the socket that one listens at."""

import copy
import pickle
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from emlio.errors import ConfigError
from emlio.files import HintingSampler
from emlio.files.hints import SOCKETS_VARIABLE, HintListener

PATHS = [f"train/{number:03}.jpg" for number in range(50)]
Orders = list[tuple[str, list[str]]]


class Shuffled:
    """As torch's DistributedSampler."""

    def __init__(self) -> None:
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return len(PATHS)

    def __iter__(self) -> Iterator[int]:
        return iter(random.Random(self.epoch).sample(range(len(PATHS)), len(PATHS)))


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Orders]:
    """The orders that a mount at tmp_path/seen is told."""
    (tmp_path / "seen/train").mkdir(parents=True)
    (tmp_path / "sockets").mkdir(mode=0o700)
    monkeypatch.setenv(SOCKETS_VARIABLE, str(tmp_path / "sockets"))
    heard: Orders = []

    def take(owner: str, paths: Sequence[bytes]) -> int:
        heard.append((owner.partition(" ")[2], [path.decode() for path in paths]))
        return 0

    with HintListener(str(tmp_path / "seen"), tmp_path / "sockets", take, lambda: b""):
        yield heard


def _seen(tmp_path: Path) -> list[Path]:
    return [tmp_path / "seen" / path for path in PATHS]


def test_each_epoch_is_told_before_its_first_index(told: Orders, tmp_path: Path) -> None:
    sampler = HintingSampler(Shuffled(), _seen(tmp_path), name="training")
    assert len(sampler) == len(PATHS)
    drawn: list[list[int]] = []
    for epoch in range(3):
        sampler.set_epoch(epoch)
        indices = iter(sampler)
        first = next(indices)
        assert told[epoch:] == [("training", [PATHS[first], *told[epoch][1][1:]])]
        drawn.append([first, *indices])
    assert [[PATHS[index] for index in one] for one in drawn] == [order for _, order in told]
    assert drawn[0] != drawn[1] != drawn[2]
    assert drawn == [list(_sampler_of(epoch)) for epoch in range(3)]


def _sampler_of(epoch: int) -> Shuffled:
    made = Shuffled()
    made.set_epoch(epoch)
    return made


@pytest.mark.parametrize("kind", ["lists", "arrays"])
def test_batches_are_told_index_by_index_and_yielded_whole(kind: str, told: Orders, tmp_path: Path) -> None:
    batches = [[3, 1], [4, 1, 5], [9]]
    given = [np.array(batch) for batch in batches] if kind == "arrays" else batches
    yielded = list(HintingSampler(given, _seen(tmp_path)))
    assert all(one is other for one, other in zip(yielded, given, strict=True))
    assert told == [("", [PATHS[index] for batch in batches for index in batch])]


def test_an_index_without_a_path_is_an_error_that_says_so(told: Orders, tmp_path: Path) -> None:
    sampler = HintingSampler([0, 49, 50], _seen(tmp_path))
    with pytest.raises(ConfigError, match="paths must have one for each index that is drawn, got 50 and index 50"):
        next(iter(sampler))
    assert not told


def test_without_a_mount_it_yields_the_same() -> None:
    assert list(HintingSampler(Shuffled(), PATHS)) == list(Shuffled())


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_a_copy_has_the_attributes_of_its_sampler(copied: object) -> None:
    assert callable(copied)
    made = copied(HintingSampler(Shuffled(), PATHS))
    made.set_epoch(7)
    assert made.epoch == 7
    assert list(made) == list(_sampler_of(7))
    with pytest.raises(AttributeError):
        made.nothing  # noqa: B018


def test_torch_reads_by_it_with_workers(told: Orders, tmp_path: Path) -> None:
    torch_data = pytest.importorskip("torch.utils.data")
    loader = torch_data.DataLoader(
        PATHS, batch_size=8, sampler=HintingSampler(Shuffled(), _seen(tmp_path)), num_workers=2
    )
    assert [path for batch in loader for path in batch] == told[0][1] == [PATHS[index] for index in Shuffled()]
    batches = torch_data.BatchSampler(Shuffled(), 8, drop_last=True)
    loader = torch_data.DataLoader(PATHS, batch_sampler=HintingSampler(batches, _seen(tmp_path)))
    assert [path for batch in loader for path in batch] == told[1][1]
    assert loader.batch_sampler.batch_size == 8
