"""Two ranks with a process group of PyTorch and no daemon.

A loader made before the group would give every rank everything, and says so. Ranks whose options differ find that out by the
group's store, and ranks that say which they are need not be those of the group.
"""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from emlio.receiver.torch_adapter import torch_is_installed
from emlio_testing.datasets import make_dataset
from emlio_testing.processes import RankProcess

_RECORDS = 24
_WORLD = 2
_LONG_S = 120.0  # importing torch takes seconds, with other tests beside it many

pytestmark = pytest.mark.skipif(not torch_is_installed(), reason="torch is not installed")

_RANK = """
import json, sys
from emlio import EmlioLoader
from emlio.errors import ConfigError

folder, store, rank, world, when, options = sys.argv[1:]
options = json.loads(options)[int(rank)]

def say(what):
    print(json.dumps(what), flush=True)

def make(**others):
    return EmlioLoader(folder, **{"batch_size": 4, "raw": True, "ids": True, "to": "numpy", **options, **others})

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
    if when == "in turn" and rank == "1":
        group.barrier()
    try:
        say([number for batch in loader for number in batch["__id__"].tolist()])
    except ConfigError as error:
        say(str(error))
    if when == "in turn" and rank == "0":
        group.barrier()
group.barrier()
group.destroy_process_group()
"""


@contextmanager
def _ranks(tmp_path: Path, when: str, *options: dict[str, Any]) -> Iterator[list[RankProcess]]:
    """Ranks with these options each."""
    make_dataset(tmp_path / "numbers", records=_RECORDS, shards=2)
    arguments = [str(tmp_path / "numbers"), str(tmp_path / "store")]
    said = json.dumps(options or [{}] * _WORLD)
    environment = {"GLOO_SOCKET_IFNAME": "lo"}
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                RankProcess(_RANK, *arguments, str(rank), str(_WORLD), when, said, environment=environment)
            )
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
            assert f"this loader was made as rank 0 of 1, before torch.distributed had rank {rank} of 2" in error


def test_a_loader_made_after_the_group_takes_its_rank_from_it(tmp_path: Path) -> None:
    handed: list[int] = []
    with _ranks(tmp_path, "late") as ranks:
        for rank, (world, ids) in enumerate(_said(ranks)):
            assert world == [rank, 2, 3]
            handed += ids
    assert sorted(handed) == list(range(_RECORDS))


@pytest.mark.parametrize(
    ("options", "here", "there"),
    [
        ({"seed": 2}, "seed=2", "seed=0"),
        pytest.param({"batch_size": 8}, "batch_size=8", "batch_size=4", marks=pytest.mark.slow),
        pytest.param({"shuffle": "shard"}, "shuffle='shard'", "shuffle='global'", marks=pytest.mark.slow),
    ],
)
def test_the_rank_that_comes_later_with_other_options_is_told_what_differs(
    tmp_path: Path, options: dict[str, Any], here: str, there: str
) -> None:
    with _ranks(tmp_path, "in turn", {}, options) as ranks:
        (_, ids), (_, error) = _said(ranks)
        assert len(ids) == _RECORDS // 2
        assert f":{ranks[1].pid}) has {here}, rank 0 (" in error
        assert f":{ranks[0].pid}) has {there}" in error


def test_neither_waits_for_the_other(tmp_path: Path) -> None:
    with _ranks(tmp_path, "in turn", {}, {}) as ranks:
        (_, first), (_, second) = _said(ranks)
        assert sorted(first + second) == list(range(_RECORDS))


def test_ranks_that_say_which_they_are_of_how_many_are_not_those_of_the_group(tmp_path: Path) -> None:
    with _ranks(tmp_path, "late", {"rank": 0, "world_size": 3}, {"rank": 2, "world_size": 3, "seed": 5}) as ranks:
        for rank, (world, ids) in zip((0, 2), _said(ranks), strict=True):
            assert world == [rank, 3, 2]
            assert len(ids) == _RECORDS // 3


def test_a_rank_may_have_a_loader_for_itself(tmp_path: Path) -> None:
    with _ranks(tmp_path, "in turn", {"rank": 0, "world_size": 1, "seed": 5}, {}) as ranks:
        (_, everything), (_, part) = _said(ranks)
        assert sorted(everything) == list(range(_RECORDS))
        assert len(part) == _RECORDS // 2
