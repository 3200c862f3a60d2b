"""The handle for fast files: buffers of all kinds, errors that tell what must hold, many requests, one owner."""

import errno
import mmap
import os
import resource
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from emlio.aio import AioHandle, Request, aligned, memory, pinned
from emlio.aio.opened_file import open_file
from emlio.errors import ClosedError, ConfigError, EmlioError, FileError
from emlio.metrics.handles import FilesCollector
from emlio.native.disk import Batch, DiskQueue, TransferError

SIZE = (1 << 20) + 777


@pytest.fixture
def content() -> npt.NDArray[np.uint8]:
    return np.random.default_rng(0).integers(0, 256, SIZE, np.uint8)


@pytest.fixture
def file(tmp_path: Path, content: npt.NDArray[np.uint8]) -> Path:
    (tmp_path / "file").write_bytes(content.tobytes())
    return tmp_path / "file"


def test_files_here_are_read_past_the_page_cache(file: Path) -> None:
    with open_file(file, write=False, direct=True) as opened:
        if opened.direct < 0:
            pytest.skip("the file system of temporary files does not offer direct reading")
        with pytest.raises(OSError, match="Invalid argument"):
            os.preadv(opened.direct, [bytearray(100)], 1)
        assert len(os.pread(opened.plain, 100, 1)) == 100


@pytest.mark.parametrize(
    "make", [aligned, bytearray, lambda size: mmap.mmap(-1, size), lambda size: np.zeros(size // 4, "f4")]
)
def test_buffers_of_all_kinds_are_filled(
    handle: AioHandle, file: Path, content: npt.NDArray[np.uint8], make: "type[bytearray]"
) -> None:
    buffer = make(200_000)
    assert handle.pread(buffer, file, 4096) == 200_000
    assert bytes(memoryview(buffer).cast("B")) == content[4096 : 4096 + 200_000].tobytes()


def test_tensors_are_filled_and_written(handle: AioHandle, file: Path, content: npt.NDArray[np.uint8]) -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.zeros(50_000, dtype=torch.bfloat16)
    assert handle.pread(tensor, str(file), 3) == 100_000
    assert tensor.view(torch.uint8).numpy().tobytes() == content[3:100_003].tobytes()
    handle.pwrite(tensor, file.with_name("copy"))
    assert file.with_name("copy").read_bytes() == content[3:100_003].tobytes()
    with pytest.raises(ConfigError, match="contiguous"):
        handle.pread(tensor.view(2, -1).t(), file)


def test_tensors_elsewhere_are_copied_part_by_part(
    handle: AioHandle, file: Path, content: npt.NDArray[np.uint8], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.zeros(SIZE - 5, dtype=torch.uint8)
    address = tensor.data_ptr()
    monkeypatch.setattr(memory, "is_on_host", lambda tensor: tensor.data_ptr() != address)
    handle.pread(tensor, file, 5)
    assert tensor.numpy().tobytes() == content[5:].tobytes()
    handle.pwrite(tensor, file.with_name("copy"), 1)
    assert file.with_name("copy").read_bytes() == b"\0" + content[5:].tobytes()
    with pytest.raises(FileError, match="has 1,049,353 bytes"):
        handle.pread(tensor, file, 6)


@pytest.mark.gpu
def test_tensors_of_a_gpu_and_pinned_ones_are_filled_and_written(file: Path, content: npt.NDArray[np.uint8]) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch.cuda finds no device here")
    with AioHandle("64KiB", 8) as handle:
        tensor, locked = torch.zeros(SIZE, dtype=torch.uint8, device="cuda"), pinned(SIZE)
        for buffer in (tensor, locked):
            handle.async_pread(buffer, file)
        assert handle.wait() == 2
        assert locked.is_pinned()
        assert tensor.cpu().numpy().tobytes() == locked.numpy().tobytes() == content.tobytes()
        handle.pwrite(tensor, file.with_name("copy"))
    assert file.with_name("copy").read_bytes() == content.tobytes()


def test_what_lacks_a_gpu_is_told() -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is one")
    with pytest.raises(ConfigError, match="needs torch and a GPU"):
        pinned(100)


@pytest.mark.parametrize(
    "buffer", [b"read-only", np.zeros((4, 4))[:, 1], np.array([None]), "text", [1], np.broadcast_to(np.zeros(1), 4)]
)
def test_buffers_that_cannot_be_are_refused(handle: AioHandle, file: Path, buffer: object) -> None:
    with pytest.raises(ConfigError, match=r"must be|writable"):
        handle.pread(buffer, file)


@pytest.mark.parametrize(
    ("argument", "wrong"),
    [
        *(("block_size", wrong) for wrong in (0, 5000, "1GiB", "large")),
        *(("queue_depth", wrong) for wrong in (0, 1.5, "8")),
        ("kind", "fast"),
    ],
)
def test_arguments_are_checked(argument: str, wrong: Any) -> None:
    with pytest.raises(ConfigError, match=f"^{argument} must be"):
        AioHandle(**{argument: wrong})


@pytest.mark.parametrize("offset", [1.0, "1", None])
def test_offsets_are_whole_numbers(handle: AioHandle, file: Path, offset: Any) -> None:
    for begin in (handle.pread, handle.async_pread, handle.pwrite):
        with pytest.raises(ConfigError, match=r"^offset must be in"):
            begin(bytearray(2), file, offset)


@pytest.mark.parametrize("wrong", ["", "a\0b", None, -1, True, 1.0])
def test_what_names_no_file_is_refused(handle: AioHandle, wrong: Any) -> None:
    with pytest.raises(ConfigError, match="a file must be a path or a descriptor, got"):
        handle.pread(bytearray(1), wrong)


def test_pipes_are_refused_and_do_not_block(handle: AioHandle, tmp_path: Path) -> None:
    named = tmp_path / "pipe"
    os.mkfifo(named)
    read_end, write_end = os.pipe()
    try:
        for file in (named, read_end):
            with pytest.raises(FileError, match="must be a regular file or a disk"):
                handle.pread(bytearray(1), file)
        with pytest.raises(FileError, match="No such device"):
            handle.pwrite(b"x", named)
        with pytest.raises(FileError, match="must be a regular file or a disk"):
            handle.pwrite(b"x", write_end)
    finally:
        os.close(read_end)
        os.close(write_end)


@pytest.mark.parametrize(("flags", "write", "word"), [(os.O_RDONLY, True, "writing"), (os.O_WRONLY, False, "reading")])
def test_a_descriptor_allows_what_it_was_opened_for(
    handle: AioHandle, file: Path, content: npt.NDArray[np.uint8], flags: int, *, write: bool, word: str
) -> None:
    descriptor = os.open(file, flags)
    try:
        with pytest.raises(FileError, match=f"the descriptor must be open for {word}"):
            (handle.pwrite if write else handle.pread)(bytearray(3), descriptor)
    finally:
        os.close(descriptor)
    assert file.read_bytes() == content.tobytes()


def test_a_tensor_without_memory_is_refused(handle: AioHandle, file: Path) -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(ConfigError, match="must have memory"):
        handle.pread(torch.zeros(10, device="meta"), file)


def test_a_system_without_a_queue_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(DiskQueue, "__init__", refuse)
    with pytest.raises(ConfigError, match="no queue of transfers: Operation not permitted"):
        AioHandle()


def test_many_requests_of_several_files_begin_in_one_call(
    handle: AioHandle, file: Path, content: npt.NDArray[np.uint8]
) -> None:
    other = file.with_name("other")
    handle.pwrite(content[::-1].copy(), other)
    rng = np.random.default_rng(1)
    starts = rng.integers(0, SIZE - 9000, 200)
    buffers = [np.zeros(size, np.uint8) for size in rng.integers(0, 9000, 200)]
    handle.submit(
        Request(buffer=buffer, file=(file, other)[number % 2], offset=int(start))
        for number, (buffer, start) in enumerate(zip(buffers, starts, strict=True))
    )
    assert (handle.wait(), handle.wait()) == (200, 0)
    for number, (buffer, start) in enumerate(zip(buffers, starts, strict=True)):
        whole = (content, content[::-1])[number % 2]
        assert (buffer == whole[start : start + len(buffer)]).all()


def test_a_request_that_fails_fails_alone(handle: AioHandle, file: Path, content: npt.NDArray[np.uint8]) -> None:
    buffers = [np.zeros(20_000, np.uint8) for _ in range(9)]
    for number, buffer in enumerate(buffers):
        handle.async_pread(buffer, file, SIZE - 10 if number in (4, 7) else number * 100)
    with pytest.raises(FileError, match="cannot read") as caught:
        handle.wait()
    assert (caught.value.errno, caught.value.filename, caught.value.offset) == (errno.ENODATA, str(file), SIZE - 10)
    assert str(caught.value) == f"{file}: cannot read 20,000 bytes at offset 1,049,343: the file has 1,049,353 bytes"
    assert isinstance(caught.value, EmlioError)
    for number in set(range(9)) - {4, 7}:
        assert (buffers[number] == content[number * 100 : number * 100 + 20_000]).all()
    assert handle.wait() == 0


def test_a_file_that_cannot_be_opened_begins_nothing(handle: AioHandle, file: Path) -> None:
    buffer, missing = np.zeros(10, np.uint8), file.with_name("missing")
    with pytest.raises(FileError, match="missing: cannot be opened for reading: No such file") as caught:
        handle.submit([Request(buffer=buffer, file=file), Request(buffer=buffer, file=missing)])
    assert (caught.value.errno, handle.wait(), buffer.any()) == (errno.ENOENT, 0, False)
    with pytest.raises(FileError, match="Is a directory"):
        handle.pread(buffer, file.parent)
    for offset in (-1, 2**63 - 10, 2**63):
        with pytest.raises(ConfigError, match=rf"offset must be in \[0, 4611686018427387894\], got {offset}"):
            handle.async_pread(buffer, file, offset)
    descriptor = os.open(file, os.O_RDONLY)
    assert handle.pread(buffer, descriptor) == 10
    os.close(descriptor)
    with pytest.raises(FileError, match="Bad file descriptor") as caught:
        handle.pread(buffer, descriptor)
    assert caught.value.errno == errno.EBADF


@pytest.mark.parametrize(
    ("error", "must"), [(errno.ENOSPC, "must have room"), (errno.EIO, "disk must work"), (errno.EAGAIN, "resources")]
)
def test_errors_of_the_system_say_what_must_hold(
    handle: AioHandle, file: Path, error: int, must: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish = DiskQueue.finish

    def fail(queue: DiskQueue, batch: Batch) -> None:
        finish(queue, batch)
        raise TransferError(error, 1)

    monkeypatch.setattr(DiskQueue, "finish", fail)
    with pytest.raises(FileError, match=must) as caught:
        handle.pwrite(aligned(1 << 18), file)
    assert (caught.value.errno, caught.value.offset) == (error, 64 << 10)


def test_a_file_that_may_not_grow_is_told_before_anything_is_written(handle: AioHandle, file: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 21, limits[1]))
    try:
        with pytest.raises(FileError, match="files of this size") as caught:
            handle.pwrite(aligned(1 << 20), file, (1 << 21) - 4096)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (caught.value.errno, file.stat().st_size) == (errno.EFBIG, SIZE)


def test_files_in_memory_are_read_and_written(content: npt.NDArray[np.uint8]) -> None:
    if not os.path.isdir("/dev/shm"):
        pytest.skip("there is no /dev/shm")
    with TemporaryDirectory(dir="/dev/shm") as folder, AioHandle("64KiB", 8) as handle:
        handle.pwrite(content, Path(folder) / "file", 3)
        buffer = bytearray(SIZE)
        handle.pread(buffer, Path(folder) / "file", 3)
        assert bytes(buffer) == content.tobytes()


def test_threads_share_a_handle(handle: AioHandle, file: Path, content: npt.NDArray[np.uint8]) -> None:
    wrong: list[int] = []

    def read(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for start in rng.integers(0, SIZE - 70_000, 50).tolist():
            buffer = np.zeros(70_000, np.uint8)
            handle.pread(buffer, file, start)
            if (buffer != content[start : start + 70_000]).any():
                wrong.append(start)

    threads = [Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_closing_waits_for_requests_and_is_the_end(file: Path, content: npt.NDArray[np.uint8]) -> None:
    handle, buffer = AioHandle(), np.zeros(SIZE, np.uint8)
    handle.async_pread(buffer, file)
    handle.close()
    handle.close()
    assert (buffer == content).all()
    for action in (handle.wait, lambda: handle.pread(buffer, file), lambda: handle.async_pread(buffer, file)):
        with pytest.raises(ClosedError, match="closed"):
            action()


def test_a_handle_does_not_survive_a_fork(file: Path) -> None:
    with AioHandle() as handle:
        handle._process += 1
        with pytest.raises(ClosedError, match="another process"):
            handle.pread(bytearray(1), file)
        handle._process -= 1


def test_a_handle_counts_what_it_has_done(handle: AioHandle, file: Path) -> None:
    handle.pread(bytearray(5000), file)
    handle.submit(Request(buffer=bytearray(100), file=file, offset=at) for at in (0, 100))
    handle.submit([Request(buffer=bytes(300), file=file.with_name("new"), write=True)])
    handle.submit([Request(buffer=bytearray(100), file=file, offset=SIZE)])
    with pytest.raises(FileError):
        handle.wait()
    seen = handle.figures()
    assert (seen.reads, seen.writes, seen.read_bytes, seen.written_bytes, seen.failed) == (3, 1, 5200, 300, 1)
    assert seen.busy_ns > 0


def test_what_is_no_handle_is_refused() -> None:
    with pytest.raises(ConfigError, match="files must be AioHandle objects, got 5 as 'default'"):
        FilesCollector(5)  # type: ignore[arg-type]
