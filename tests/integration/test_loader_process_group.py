"""A process group of PyTorch and a loader: which was first, and whether they speak of the same world."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from emlio import EmlioLoader
from emlio.errors import ConfigError
from emlio.receiver.torch_adapter import torch_is_installed
from emlio_testing.datasets import make_dataset

_RECORDS = 12

pytestmark = pytest.mark.skipif(not torch_is_installed(), reason="torch is not installed")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "numbers"
    make_dataset(folder, records=_RECORDS, shards=2)
    return folder


@contextmanager
def _process_group() -> Iterator[None]:
    """A group of this process alone."""
    distributed: Any = pytest.importorskip("torch.distributed")
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        distributed.destroy_process_group()


def _loader(folder: Path, **options: Any) -> EmlioLoader:
    return EmlioLoader(folder, batch_size=4, raw=True, ids=True, to="numpy", **options)


def _ids(loader: EmlioLoader) -> list[int]:
    return sorted(number for batch in loader for number in batch["__id__"].tolist())


def test_a_group_made_after_the_loader_that_speaks_of_the_same_world_is_welcome(folder: Path) -> None:
    with _loader(folder) as loader:
        with _process_group():
            assert (loader.rank, loader.world_size) == (0, 1)
            assert _ids(loader) == list(range(_RECORDS))
        assert _ids(loader) == list(range(_RECORDS))


def test_a_group_made_after_the_loader_that_speaks_of_another_world_is_an_error_that_names_both(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "3")
    with _loader(folder) as loader:
        assert len(_ids(loader)) == _RECORDS // 3
        with (
            _process_group(),
            pytest.raises(ConfigError, match=r"made as rank 1 of 3, before .* had rank 0 of 1") as raised,
        ):
            iter(loader)
        assert "Make it after the process group" in str(raised.value)
        assert len(_ids(loader)) == _RECORDS // 3  # nothing moved, and it is of use where there is no group


def test_a_group_goes_before_the_launchers_variables(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "3")
    with _process_group(), _loader(folder) as loader:
        assert (loader.rank, loader.world_size) == (0, 1)
        assert _ids(loader) == list(range(_RECORDS))


def test_who_gives_rank_and_world_size_is_believed_whatever_group_there_is(folder: Path) -> None:
    handed: list[int] = []
    with _process_group():
        for rank in range(3):
            with _loader(folder, rank=rank, world_size=3) as loader:
                handed += _ids(loader)
    assert sorted(handed) == list(range(_RECORDS))
