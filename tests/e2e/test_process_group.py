"""Two ranks with a process group of PyTorch: a loader made too early would give every rank everything, and says so."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from emlio.receiver.torch_adapter import torch_is_installed
from emlio.testing.datasets import make_dataset
from emlio.testing.processes import RankProcess

_RECORDS = 24
_WORLD = 2
_LONG_S = 120.0  # importing torch takes seconds, with other tests beside it many

pytestmark = pytest.mark.skipif(not torch_is_installed(), reason="torch is not installed")

_RANK = """
import json, sys
from emlio import EmlioLoader
from emlio.errors import ConfigError

folder, store, rank, world, when = sys.argv[1:]

def say(what):
    print(json.dumps(what), flush=True)

def make():
    return EmlioLoader(folder, batch_size=4, raw=True, ids=True, to="numpy")

def join():
    import torch.distributed
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=int(rank), world_size=int(world))
    return torch.distributed

if when == "early":
    loader, group = make(), join()
else:
    group, loader = join(), make()
with loader:
    say([loader.rank, loader.world_size, len(loader)])
    try:
        say([number for batch in loader for number in batch["__id__"].tolist()])
    except ConfigError as error:
        say(str(error))
group.barrier()
group.destroy_process_group()
"""


@contextmanager
def _ranks(tmp_path: Path, when: str) -> Iterator[list[RankProcess]]:
    make_dataset(tmp_path / "numbers", records=_RECORDS, shards=2)
    arguments = [str(tmp_path / "numbers"), str(tmp_path / "store")]
    environment = {"GLOO_SOCKET_IFNAME": "lo"}
    with ExitStack() as stack:
        yield [
            stack.enter_context(RankProcess(_RANK, *arguments, str(rank), str(_WORLD), when, environment=environment))
            for rank in range(_WORLD)
        ]


def _said(ranks: list[RankProcess]) -> list[list[Any]]:
    said = [[rank.line(number, _LONG_S) for number in range(2)] for rank in ranks]
    assert [rank.finish(_LONG_S) for rank in ranks] == [0] * _WORLD, [rank.log for rank in ranks]
    return said


def test_a_loader_made_before_the_group_refuses_to_give_every_rank_everything(tmp_path: Path) -> None:
    with _ranks(tmp_path, "early") as ranks:
        for rank, (world, error) in enumerate(_said(ranks)):
            assert world == [0, 1, 6]
            assert f"torch.distributed has rank {rank} of 2 now, this loader was made as rank 0 of 1" in error


def test_a_loader_made_after_the_group_takes_its_rank_from_it(tmp_path: Path) -> None:
    handed: list[int] = []
    with _ranks(tmp_path, "late") as ranks:
        for rank, (world, ids) in enumerate(_said(ranks)):
            assert world == [rank, 2, 3]
            handed += ids
    assert sorted(handed) == list(range(_RECORDS))
