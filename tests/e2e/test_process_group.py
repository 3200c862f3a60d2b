"""Two ranks with a process group of PyTorch and no daemon.

A loader made before the group would give every rank everything, and says so. Ranks whose options differ find that out by the
group's store, and ranks that say which they are need not be those of the group.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from emlio.receiver.torch_adapter import torch_is_installed
from emlio_testing.datasets import make_dataset
from emlio_testing.fork_server.client import ForkServer
from emlio_testing.processes import RankProcess
from emlio_testing.rank_groups import TORCH_ENVIRONMENT

_RECORDS = 24
_WORLD = 2
_LONG_S = 120.0  # importing torch takes seconds, with other tests beside it many

pytestmark = [
    pytest.mark.skipif(not torch_is_installed(), reason="torch is not installed"),
    pytest.mark.usefixtures("torch_starts"),
]

# A rank of each scenario after the other: importing torch takes longer than all of them.
_RANK = """
import json, sys
from emlio import EmlioLoader
from emlio.errors import ConfigError

folder, stores, rank, world = sys.argv[1:]

def say(what):
    print(json.dumps(what), flush=True)

for number, line in enumerate(sys.stdin):
    when, options = json.loads(line)
    options = options[int(rank)]

    def make():
        return EmlioLoader(folder, **{"batch_size": 4, "raw": True, "ids": True, "to": "numpy", **options})

    def join():
        import torch.distributed as group
        group.init_process_group(
            "gloo", init_method=f"file://{stores}/{number}", rank=int(rank), world_size=int(world))
        return group

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


class _Ranks:
    """Two processes that act a scenario when asked, one after the other."""

    def __init__(self, processes: list[RankProcess]) -> None:
        self.processes = processes
        self._lines = 0

    def said(self, when: str, *options: dict[str, Any]) -> list[list[Any]]:
        """Act a scenario with these options of each rank, and return the two lines that each says."""
        for process in self.processes:
            process.tell([when, options or [{}] * _WORLD])
        first, self._lines = self._lines, self._lines + 2
        return [[process.line(first + number, _LONG_S) for number in range(2)] for process in self.processes]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Ranks]:
    folder = tmp_path_factory.mktemp("group")
    make_dataset(folder / "numbers", records=_RECORDS, shards=2)
    environment = {**TORCH_ENVIRONMENT, "GLOO_SOCKET_IFNAME": "lo"}
    with ExitStack() as stack:
        processes = [
            stack.enter_context(
                RankProcess(
                    _RANK,
                    str(folder / "numbers"),
                    str(folder),
                    str(rank),
                    str(_WORLD),
                    environment=environment,
                    told=True,
                )
            )
            for rank in range(_WORLD)
        ]
        yield _Ranks(processes)
        for process in processes:
            process.tell_no_more()
        assert [process.finish(_LONG_S) for process in processes] == [0] * _WORLD, [one.log for one in processes]


def test_a_loader_made_before_the_group_refuses_to_give_every_rank_everything(ranks: _Ranks) -> None:
    for rank, (world, error) in enumerate(ranks.said("early")):
        assert world == [0, 1, 6]
        assert f"this loader was made as rank 0 of 1, before torch.distributed had rank {rank} of 2" in error


def test_a_loader_made_after_the_group_takes_its_rank_from_it(ranks: _Ranks) -> None:
    handed: list[int] = []
    for rank, (world, ids) in enumerate(ranks.said("late")):
        assert world == [rank, 2, 3]
        handed += ids
    assert sorted(handed) == list(range(_RECORDS))


def test_the_rank_that_comes_later_with_other_options_is_told_what_differs(ranks: _Ranks) -> None:
    # Of options that these processes used before, with other loaders, either rank might be the one behind.
    (_, ids), (_, error) = ranks.said("in turn", {"seed": 21}, {"seed": 21, "batch_size": 8})
    assert len(ids) == _RECORDS // 2
    assert f":{ranks.processes[1].pid}) has batch_size=8, rank 0 (" in error
    assert f":{ranks.processes[0].pid}) has batch_size=4" in error


def test_neither_waits_for_the_other(ranks: _Ranks) -> None:
    (_, first), (_, second) = ranks.said("in turn", {}, {})
    assert sorted(first + second) == list(range(_RECORDS))


def test_ranks_that_say_which_they_are_of_how_many_are_not_those_of_the_group(ranks: _Ranks) -> None:
    said = ranks.said("late", {"rank": 0, "world_size": 3}, {"rank": 2, "world_size": 3, "seed": 5})
    for rank, (world, ids) in zip((0, 2), said, strict=True):
        assert world == [rank, 3, 2]
        assert len(ids) == _RECORDS // 3


def test_a_rank_may_have_a_loader_for_itself(ranks: _Ranks) -> None:
    (_, everything), (_, part) = ranks.said("in turn", {"rank": 0, "world_size": 1, "seed": 5}, {})
    assert sorted(everything) == list(range(_RECORDS))
    assert len(part) == _RECORDS // 2


@pytest.mark.usefixtures("ranks")
def test_the_process_that_they_are_forked_from_has_one_thread(torch_server: ForkServer | None) -> None:
    """A lock that another thread holds would stay locked in a child."""
    if torch_server is None:
        pytest.skip("with --fresh-starts nothing is forked")
    assert len(list(Path(f"/proc/{torch_server.pid}/task").iterdir())) == 1
