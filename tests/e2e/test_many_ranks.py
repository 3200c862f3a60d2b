"""Sixty-four ranks of one job at one daemon, in eight processes.

Covers: who gets which record, the state they all have, what the daemon holds while none of them reads and after they have left.
Does not cover: that the same few threads serve them (test_daemon_life), speed (benchmarks).
"""

import json
import signal
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from emlio import EmlioLoader
from emlio.daemon.config import DaemonConfig, DatasetSource
from emlio.units import parse_size
from emlio_bench.harness.meter import read_resident
from emlio_testing.datasets import make_dataset
from emlio_testing.processes import DaemonProcess, RankProcess, settles

RANKS, PROCESSES = 64, 8
RECORDS, RECORD_BYTES, BATCH = 5000, 16_000, 8
MEMORY, MESSAGE = "32MiB", "256KiB"
SESSION_BYTES = 256 << 10
"""What a session may take besides its messages: a socket with its queues, a plan, a part of the order."""

# Two epochs. In the first each rank stops after three batches until all the others have come as far.
CROWD = """
import json, signal, sys

signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})  # before there are threads, NumPy's too: all of them block it then

from emlio import EmlioLoader, Recovery

address, first, count, ranks, batch = sys.argv[1], *map(int, sys.argv[2:])
loaders = [EmlioLoader(address, batch_size=batch, rank=rank, world_size=ranks, raw=True, ids=True, to="numpy",
                       recovery=Recovery(timeout="30s"),
                       prefetch="1MiB") for rank in range(first, first + count)]

def take(iteration, most=None):
    seen = []
    while most is None or most > 0:
        got = next(iteration, None)
        if got is None:
            break
        assert [int.from_bytes(record[:8], "little") for record in got["record"]] == got["__id__"].tolist()
        seen.append(got["__id__"].tolist())
        most = None if most is None else most - 1
    return seen

iterations = [iter(loader) for loader in loaders]
seen = [take(iteration, 3) for iteration in iterations]
print(json.dumps([json.dumps(loader.state_dict()) for loader in loaders]))
signal.sigwait({signal.SIGUSR1})
epochs = [[begun + take(iteration) for begun, iteration in zip(seen, iterations)]]
print(json.dumps([json.dumps(loader.state_dict()) for loader in loaders]))
epochs.append([take(iter(loader)) for loader in loaders])
print(json.dumps(epochs))
for loader in loaders:
    loader.close()
"""


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """80 MB, in batches of 512 over all ranks; the last one of 392."""
    directory = tmp_path_factory.mktemp("datasets") / "wide"
    make_dataset(directory, records=RECORDS, shards=8, payload=RECORD_BYTES)
    return directory


def things(daemon: DaemonProcess) -> tuple[int, int, int]:
    """Threads, descriptors and lanes."""
    process = psutil.Process(daemon.pid)
    return process.num_threads(), process.num_fds(), daemon.lanes


def own_bytes(daemon: DaemonProcess) -> int:
    return read_resident(daemon.pid).own_bytes


def fills_up(daemon: DaemonProcess) -> bool:
    """Whether its memory soon grows no more. Its processor is never quite idle, with pings of so many ranks."""
    seen: list[int] = []

    def probe() -> bool:
        seen.append(own_bytes(daemon))
        return len(seen) > 40 and max(seen[-40:]) - max(seen[:-40]) < 256 << 10

    return settles(probe, 60.0)


def warm_up(daemon: DaemonProcess) -> None:
    """What is opened once and kept, such as the shards' files, is not a leak."""
    with EmlioLoader(daemon.address("wide"), batch_size=100, raw=True, to="numpy") as loader:
        for _ in loader:
            pass
    daemon.wait_for_log("the rank sent goodbye")
    assert settles(lambda: daemon.lanes == 0, 30.0)


def most_held(directory: Path, lanes: int) -> int:
    """The bound of the memory that ranks add to a daemon: docs/internals/architecture.md, "Bounds"."""
    source = DatasetSource(name="wide", directory=directory)
    config = DaemonConfig(data=(source,), memory=parse_size(MEMORY), message_size=parse_size(MESSAGE))
    kept = config.memory // 4
    return config.memory + kept + (config.readers + lanes) * config.message_size + RANKS * SESSION_BYTES


def all_ranks(processes: list[RankProcess], line: int) -> list[str]:
    """What each rank said in this line of its process."""
    return [said for process in processes for said in process.line(line, 60.0)]


def test_sixty_four_ranks_share_each_epoch_and_a_daemon_that_stays_within_its_memory(
    wide: Path, tmp_path: Path
) -> None:
    options = ("--memory", MEMORY, "--message-size", MESSAGE, "--lanes", "1")
    with DaemonProcess({"wide": wide}, *options, folder=tmp_path) as daemon, ExitStack() as stack:
        idle = own_bytes(daemon)
        warm_up(daemon)
        before = things(daemon)
        share = RANKS // PROCESSES
        arguments = [(str(first), str(share), str(RANKS), str(BATCH)) for first in range(0, RANKS, share)]
        crowd = [stack.enter_context(RankProcess(CROWD, daemon.address("wide"), *words)) for words in arguments]
        states = all_ranks(crowd, 0)
        assert len(states) == RANKS
        assert len(set(states)) == 1
        assert json.loads(states[0])["consumed"] == 3 * BATCH * RANKS
        assert len(states[0]) <= 1000

        assert fills_up(daemon), "nobody reads: the daemon fills what it may"
        lanes = daemon.lanes
        assert RANKS <= lanes <= 2 * RANKS, "some had connected more before they heard how many are used"
        assert things(daemon)[0] == before[0]
        filled, bound = own_bytes(daemon) - idle, most_held(wide, lanes)
        assert parse_size(MEMORY) // 2 < filled <= bound

        for process in crowd:
            process.send_signal(signal.SIGUSR1)
        peak = 0

        def have_ended() -> bool:
            nonlocal peak
            peak = max(peak, own_bytes(daemon) - idle)
            return not any(process.running for process in crowd)

        assert settles(have_ended, 60.0), "\n".join(process.log for process in crowd)
        assert [process.finish() for process in crowd] == [0] * PROCESSES, "\n".join(p.log for p in crowd)
        assert peak <= bound

        (last,) = set(all_ranks(crowd, 1))
        assert (json.loads(last)["epoch"], json.loads(last)["consumed"]) == (1, 0)
        for epoch in range(2):
            batches = [batch for process in crowd for rank in process.line(2)[epoch] for batch in rank]
            assert len(batches) == RANKS * -(-RECORDS // (RANKS * BATCH))
            assert sorted(number for batch in batches for number in batch) == list(range(RECORDS))
        daemon.wait_for_log("the rank sent goodbye", times=1 + RANKS)
        assert settles(lambda: things(daemon) == before, 30.0), f"{before}, then {things(daemon)}"
        assert "Traceback" not in daemon.log
