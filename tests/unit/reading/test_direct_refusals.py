"""Direct reading where the system does not allow it: denied calls, little memory that may be locked, no queues left."""

import platform
import subprocess
import sys
from pathlib import Path

import pytest

from emlio.native.disk import DiskQueue
from emlio_testing.datasets import write_tfrecord

_URING_SETUP, _AIO_SETUP = 425, {"x86_64": 206, "aarch64": 0}.get(platform.machine(), -1)

_PROGRAM = """
import ctypes, logging, resource, struct, sys
import numpy as np
folder, denied, locked = sys.argv[1], [int(n) for n in sys.argv[2].split(",") if n], int(sys.argv[3])
libc = ctypes.CDLL(None, use_errno=True)
if locked:
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (locked, locked))
    assert not libc.capset(struct.pack("Ii", 0x20080522, 0), bytes(24))  # root's has no limit
if denied:
    steps = [(0x20, 0, 0, 0)]  # load the number of the call
    for left, number in zip(range(len(denied), 0, -1), denied):
        steps.append((0x15, left, 0, number))  # equal: to the last step
    steps += [(0x06, 0, 0, 0x7FFF0000), (0x06, 0, 0, 0x00050001)]  # allow; or fail with EPERM
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(steps), ctypes.addressof(code)))
    assert not libc.prctl(38, 1, 0, 0, 0)
    assert not libc.prctl(22, 2, program), ctypes.get_errno()
from emlio.index.opening import open_dataset
from emlio.reading.buffers import AheadBudget
from emlio.reading.gather import Gatherer
from emlio.reading.direct.io_choice import IoMode, choose_io
from emlio.reading.direct.io_settings import IoSettings
from emlio.reading.open_engine import open_engine
from emlio_testing.reading import feed_of, page_cache
from pathlib import Path
logging.basicConfig(level=logging.WARNING)

def read(engine):
    feed, parts, gatherer = feed_of(engine, "global", end=1), [], Gatherer()
    while (message := feed.next(gatherer)) is not None:
        out = np.zeros(message.payload_bytes, np.uint8)
        feed.read(message, gatherer, out)
        parts.append(out.tobytes())
    feed.stop()
    engine.close()
    return b"".join(parts)

with open_dataset("d", Path(folder)) as dataset:
    choice = choose_io(IoMode.DIRECT, dataset)
    made = open_engine(dataset, None, AheadBudget(8 << 20), direct=IoSettings())  # whatever was chosen
    queue = getattr(made, "queue", None)
    print(getattr(queue, "kind", "cache"), choice, read(made) == read(page_cache(dataset)), sep=";")
"""


def _run(folder: Path, denied: tuple[int, ...] = (), locked_bytes: int = 0) -> list[str]:
    given = [str(folder), ",".join(map(str, denied)), str(locked_bytes)]
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, *given], capture_output=True, text=True, timeout=60, check=False
    )
    assert not done.returncode, done.stderr
    return done.stdout.strip().split(";")


@pytest.fixture
def folder(tmp_path: Path, own_cache: Path) -> Path:
    (tmp_path / "data").mkdir()
    write_tfrecord(tmp_path / "data/0.tfrecord", [bytes([number]) * 20_000 for number in range(200)])
    kind, choice, _ = _run(tmp_path / "data")
    if not choice.startswith("direct"):
        pytest.skip(f"direct reading is not offered here: {choice}")
    assert kind in ("io_uring", "aio")
    return tmp_path / "data"


@pytest.mark.skipif(_AIO_SETUP < 0, reason="the number of io_setup is not known for this machine")
def test_denied_calls_leave_the_other_queue_or_the_page_cache(folder: Path) -> None:
    assert _run(folder, (_URING_SETUP,)) == ["aio", "direct (--io direct)", "True"]
    assert _run(folder, (_URING_SETUP, _AIO_SETUP)) == [
        "cache",
        "cache (direct reading is not possible here: Operation not permitted)",
        "True",
    ]


@pytest.mark.parametrize("locked_bytes", [4 << 10, 64 << 10])
def test_little_memory_that_may_be_locked_is_enough(folder: Path, locked_bytes: int) -> None:
    kind, choice, right = _run(folder, locked_bytes=locked_bytes)
    assert (kind in ("io_uring", "aio"), choice, right) == (True, "direct (--io direct)", "True")


@pytest.mark.skipif(_AIO_SETUP < 0, reason="the number of io_setup is not known for this machine")
def test_without_io_uring_and_with_no_queue_left_the_page_cache_is_used(folder: Path) -> None:
    most = Path("/proc/sys/fs/aio-max-nr")
    if not most.exists() or int(most.read_text()) > 1 << 20:
        pytest.skip("there are too many queues to use them up")
    held: list[DiskQueue] = []
    try:
        for depth in (4096, 64, 1):
            while len(held) < 5000:
                try:
                    held.append(DiskQueue(depth, "aio"))
                except OSError:
                    break
        assert _run(folder, (_URING_SETUP,)) == [
            "cache",
            "cache (direct reading is not possible here: Resource temporarily unavailable)",
            "True",
        ]
        assert held
    finally:
        for queue in held:
            queue.close()
