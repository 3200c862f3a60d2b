"""`AioHandle.wait` where threads share a handle: none returns before its own requests have ended, or misses their errors."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from threading import Event

import numpy as np
import pytest

from emlio.aio.handle import AioHandle
from emlio.aio.transfers import Task, Transfers
from emlio.errors import FileError

SOON_S = 10.0


class _Gate:
    """Keeps the disk from beginning."""

    def __init__(self) -> None:
        self.reached, self.opens = Event(), Event()


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> _Gate:
    made, carry_out = _Gate(), Transfers.carry_out

    def later(transfers: Transfers, tasks: Sequence[Task]) -> None:
        made.reached.set()
        assert made.opens.wait(SOON_S)
        carry_out(transfers, tasks)

    monkeypatch.setattr(Transfers, "carry_out", later)
    return made


@pytest.fixture
def handle() -> Iterator[AioHandle]:
    with AioHandle() as handle:
        yield handle


@pytest.fixture
def other() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as other:
        yield other


def test_a_wait_beside_another_ends_with_the_requests_too(
    tmp_path: Path, handle: AioHandle, gate: _Gate, other: ThreadPoolExecutor
) -> None:
    (tmp_path / "file").write_bytes(bytes(range(256)))
    buffer = np.zeros(256, np.uint8)
    handle.async_pread(buffer, tmp_path / "file")
    assert gate.reached.wait(SOON_S)
    beside = [other.submit(handle.wait) for _ in range(2)]
    assert wait(beside, 0.2).done == set()
    gate.opens.set()
    assert sum(each.result(SOON_S) for each in beside) == 1
    assert buffer.tolist() == list(range(256))


def test_an_error_is_told_to_the_thread_that_asked_though_another_one_waited(
    tmp_path: Path, handle: AioHandle, other: ThreadPoolExecutor
) -> None:
    (tmp_path / "short").write_bytes(b"short")
    handle.async_pread(bytearray(10), tmp_path / "short")
    with pytest.raises(FileError, match="short"):
        other.submit(handle.wait).result(SOON_S)
    with pytest.raises(FileError, match="short"):
        handle.wait()
    assert handle.wait() == 0
    assert other.submit(handle.wait).result(SOON_S) == 0


def test_what_fails_otherwise_is_told_by_wait_once(
    tmp_path: Path, handle: AioHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"0123456789")

    def fail(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(Transfers, "carry_out", fail)
        handle.async_pread(bytearray(10), tmp_path / "file")
        with pytest.raises(MemoryError):
            handle.wait()
    assert handle.wait() == 0
    handle.async_pread(bytearray(10), tmp_path / "file")
    assert handle.wait() == 1
