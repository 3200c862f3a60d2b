"""One part is slow: what the others see of it.

Covers: a rank that sleeps beside one that works; a daemon that stutters beside one that does not, and what that does to a rank's
memory; a rank that wakes up after the daemon gave it up. Does not cover: speed (benchmarks).
"""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest

from emlio import EmlioLoader
from emlio_testing.datasets import make_dataset
from emlio_testing.loader_arguments import loader_arguments
from emlio_testing.processes import DaemonProcess, RankProcess

RECORDS = 3000
SIZE = 16_000
MESSAGE = 64 << 10
WINDOW = 4 << 20
OPTIONS = ("--message-size", "64KiB", "--memory", "8MiB")


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("datasets") / "large"
    make_dataset(directory, records=RECORDS, shards=4, payload=SIZE)
    return directory


def load(address: str, **options: object) -> EmlioLoader:
    arguments: dict[str, object] = {
        "batch_size": 10, "raw": True, "ids": True, "to": "numpy", "timeout": "20s", "prefetch": WINDOW, **options
    }  # fmt: skip
    return EmlioLoader(address, **loader_arguments(**arguments))


def epoch_s(loader: EmlioLoader) -> float:
    begun = time.monotonic()
    assert sum(len(batch["record"]) for batch in loader) == RECORDS // 2
    return time.monotonic() - begun


SLEEPER = """
import sys, threading
from emlio import EmlioLoader

loader = EmlioLoader(sys.argv[1], batch_size=10, raw=True, to="numpy", prefetch="1MiB", rank=1, world_size=2)
next(iter(loader))
print("true", flush=True)
threading.Event().wait()
"""


def test_a_rank_that_sleeps_does_not_slow_the_other(large: Path, tmp_path: Path) -> None:
    with DaemonProcess({"large": large}, *OPTIONS, folder=tmp_path) as daemon:
        address = daemon.address("large")
        with load(address, rank=0, world_size=2) as loader:
            alone = min(epoch_s(loader) for _ in range(3))
        with RankProcess(SLEEPER, address) as sleeper, load(address, rank=0, world_size=2) as loader:
            assert sleeper.line(0) is True
            assert daemon.calms_down(), "the sleeper's lanes must be full"
            beside = min(epoch_s(loader) for _ in range(3))
    # Half a second for a machine that is busy with something else; a rank that waited for the sleeper would never end.
    assert beside < 3 * alone + 0.5, f"{alone:.3f} s alone, {beside:.3f} s beside a rank that sleeps"


@contextmanager
def stuttering(daemon: DaemonProcess) -> Iterator[None]:
    """The daemon runs for 10 ms, then stands still for 40 ms."""
    enough = Event()

    def stutter() -> None:
        while not enough.wait(0.01):
            daemon.send_signal(signal.SIGSTOP)
            enough.wait(0.04)
            daemon.send_signal(signal.SIGCONT)

    thread = Thread(target=stutter)
    thread.start()
    try:
        yield
    finally:
        enough.set()
        thread.join()


@pytest.mark.parametrize("in_order", [True, False], ids=["in order", "whichever is whole"])
@pytest.mark.parametrize("shuffle", ["global", "shard"])
def test_a_slow_daemon_does_not_make_a_ranks_memory_grow(
    large: Path, tmp_path: Path, shuffle: str, in_order: bool
) -> None:
    folders = [tmp_path / "even", tmp_path / "odd"]
    for number, folder in enumerate(folders):
        folder.mkdir()
        for shard in (number, number + 2):
            for path in [*large.glob(f"train-{shard:05d}-*"), large / f"mapping_shard_{shard:05d}.json"]:
                os.link(path, folder / path.name)
    with (
        DaemonProcess({"large": folders[0]}, *OPTIONS, folder=tmp_path) as slow,
        DaemonProcess({"large": folders[1]}, *OPTIONS, folder=tmp_path) as fast,
        load(slow.address("large", fast), shuffle=shuffle, in_order=in_order) as loader,
        stuttering(slow),
    ):
        seen = [number for batch in loader for number in batch["__id__"].tolist()]
        stats = loader.stats()
    assert sorted(seen) == list(range(RECORDS))
    assert stats.window_bytes == WINDOW
    assert 0 < stats.peak_window_bytes <= WINDOW + MESSAGE


def test_of_a_small_dataset_only_the_next_epoch_is_taken_ahead(daemon: DaemonProcess, small: Path) -> None:
    size = sum(path.stat().st_size for path in small.glob("*.tfrecord"))
    with load(daemon.address("small"), prefetch="256MiB") as loader:
        batches = iter(loader)
        next(batches)
        assert daemon.calms_down()
        assert loader.stats().received_bytes <= 2 * size
        assert sum(len(batch["record"]) for batch in batches) == 490
        for _ in range(3):
            assert sum(len(batch["record"]) for batch in loader) == 500


STOPPED = """
import sys
from emlio import EmlioLoader, Recovery

loader = EmlioLoader(sys.argv[1], batch_size=10, raw=True, to="numpy", prefetch="1MiB", recovery=Recovery(timeout="30s"))
batches = iter(loader)
next(batches)
print("true", flush=True)
for batch in batches:
    pass
"""


def test_a_rank_that_wakes_up_after_it_was_given_up_takes_nothing_of_the_others_and_waits_for_its_turn(
    large: Path, tmp_path: Path
) -> None:
    """Its session is over, and what its lane had still in the kernel's buffers is of that session."""
    options = (*OPTIONS, "--heartbeat-timeout", "500ms", "--lanes", "1")
    with (
        DaemonProcess({"large": large}, *options, folder=tmp_path) as daemon,
        RankProcess(STOPPED, daemon.address("large")) as stopped,
    ):
        assert stopped.line(0) is True
        stopped.pause()
        daemon.wait_for_log("ended: the rank was silent for")
        with load(daemon.address("large")) as one, load(daemon.address("large")) as two:
            batches = [iter(one), iter(two)]
            for each in batches:
                next(each)
            stopped.send_signal(signal.SIGCONT)
            for each in batches:
                assert sum(len(batch["record"]) for batch in each) == RECORDS - 10
            for loader in (one, two):
                assert sum(len(batch["record"]) for batch in loader) == RECORDS
        assert stopped.finish() == 0, stopped.log
        assert "no session on this connection" in stopped.log
        assert "Traceback" not in daemon.log
