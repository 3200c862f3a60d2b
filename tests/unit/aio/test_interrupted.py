"""A handle whose calls end early: by a signal handler that raises, by an error of `close`, or because there is no thread."""

import errno
import gc
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from weakref import ref

import numpy as np
import pytest

from emlio import native
from emlio.aio import AioHandle, Request, aligned, opened_file
from emlio.errors import ConfigError, FileError

pytestmark = pytest.mark.skipif(not native.is_used(), reason=f"the C library is not used: {native.why_not()}")

SOON_S = 10.0


@pytest.fixture
def handle() -> Iterator[AioHandle]:
    with AioHandle() as handle:
        yield handle


@pytest.mark.parametrize("kind", [KeyboardInterrupt, TimeoutError])
def test_a_signal_handler_that_raises_ends_a_read_with_its_error_and_the_handle_can_be_closed(
    tmp_path: Path, kind: type[BaseException]
) -> None:
    def late(*_: object) -> None:
        raise kind("late")

    (tmp_path / "file").write_bytes(bytes(64 << 20))
    buffer, before = aligned(64 << 20), signal.signal(signal.SIGALRM, late)
    try:
        for after_s in (0.02, 0.025, 0.03):
            handle = AioHandle()
            with pytest.raises(kind, match="late"):  # noqa: PT012  # it comes in any of these calls
                signal.setitimer(signal.ITIMER_REAL, after_s)
                while True:
                    handle.pread(buffer, tmp_path / "file")
            closing = Thread(target=handle.close, daemon=True)
            closing.start()
            closing.join(SOON_S)
            assert not closing.is_alive()
    finally:
        signal.signal(signal.SIGALRM, before)


def test_what_a_file_system_tells_at_close_is_the_error_of_the_file_and_told_once(
    tmp_path: Path, handle: AioHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As NFS does: all descriptors are closed in any case."""
    close, failing = os.close, {str(tmp_path / "bad")}

    def close_late(descriptor: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        close(descriptor)
        if path in failing:
            raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    data, descriptors = np.ones(8192, np.uint8), os.listdir("/proc/self/fd")
    with monkeypatch.context() as patched:
        patched.setattr(opened_file.os, "close", close_late)
        handle.submit([Request(buffer=data, file=tmp_path / name, write=True) for name in ("good", "bad")])
        with pytest.raises(
            FileError, match=r"bad: cannot write 8,192 bytes at offset 0: .*quota must have room"
        ) as told:
            handle.wait()
        assert told.value.errno == errno.EDQUOT
        assert handle.wait() == 0
        with pytest.raises(FileError, match="quota"):
            handle.pwrite(data, tmp_path / "bad")
    assert os.listdir("/proc/self/fd") == descriptors
    handle.async_pwrite(data, tmp_path / "bad")
    assert handle.wait() == 1


def test_a_request_without_a_thread_is_refused_and_never_begun(
    tmp_path: Path, handle: AioHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Thread) -> None:
        raise RuntimeError("can't start new thread")

    (tmp_path / "file").write_bytes(b"file")
    refused, read = bytearray(4), bytearray(4)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(ConfigError, match="no thread"):
            handle.async_pread(refused, tmp_path / "file")
        assert handle.wait() == 0
    handle.async_pread(read, tmp_path / "file")
    assert handle.wait() == 1
    assert (bytes(refused), bytes(read)) == (bytes(4), b"file")


def test_an_error_that_is_kept_for_a_thread_goes_with_it(tmp_path: Path, handle: AioHandle) -> None:
    (tmp_path / "short").write_bytes(b"short")
    kept: list[ref[object]] = []

    def ask() -> None:
        buffer = np.zeros(10, np.uint8)
        kept.append(ref(buffer))
        handle.async_pread(buffer, tmp_path / "short")

    for _ in range(3):
        thread = Thread(target=ask)
        thread.start()
        thread.join()
        kept.append(ref(thread))
        del thread
        with pytest.raises(FileError):
            handle.wait()
    gc.collect()
    assert [each() for each in kept] == [None] * 6
