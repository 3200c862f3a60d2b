"""The thread that writes a shard: order, errors of the disk, how far it lags behind, being closed at any moment."""

import errno
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest

from emlio import EmlioLoader, Writer
from emlio.prepare.targets.shard_file import WriteBehind

_PATIENCE_S = 30


def _wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def _descriptor(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT)


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def test_pieces_are_written_in_order_and_completely(tmp_path: Path) -> None:
    fd = _descriptor(tmp_path / "shard")
    behind = WriteBehind(fd)
    calls = [[bytes([call, piece % 251]) * (piece % 7) for piece in range(2500)] for call in range(9)]
    for pieces in calls:
        behind.write(pieces)
    assert behind.drain() == fd
    expected = b"".join(b"".join(pieces) for pieces in calls)
    assert (tmp_path / "shard").read_bytes() == expected
    behind.write([b"more"])
    behind.drain()
    assert (tmp_path / "shard").read_bytes() == expected + b"more"
    behind.close()
    behind.close()
    assert not _is_open(fd)


def test_a_full_disk_is_an_error_of_every_later_call() -> None:
    behind = WriteBehind(os.open("/dev/full", os.O_WRONLY))
    behind.write([b"record"])
    for call in (behind.drain, lambda: behind.write([b"record"]), behind.drain):
        with pytest.raises(OSError, match="No space left") as caught:
            call()
        assert caught.value.errno == errno.ENOSPC
    behind.close()


@pytest.mark.parametrize(("call_bytes", "most"), [(4 << 20, 2), (1 << 20, 8), (9 << 20, 0)])
def test_no_more_than_8_mib_wait_for_the_disk(call_bytes: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "posix_fadvise", lambda *_: None)  # which a pipe does not have
    read, write = os.pipe()
    behind = WriteBehind(write)
    call = os.urandom(call_bytes)
    done = 0

    def fill() -> None:
        nonlocal done
        for _ in range(most + 2):
            behind.write([call])
            done += 1

    writer = Thread(target=fill)
    writer.start()
    _wait_until(lambda: done == most)
    writer.join(0.2)
    assert done == most
    found = 0
    while found < (most + 2) * len(call):
        found += len(os.read(read, 1 << 20))
    writer.join()
    behind.drain()
    behind.close()
    os.close(read)


def test_any_error_of_the_thread_reaches_the_caller(tmp_path: Path) -> None:
    behind = WriteBehind(_descriptor(tmp_path / "shard"))
    behind.write([memoryview(b"abcd")[::2]])  # which the system's call does not take
    with pytest.raises(BufferError):
        behind.drain()
    behind.close()


def test_closing_forgets_what_is_not_written() -> None:
    read, write = os.pipe()
    behind = WriteBehind(write)
    behind.write([bytes(1 << 20)])
    behind.write([b"never"])
    found = bytearray(os.read(read, 1))
    closer = Thread(target=behind.close)
    closer.start()
    _wait_until(lambda: behind._closed)
    while piece := os.read(read, 1 << 20):  # until the other end is closed
        found += piece
    closer.join()
    os.close(read)
    assert found == bytes(1 << 20)


def test_the_writing_thread_may_close_it_as_a_collector_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fd = _descriptor(tmp_path / "shard")
    behind = WriteBehind(fd)
    plain = os.writev

    def closed_meanwhile(fd: int, pieces: list[memoryview]) -> int:
        behind.close()
        return plain(fd, pieces)

    monkeypatch.setattr(os, "writev", closed_meanwhile)
    behind.write([b"record"])
    _wait_until(lambda: not _is_open(fd))
    assert (tmp_path / "shard").read_bytes() == b"record"


def test_where_no_thread_starts_the_caller_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(Thread, "start", refuse)
    fd = _descriptor(tmp_path / "shard")
    behind = WriteBehind(fd)
    behind.write([b"one", b"two"])
    assert (tmp_path / "shard").read_bytes() == b"onetwo"
    behind.drain()
    behind.close()
    assert not _is_open(fd)


_AT_EXIT = """
import atexit, sys
from emlio import Writer
writer = Writer(sys.argv[1], shard_size="2kB")
atexit.register(writer.close)
for number in range(50):
    writer.write({"id": number, "data": bytes(100)})
"""
_CLOSED_TOO_LATE = """
import sys
from emlio import Writer

class Closer:
    def __init__(self):
        self.writer = Writer(sys.argv[1])
    def __del__(self):  # when modules are torn down, and other threads do not run any more
        self.writer.write(bytes(5_000_000))
        self.writer.close()

closer = Closer()
for number in range(40):
    closer.writer.write(bytes(1_000_000))
"""
_NEVER_CLOSED = """
import sys
from emlio import Writer
writer = Writer(sys.argv[1], shard_size="9MB")
for number in range(50):
    writer.write({"id": number, "data": bytes(100_000)})
"""


def test_a_program_that_closes_its_writer_while_python_ends_has_a_dataset(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", _AT_EXIT, tmp_path / "data"], check=True, timeout=60)
    with EmlioLoader(str(tmp_path / "data"), batch_size=10, epochs=1, to="numpy") as loader:
        assert sorted(number for batch in loader for number in batch["id"].tolist()) == list(range(50))


def test_a_program_that_closes_its_writer_too_late_ends(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", _CLOSED_TOO_LATE, tmp_path / "data"], check=True, timeout=60)


def test_a_program_that_never_closes_its_writer_ends(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _NEVER_CLOSED, tmp_path / "data"], check=True, timeout=60, capture_output=True, text=True
    )
    assert "was not closed" in ended.stderr
    assert not list((tmp_path / "data").rglob("*.tmp"))


def test_a_record_may_be_overwritten_once_it_is_given(tmp_path: Path) -> None:
    buffer = bytearray(5_000)
    with Writer(tmp_path / "data") as writer:
        for number in range(2_000):
            buffer[:] = bytes([number % 256]) * len(buffer)
            writer.write(buffer)
    with EmlioLoader(str(tmp_path / "data"), batch_size=100, epochs=1, shuffle=False, raw="rows", to="numpy") as loader:
        number = 0
        for batch in loader:
            for row in batch["record"]:
                assert bytes(row) == bytes([number % 256]) * len(buffer)
                number += 1
    assert number == 2_000
