"""A daemon that may have few files open: ranks beyond what it can serve are told so, and those it has go on."""

import resource
from contextlib import ExitStack
from pathlib import Path

import pytest

from emlio import EmlioLoader, Recovery
from emlio.errors import EmlioError
from emlio_testing.datasets import make_dataset
from emlio_testing.processes import DaemonProcess, RankProcess, settles

RECORDS = 400
LANES = 4


@pytest.mark.parametrize("limit", [96, pytest.param(160, marks=pytest.mark.slow)])
def test_ranks_that_no_descriptor_is_left_for_are_refused_and_the_others_go_on(tmp_path: Path, limit: int) -> None:
    make_dataset(tmp_path / "data", records=RECORDS, shards=4)
    with DaemonProcess({"data": tmp_path / "data"}, "--lanes", str(LANES), folder=tmp_path) as daemon:
        resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, (limit, limit))
        refusals: list[str] = []
        with ExitStack() as held:
            begun = []
            for _ in range(limit // LANES):
                try:
                    loader = EmlioLoader(
                        daemon.address("data"), batch_size=10, raw=True, to="numpy", recovery=Recovery(timeout="1s")
                    )
                    batches = iter(held.enter_context(loader))
                    next(batches)
                except EmlioError as error:
                    refusals.append(str(error))
                else:
                    begun.append(batches)
            taken = [10 + sum(len(batch["record"]) for batch in batches) for batches in begun]
        assert daemon.running, daemon.log
        assert set(taken) == {RECORDS}
        # Where a session was let in and its lanes were not, its rank is told to look into the daemon's log.
        assert any("close to its limit" in text or "see its log" in text for text in refusals)
        assert "no open file is left for a lane: this daemon is close to its limit" in daemon.log
        assert settles(lambda: reads_all(daemon.address("data")), 20), "once there is room again"


def reads_all(address: str) -> bool:
    try:
        with EmlioLoader(address, batch_size=10, raw=True, to="numpy", recovery=Recovery(timeout="5s")) as loader:
            return sum(len(batch["record"]) for batch in loader) == RECORDS
    except EmlioError:
        return False


RANK = """
import json, resource, sys
from emlio import EmlioLoader, Recovery
limit = int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
with EmlioLoader(sys.argv[1], batch_size=10, raw=True, ids=True, to="numpy", recovery=Recovery(timeout="10s")) as loader:
    seen = sorted(number for batch in loader for number in batch["__id__"].tolist())
    print(json.dumps([seen, loader.stats().lanes]), flush=True)
"""


def test_a_rank_that_may_open_few_files_has_fewer_lanes(tmp_path: Path) -> None:
    make_dataset(tmp_path / "data", records=RECORDS, shards=4)
    with DaemonProcess({"data": tmp_path / "data"}, "--lanes", "64", folder=tmp_path) as daemon:
        with RankProcess(RANK, daemon.address("data"), "100") as rank:
            seen, lanes = rank.line(0)
        assert seen == list(range(RECORDS))
        assert 0 < lanes < 32
        assert "fewer lanes than the 64 wanted" in rank.log
        assert "ulimit -n" in rank.log


def test_a_rank_that_may_open_no_files_is_told_so(tmp_path: Path) -> None:
    make_dataset(tmp_path / "data", records=RECORDS, shards=4)
    with DaemonProcess({"data": tmp_path / "data"}, folder=tmp_path) as daemon:
        with RankProcess(RANK, daemon.address("data"), "16") as rank:
            assert settles(lambda: not rank.running, 20)
        assert "which take 15: this process is close to its limit of 16" in rank.log
        assert "internal error" not in rank.log


LOADERS = """
import json, resource, sys
from emlio import EmlioLoader, Recovery
limit, loaders = int(sys.argv[2]), int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
options = dict(batch_size=10, raw=True, ids=True, to="numpy", recovery=Recovery(timeout="10s"))
made = [EmlioLoader(sys.argv[1], **options) for _ in range(loaders)]
seen = [sorted(number for batch in loader for number in batch["__id__"].tolist()) for loader in made]
files = [open("/dev/null") for _ in range(8)]
print(json.dumps(seen), flush=True)
for thing in (*files, *made):
    thing.close()
"""


@pytest.mark.parametrize(("limit", "loaders"), [(300, 3), (1024, 6)])
def test_all_loaders_of_a_process_get_lanes_and_leave_files_to_the_program(
    tmp_path: Path, limit: int, loaders: int
) -> None:
    make_dataset(tmp_path / "data", records=RECORDS, shards=4)
    with (
        DaemonProcess({"data": tmp_path / "data"}, "--lanes", "64", folder=tmp_path) as daemon,
        RankProcess(LOADERS, daemon.address("data"), str(limit), str(loaders)) as rank,
    ):
        assert rank.line(0) == [list(range(RECORDS))] * loaders
