"""Mounts whose readers overtake the push, whose source does not answer, and whose agent is killed."""

import errno
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread

import numpy as np
import pytest

from emlio.errors import ClosedError
from emlio.files.mount import Mount
from emlio.files.mount.failures import Failures
from emlio.files.mount.mounting import mounts_at
from emlio_testing.clock import ManualClock
from emlio_testing.file_reader import FileReader
from emlio_testing.mounted_trees import MemorySource, MountedTree, Sparse, mount_is_refused

_REFUSED = mount_is_refused()
pytestmark = [pytest.mark.skipif(bool(_REFUSED), reason=_REFUSED), pytest.mark.timeout(60)]

PAGE = 4096


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    made = tmp_path / "mounted"
    made.mkdir()
    yield made
    if mounts_at(str(made)):
        subprocess.run(["umount", "-l", made], check=False)
        pytest.fail("it is still mounted")


def _many(count: int, size: int = 1000) -> MountedTree:
    random = np.random.default_rng(0)
    return MountedTree({b"%d/%06d" % (number % 10, number): random.bytes(size) for number in range(count)})


def _push(mount: Mount, tree: MountedTree, files: list[int], withheld: int = 0) -> list[int]:
    held = [tree.read(number, 0, tree.size(number)) for number in files]
    sizes = np.array([len(one) for one in held])
    given = np.frombuffer(b"".join(held), np.uint8)
    numbers, zeros = np.array(files), np.zeros(len(files), np.int64)
    return mount.push(given, numbers, zeros, np.cumsum(sizes) - sizes, sizes, np.minimum(sizes, withheld)).tolist()


def _fails(kind: type[Exception], reader: FileReader, way: str, path: bytes) -> None:
    with pytest.raises(kind):
        reader.read(way, path, 0, 10)


def _path(folder: Path, tree: MountedTree, number: int) -> Path:
    return folder / os.fsdecode(tree.paths[number])


def test_what_is_pushed_is_read_without_a_request(folder: Path) -> None:
    tree = _many(50, 5000)
    source = MemorySource(tree)
    with Mount(tree.tree, folder, source) as mount:
        assert set(_push(mount, tree, tree.files)) == {0}
        for number in tree.files:
            assert _path(folder, tree, number).read_bytes() == tree.content[number]
        assert mount.counts().stored == 50
    assert source.asked == []


def test_a_read_that_waits_is_answered_by_the_push_and_not_stored(folder: Path) -> None:
    tree = _many(3, 10_000)
    source = MemorySource(tree)
    source.opened.clear()
    with Mount(tree.tree, folder, source) as mount, ThreadPoolExecutor(3) as pool:
        reads = [pool.submit(_path(folder, tree, number).read_bytes) for number in tree.files]
        while mount.counts().missed < 3 or len(source.asked) < 3:
            time.sleep(0.001)
        assert _push(mount, tree, tree.files) == [0, 0, 0]
        assert [read.result(10) for read in reads] == [tree.content[number] for number in tree.files]
        assert mount.counts().stored == 0
        source.opened.set()
    assert len(source.asked) == 3  # answered too late, which does no harm


def test_pages_that_another_read_waits_for_are_not_stored(folder: Path) -> None:
    tree = MountedTree({b"large": Sparse(1 << 20)})
    source, number = MemorySource(tree), 1
    source.opened.clear()
    with Mount(tree.tree, folder, source) as mount, ThreadPoolExecutor(1) as pool:
        read = pool.submit((folder / "large").read_bytes)
        while mount.counts().missed < 1:
            time.sleep(0.001)
        page = np.frombuffer(tree.read(number, 0, PAGE), np.uint8)
        one, zero = np.array([1]), np.array([0])
        assert mount.push(page, one, zero, zero, one * PAGE, zero).tolist() == [errno.EBUSY]
        source.opened.set()
        assert read.result(10) == tree.read(number, 0, 1 << 20)


def test_bytes_that_fill_no_pages_are_refused(folder: Path) -> None:
    tree = MountedTree({b"file": b"f" * 6000, b"folder": None})
    memory, zero = np.zeros(9000, np.uint8), 0
    with Mount(tree.tree, folder, MemorySource(tree)) as mount:
        for entry, offset, size, withheld in [
            (1, 1, PAGE, 0),
            (1, 0, 6001, 0),
            (1, 0, 100, 0),
            (1, PAGE, 100, 0),
            (1, 2 * PAGE, 100, 0),
            (1, 0, 6000, 100),
            (1, 0, 0, 0),
            (2, 0, PAGE, 0),
            (0, 0, PAGE, 0),
            (3, 0, PAGE, 0),
            (-5, 0, PAGE, 0),
        ]:
            given = [np.array([value]) for value in (entry, offset, zero, size, withheld)]
            assert mount.push(memory, *given).tolist() == [errno.EINVAL], (entry, offset, size)
        assert (folder / "file").stat().st_size == 6000
        with pytest.raises(ValueError, match="in the memory"):
            mount.push(memory, *[np.array([value]) for value in (1, 0, 8000, 6000, 0)])


def test_a_tripwire_is_told_once_and_a_dropped_one_is_read_from_the_source(folder: Path) -> None:
    tree = MountedTree({b"a": Sparse(3 * PAGE), b"b": b"b" * 100, b"c": b"c" * 100})
    source, seen = MemorySource(tree), list[int]()
    with Mount(tree.tree, folder, source) as mount:
        mount.on_reads = lambda reads: seen.extend(one.inode - 1 for one in reads)
        assert _push(mount, tree, [1, 2, 3], withheld=PAGE) == [0, 0, 0]
        for _ in range(2):
            assert (folder / "a").read_bytes() == tree.read(1, 0, 3 * PAGE)
        assert (folder / "b").read_bytes() == b"b" * 100
        mount.drop(np.array([3]), np.array([0]), 1 << 20)
        assert source.asked == []
        assert (folder / "c").read_bytes() == b"c" * 100
        assert [one.entry for one in source.asked] == [3]
    assert seen == [1, 2, 3]


def test_readers_that_race_the_push_read_the_right_bytes(folder: Path) -> None:
    tree = _many(3000, 3000)
    source = MemorySource(tree)
    with Mount(tree.tree, folder, source, limit_s=20) as mount, ThreadPoolExecutor(6) as pool:
        ends = Event()

        def read(seed: int) -> bool:
            order = np.random.default_rng(seed).permutation(np.array(tree.files))[:1500]
            return all(_path(folder, tree, number).read_bytes() == tree.content[number] for number in order.tolist())

        def push() -> None:
            random = np.random.default_rng(9)
            while not ends.is_set():
                some = random.choice(np.array(tree.files), 200, replace=False)
                assert set(_push(mount, tree, some.tolist(), withheld=PAGE * int(random.integers(2)))) <= {
                    0,
                    errno.EBUSY,
                }
                mount.drop(random.choice(np.array(tree.files), 200, replace=False), np.zeros(200, np.int64), 1 << 20)

        pushers = [Thread(target=push) for _ in range(2)]
        for pusher in pushers:
            pusher.start()
        try:
            assert all(pool.map(read, range(6)))
        finally:
            ends.set()
            for pusher in pushers:
                pusher.join()
        found = mount.counts()
    assert not found.late
    assert not found.refused


def test_a_push_reaches_files_that_the_kernel_forgets_again_and_again(folder: Path) -> None:
    """Have the kernel drop unused directory entries now, as it does when memory is short."""
    forgetting = Path("/proc/sys/vm/drop_caches")
    if not os.access(forgetting, os.W_OK):
        pytest.skip("the kernel's entries cannot be dropped here")
    tree = _many(300, 3000)
    with Mount(tree.tree, folder, MemorySource(tree)) as mount:
        ends = Event()

        def forget() -> None:
            while not ends.is_set():
                forgetting.write_text("2\n")

        forgetter = Thread(target=forget)
        forgetter.start()
        try:
            for _ in range(60):
                assert set(_push(mount, tree, tree.files)) == {0}
        finally:
            ends.set()
            forgetter.join()
        assert mount.counts().unknown


def test_a_source_that_does_not_answer_is_an_error_in_time(folder: Path) -> None:
    tree = _many(2)
    source = MemorySource(tree)
    source.opened.clear()
    with Mount(tree.tree, folder, source, limit_s=0.3) as mount:
        begin = time.monotonic()
        with pytest.raises(OSError, match="Input/output"):
            _path(folder, tree, tree.files[0]).read_bytes()
        assert time.monotonic() - begin < 10
        source.opened.set()
        assert mount.counts().late >= 1
        assert not mount.counts().aborted
        assert _path(folder, tree, tree.files[0]).read_bytes() == tree.content[tree.files[0]]


@pytest.mark.parametrize("way", ["read", "direct", "mmap", "sendfile"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_reader_that_waits_can_be_killed(way: str, number: int, folder: Path) -> None:
    tree = _many(1)
    source = MemorySource(tree)
    source.opened.clear()
    with FileReader() as reader, Mount(tree.tree, folder, source, limit_s=50) as mount:
        path = bytes(_path(folder, tree, tree.files[0]))
        waits = Thread(target=_fails, args=(ValueError, reader, way, path))
        waits.start()
        while mount.counts().missed < 1:
            time.sleep(0.001)
        begin = time.monotonic()
        os.kill(reader.pid, number)
        waits.join(20)
        assert time.monotonic() - begin < 10
        source.opened.set()


def test_a_mount_in_use_is_taken_away(folder: Path) -> None:
    tree = _many(3)
    source = MemorySource(tree)
    source.opened.clear()
    mount = Mount(tree.tree, folder, source)
    held = os.open(_path(folder, tree, tree.files[0]), os.O_RDONLY)
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(_path(folder, tree, tree.files[1]).read_bytes)
        while mount.counts().missed < 1:
            time.sleep(0.001)
        Thread(target=lambda: (time.sleep(0.2), source.opened.set())).start()
        mount.close()
        with pytest.raises(OSError):  # noqa: PT011  # EIO, or ENOTCONN if it asked again
            waits.result(10)
    with pytest.raises(OSError) as gone:  # noqa: PT011
        os.pread(held, 10, 0)
    assert gone.value.errno in (errno.ENOTCONN, errno.EIO)
    with suppress(OSError):  # it is closed all the same
        os.close(held)
    assert os.listdir(folder) == []


class _Late(np.ndarray[tuple[int], np.dtype[np.int64]]):
    """Entries with which a push begins, and goes on once another thread has tried to close the mount."""

    closes: Thread

    def __add__(self, other: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:  # type: ignore[override]
        self.closes.start()
        self.closes.join(1.5)
        return np.asarray(self) + other


@pytest.mark.parametrize("call", ["push", "drop"])
def test_a_mount_that_is_closed_waits_for_a_push(call: str, folder: Path) -> None:
    tree = _many(3)
    mount = Mount(tree.tree, folder, MemorySource(tree))
    entries = np.array(tree.files).view(_Late)
    entries.closes = Thread(target=mount.close)
    zeros, sizes = np.zeros(3, np.int64), np.full(3, 1000)
    if call == "push":
        memory = np.zeros(3000, np.uint8)
        assert mount.push(memory, entries, zeros, np.arange(3) * 1000, sizes, zeros).tolist() == [errno.ENODEV] * 3
    else:
        mount.drop(entries, zeros, PAGE)
    entries.closes.join(20)
    assert not entries.closes.is_alive()
    with pytest.raises(ClosedError):
        mount.drop(np.array(tree.files), zeros, PAGE)


def test_an_outage_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    failures = Failures("/mounted", clock)
    for _ in range(50):
        failures.tell(OSError("no daemon"))
        failures.end()  # a read beside it
    failures.tell("another reason")
    assert [record.getMessage() for record in caplog.records] == [
        "files at /mounted cannot be read: no daemon",
        "files at /mounted cannot be read: another reason",
    ]
    clock.advance(11_000_000_000)
    failures.tell("no daemon")
    assert len(caplog.records) == 2  # it is the same outage still
    failures.end()
    failures.tell("no daemon")
    assert len(caplog.records) == 3
    for number in range(1000):
        failures.tell(f"reason {number}")
    assert len(caplog.records) < 200


def test_a_mount_that_others_unmounted_closes(folder: Path) -> None:
    tree = _many(1)
    with Mount(tree.tree, folder, MemorySource(tree)) as mount:
        subprocess.run(["umount", "-l", folder], check=True)
        assert os.listdir(folder) == []
        mount.drop(np.array([2]), np.array([0]), 1 << 20)


def test_a_stuck_connection_is_ended_by_the_watch(folder: Path) -> None:
    """A page is locked by a READ that this test never answers, while the page is stored."""
    from emlio.files.mount.mounting import attach, detach
    from emlio.native.fuse import FuseSession

    tree = MountedTree({b"file": b"f" * 100})
    device = attach(str(folder))
    session = FuseSession(tree.tree, device, uid=0, gid=0, limit_ms=400)
    number = mounts_at(str(folder))[-1]
    session.mounted(os.fsencode(folder), number.device)
    served = 0
    while served < 1:  # INIT; the requests after it are left unanswered
        served += os.write(device, _answered_init(os.read(device, 1 << 16))) > 0
    is_read = Event()
    lookups = Thread(target=lambda: _serve_but_reads(device, is_read))
    lookups.start()
    with FileReader() as reader:
        waits = Thread(target=_fails, args=(OSError, reader, "read", bytes(folder / "file")))
        waits.start()
        watch = Thread(target=session.watch)
        watch.start()
        assert is_read.wait(20)
        begin = time.monotonic()
        zero = np.array([0])
        results = session.push(np.full(100, 102, np.uint8), zero + 2, zero, zero, zero + 100, zero)
        assert 0.2 < time.monotonic() - begin < 10
        assert results.tolist() != [errno.EINVAL]
        assert session.counts().aborted
        waits.join(10)
        lookups.join(10)
        session.stop()
        watch.join(10)
    detach(str(folder), number)
    os.close(device)
    session.free()


def _answered_init(asked: bytes) -> bytes:
    unique = asked[8:16]
    body = np.array([7, 31, 131_072, 1 << 17 | 1, 12 | 12 << 16, PAGE, 1, 0, 0], "<u4").tobytes().ljust(64, b"\0")
    return np.array([80, 0], "<u4").tobytes() + unique + body


def _attributes(inode: int, mode: int, size: int) -> bytes:
    times = np.array([inode, size, 1, 0, 0, 0], "<u8").tobytes()
    return times + np.array([0, 0, 0, mode, 1] + [0] * 5, "<u4").tobytes()


def _serve_but_reads(device: int, is_read: Event) -> None:
    """Find every name as a file of 100 bytes, open nothing, and leave READs."""
    entry = np.array([2, 1, 1 << 30, 1 << 30, 0], "<u8").tobytes() + _attributes(2, 0o100444, 100)
    root = np.array([1 << 30, 0], "<u8").tobytes() + _attributes(1, 0o40555, 0)
    while True:
        try:
            asked = os.read(device, 1 << 16)
        except OSError:
            return
        opcode, body, error = int.from_bytes(asked[4:8], "little"), b"", 0
        if opcode in (1, 3):
            body = entry if opcode == 1 else root
        elif opcode == 15:
            is_read.set()
            continue
        else:
            error = -errno.ENOSYS
        head = np.array([16 + len(body), error], "<i4").tobytes() + asked[8:16]
        try:
            os.write(device, head + body)
        except OSError:
            continue
