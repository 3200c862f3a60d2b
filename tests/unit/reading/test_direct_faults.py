"""Direct reading from a disk that fails: every way of reading hands out the bytes that are in the files."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from emlio.index.opening import open_dataset
from emlio.reading.direct.io_choice import IoMode, choose_io
from emlio_testing.disk_faults import DiskFaults, why_no_disk_faults
from emlio_testing.format_datasets import FORMS

_PROGRAM = """
import sys
from pathlib import Path
import numpy as np
from emlio.index.opening import open_dataset
from emlio.reading.buffers import AheadBudget
from emlio.reading.gather import Gatherer
from emlio.reading.direct.io_settings import IoSettings
from emlio.reading.open_engine import open_engine
from emlio.reading.sharing.shared_records import SharedMemory
from emlio_testing.reading import feed_of
folder, shuffle, jobs = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])

def read(engine):
    # The jobs in turns, message by message.
    feeds = [feed_of(engine, shuffle, 1 << 14, seed=seed, end=1) for seed in range(jobs)]
    parts, gatherer, going = [[] for _ in feeds], Gatherer(), set(range(jobs))
    while going:
        for job in tuple(going):
            message = feeds[job].next(gatherer)
            if message is None:
                feeds[job].stop()
                going.discard(job)
                continue
            out = np.zeros(message.payload_bytes, np.uint8)
            feeds[job].read(message, gatherer, out)
            parts[job].append(out.tobytes())
    engine.close()
    return parts

with open_dataset("d", folder) as dataset:
    direct = IoSettings(queue_depth=16)
    engine = open_engine(dataset, None, AheadBudget(1 << 20), direct=direct, memory=SharedMemory(1 << 20))
    plain = open_engine(dataset, None, AheadBudget(1 << 20))
    assert read(engine) == read(plain), "other bytes than in the files"
"""


@pytest.mark.parametrize(
    "faults",
    [
        {"error": errno.EIO, "error_every": 1},
        {"error": errno.EAGAIN, "error_every": 3},
        {"error": errno.EIO, "error_every": 7, "short_every": 2},
    ],
    ids=str,
)
@pytest.mark.parametrize(
    ("form", "shuffle", "jobs"),
    [("tfrecord", "global", 1), ("tfrecord", "global", 3), ("tfrecord", "block:64:4", 2), ("parquet", "global", 1)],
)
def test_all_bytes_are_those_of_the_files(
    tmp_path: Path, own_cache: Path, faults: dict[str, int], form: str, shuffle: str, jobs: int
) -> None:
    if (reason := why_no_disk_faults()) is not None:
        pytest.skip(reason)
    folder = tmp_path / "data"
    FORMS[form].make(folder, 400, lambda number: bytes([number % 251]) * (number * 37 % 6000))
    with open_dataset("d", folder) as dataset:
        if not choose_io(IoMode.DIRECT, dataset).direct:
            pytest.skip("the file system of temporary files does not offer direct reading")
    disk = DiskFaults(tmp_path, tmp_path / "faults")
    disk.set(unit=4096, **faults)
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(folder), shuffle, str(jobs)],
        env={**os.environ, **disk.environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert not done.returncode, done.stderr
    assert disk["failed"] + disk["shortened"] > 0
