"""Fast files on a disk that fails: what was read or written is right, or the right error is raised."""

import errno
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from emlio import native
from emlio.aio import AioHandle
from emlio.errors import FileError
from emlio_testing.disk_faults import DENY_AIO, DENY_URING, DiskFaults, why_no_disk_faults

KINDS = ("io_uring", "aio")
REQUESTS = 40
MIB = 1 << 20

pytestmark = pytest.mark.skipif(not native.is_used(), reason=f"the C library is not used: {native.why_not()}")

_PROGRAM = """
import json, sys, time
from pathlib import Path
import numpy as np
from emlio.aio import AioHandle, Request, aligned
from emlio.errors import ConfigError, FileError
folder, kind, requests = Path(sys.argv[1]), sys.argv[2] or None, int(sys.argv[3])
block_size, queue_depth = sys.argv[4], int(sys.argv[5])
content = np.random.default_rng(0).integers(0, 256, 2 << 20, np.uint8)
(folder / "file").write_bytes(content.tobytes())

def tried(call, *given):
    try:
        call(*given)
    except FileError as error:
        return error.errno
    return 0

def begins():
    try:
        return AioHandle(block_size, queue_depth, kind=kind)
    except ConfigError as error:
        print(json.dumps({"refused": str(error)}))
        sys.exit()

with begins() as handle:
    begun, reads, writes = time.monotonic(), [], []
    for number in range(requests):
        start, size = number * 4096 // (1 + number % 2), 300_000 + 4096 * number
        out = aligned(size)
        reads.append((tried(handle.pread, out, folder / "file", start), out.tobytes() == content[start:][:size].tobytes()))
        part, path = content[start:][:size], folder / "copy"
        path.unlink(missing_ok=True)
        writes.append((tried(handle.pwrite, part, path), path.read_bytes() == part.tobytes()))
    parts = [aligned(20_000) for _ in range(requests)]
    handle.submit([Request(buffer=part, file=folder / "file", offset=n * 7000) for n, part in enumerate(parts)])
    bulk = tried(handle.wait), all(p.tobytes() == content[n * 7000 :][:20_000].tobytes() for n, p in enumerate(parts))
    seconds = time.monotonic() - begun
    print(json.dumps({"kind": handle.kind, "all": [*reads, *writes, bulk], "seconds": seconds}))
"""


@pytest.fixture
def faults(tmp_path: Path) -> DiskFaults:
    reason = why_no_disk_faults()
    if reason is not None:
        pytest.skip(reason)
    return DiskFaults(tmp_path, tmp_path / "faults")


def run(
    faults: DiskFaults, folder: Path, kind: str = "", requests: int = REQUESTS, blocks: tuple[str, int] = ("64KiB", 8)
) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(folder), kind, str(requests), blocks[0], str(blocks[1])],
        env={**os.environ, **faults.environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert not done.returncode, done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    if kind and "refused" in said:
        pytest.skip(f"this system does not allow {kind}: {said['refused']}")
    return said


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_requests_that_the_disk_fails_raise_its_error_and_the_others_are_right(
    faults: DiskFaults, tmp_path: Path, kind: str, error: int
) -> None:
    faults.set(error=error, error_every=11)
    said = run(faults, tmp_path, kind)
    assert faults["failed"] > 0
    assert {number for number, _ in said["all"]} == {0, error}
    assert all(right for number, right in said["all"] if not number)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("every", [1, 2, 7])
def test_transfers_that_come_short_are_completed(faults: DiskFaults, tmp_path: Path, kind: str, every: int) -> None:
    faults.set(unit=4096, short_every=every)
    said = run(faults, tmp_path, kind)
    assert faults["shortened"] > 0
    assert said["all"] == [[0, True]] * (2 * REQUESTS + 1)


@pytest.mark.parametrize("kind", KINDS)
def test_transfers_for_which_there_are_no_resources_sometimes_are_repeated(
    faults: DiskFaults, tmp_path: Path, kind: str
) -> None:
    faults.set(error=errno.EAGAIN, error_every=3)
    said = run(faults, tmp_path, kind)
    assert faults["failed"] > 0
    assert said["all"] == [[0, True]] * (2 * REQUESTS + 1)


FEW, MANY = ("64KiB", 8), ("4KiB", 64)


@pytest.mark.parametrize(
    ("kind", "blocks"),
    [
        pytest.param("io_uring", FEW, id="few-io_uring"),
        pytest.param("aio", MANY, id="many-aio"),
        pytest.param("io_uring", MANY, id="many-io_uring", marks=pytest.mark.slow),
        pytest.param("aio", FEW, id="few-aio", marks=pytest.mark.slow),
    ],
)
def test_without_resources_for_a_second_the_error_is_told(
    faults: DiskFaults, tmp_path: Path, kind: str, blocks: tuple[str, int]
) -> None:
    faults.set(error=errno.EAGAIN, error_every=1)
    said = run(faults, tmp_path, kind, 1, blocks)
    assert {number for number, _ in said["all"]} == {errno.EAGAIN}
    assert said["seconds"] >= len(said["all"]), "resources had no time to come back"


@pytest.mark.parametrize("denied", [DENY_URING, DENY_URING | DENY_AIO])
def test_denied_queues_leave_the_other_or_are_told(faults: DiskFaults, tmp_path: Path, denied: int) -> None:
    faults.set(denied=denied)
    said = run(faults, tmp_path)
    if denied == DENY_URING:
        assert said["kind"] == "aio"
        assert said["all"] == [[0, True]] * (2 * REQUESTS + 1)
    else:
        assert said == {"refused": "this system offers no queue of transfers: Operation not permitted"}


@pytest.mark.parametrize("locked_bytes", [4 << 10, 64 << 10])
def test_little_memory_that_may_be_locked_is_enough(faults: DiskFaults, tmp_path: Path, locked_bytes: int) -> None:
    faults.set(locked_bytes=locked_bytes)
    said = run(faults, tmp_path)
    assert said["all"] == [[0, True]] * (2 * REQUESTS + 1)


# ---- a disk that is full ------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 16 MiB on a disk of its own."""
    image, folder = tmp_path / "image", tmp_path / "small"
    folder.mkdir()
    with image.open("wb") as file:
        file.truncate(16 * MIB)
    for command in (["mkfs.ext4", "-q", "-O", "^has_journal", image], ["mount", "-o", "loop", image, folder]):
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as error:
            pytest.skip(str(error))
        if done.returncode:
            pytest.skip(f"no small disk can be mounted here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", folder], check=True)


def numbers(size: int, seed: int) -> npt.NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, size, np.uint8)


def test_a_full_disk_is_told_and_what_was_there_stays(handle: AioHandle, small_disk: Path) -> None:
    old, new = numbers(6 * MIB, 0), numbers(12 * MIB, 1)
    handle.pwrite(old, small_disk / "old")
    with pytest.raises(FileError, match="the file system must have room for them") as told:
        handle.pwrite(new, small_disk / "new")
    assert told.value.errno == errno.ENOSPC
    assert (small_disk / "old").read_bytes() == old.tobytes()
    (small_disk / "old").unlink()
    handle.pwrite(new, small_disk / "new")
    assert (small_disk / "new").read_bytes() == new.tobytes()


def test_a_file_with_holes_that_the_disk_has_no_room_for_keeps_what_was_written(
    handle: AioHandle, small_disk: Path
) -> None:
    old, new = numbers(2 * MIB, 0), numbers(20 * MIB, 1)
    path = small_disk / "holes"
    handle.pwrite(old, path)
    os.truncate(path, 64 * MIB)
    with pytest.raises(FileError, match="the file system must have room for them") as told:
        handle.pwrite(new, path, 4 * MIB)  # no byte lies beyond the end: the disk is full in mid-flow
    assert told.value.errno == errno.ENOSPC
    whole = path.read_bytes()
    assert whole[: 2 * MIB] == old.tobytes()
    written = np.frombuffer(whole[4 * MIB : 24 * MIB], np.uint8).reshape(-1, 4096)
    assert all(
        np.array_equal(page, there) or not page.any()
        for page, there in zip(written, new.reshape(-1, 4096), strict=True)
    )
