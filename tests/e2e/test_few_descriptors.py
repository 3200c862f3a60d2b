"""A daemon that may have few files open: ranks beyond what it can serve are told so, and those it has go on."""

import resource
from contextlib import ExitStack
from pathlib import Path

import pytest

from emlio import EmlioLoader
from emlio.errors import EmlioError
from emlio.testing.datasets import make_dataset
from emlio.testing.processes import DaemonProcess, settles

RECORDS = 400
RANKS = 12


@pytest.mark.parametrize("limit", [96, 160])
def test_ranks_that_no_descriptor_is_left_for_are_refused_and_the_others_go_on(tmp_path: Path, limit: int) -> None:
    make_dataset(tmp_path / "data", records=RECORDS, shards=4)
    with DaemonProcess({"data": tmp_path / "data"}, "--lanes", "4", folder=tmp_path) as daemon:
        resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, (limit, limit))
        refusals: list[str] = []
        with ExitStack() as held:
            begun = []
            for _ in range(RANKS):
                try:
                    loader = EmlioLoader(daemon.address("data"), batch_size=10, raw=True, to="numpy", timeout="1s")
                    batches = iter(held.enter_context(loader))
                    next(batches)
                except EmlioError as error:
                    refusals.append(str(error))
                else:
                    begun.append(batches)
            taken = [10 + sum(len(batch["record"]) for batch in batches) for batches in begun]
        assert daemon.running, daemon.log
        assert set(taken) == {RECORDS}
        assert any(
            "each lane takes 4 open files, and this daemon has nearly as many as it may" in text for text in refusals
        )
        assert settles(lambda: reads_all(daemon.address("data")), 20), "once there is room again"


def reads_all(address: str) -> bool:
    try:
        with EmlioLoader(address, batch_size=10, raw=True, to="numpy", timeout="5s") as loader:
            return sum(len(batch["record"]) for batch in loader) == RECORDS
    except EmlioError:
        return False
