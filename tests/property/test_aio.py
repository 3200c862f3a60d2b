"""Fast files beside a plain file: the same bytes and sizes, for all offsets, sizes, alignments and orders of requests."""

import os
from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emlio.aio import AioHandle, Request, aligned
from emlio.aio.blocks import Wanted, cut
from emlio.aio.interval import Setting
from emlio.aio.tuner import Tune
from emlio.errors import FileError
from emlio.native.disk import ALIGNMENT
from emlio_testing.aio_handles import handle_of_kind

_PAGES = 24
_NEAR = st.builds(
    lambda page, by: max(page * ALIGNMENT + by, 0),
    st.integers(0, _PAGES),
    st.sampled_from([0, 0, 1, -1, 511, 512, 2000, 4095]),
)
"""Places near the borders of pages, and on them."""


def _turning() -> Tune:
    """Another setting after each call."""
    turns = cycle(Setting(block_bytes=pages * ALIGNMENT, depth=depth) for pages in (1, 2, 5) for depth in (1, 4))
    return Tune(decide=lambda memory, now: replace(memory.seen(now), setting=next(turns)), every_ns=0)


@pytest.fixture(
    params=[("io_uring", True, False), ("aio", True, False), ("io_uring", False, False), ("aio", True, True)]
)
def handle(request: pytest.FixtureRequest) -> Iterator[AioHandle]:
    kind, direct, turns = request.param
    with handle_of_kind(kind, 2 * ALIGNMENT, 3, direct=direct, tune=_turning() if turns else "off") as made:
        yield made


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("files")


def _buffer(content: bytes, shift: int) -> "np.ndarray[tuple[int], np.dtype[np.uint8]]":
    buffer = aligned(len(content) + shift)[shift:]
    buffer[:] = np.frombuffer(content, np.uint8)
    return buffer


_ROUND = st.lists(
    st.tuples(st.booleans(), _NEAR, _NEAR, st.sampled_from([0, 0, 1, 64, 512]), st.integers(0, 255)),
    min_size=1,
    max_size=6,
)


@given(st.lists(_ROUND, max_size=4), _NEAR)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_files_are_as_if_read_and_written_plainly(
    handle: AioHandle, folder: Path, rounds: "list[list[tuple[bool, int, int, int, int]]]", size: int
) -> None:
    path, model = folder / "file", bytearray(os.urandom(size))
    path.write_bytes(model)
    for requests in rounds:
        taken = np.zeros(4 * _PAGES * ALIGNMENT, bool)  # requests under way must not overlap
        begun: list[Request] = []
        reads: list[tuple[np.ndarray, bytes]] = []
        for write, offset, length, shift, seed in requests:
            if taken[offset : offset + length].any() or (not write and offset + length > len(model)):
                continue
            taken[offset : offset + length] = True
            if write:
                content = np.random.default_rng(seed).bytes(length)
                begun.append(Request(buffer=_buffer(content, shift), file=path, offset=offset, write=True))
            else:
                buffer = _buffer(bytes(length), shift)
                reads.append((buffer, bytes(model[offset : offset + length])))
                begun.append(Request(buffer=buffer, file=path, offset=offset))
        handle.submit(begun)
        assert handle.wait() == len(begun)
        for request in begun:
            if request.write and len(memoryview(request.buffer)):
                end = request.offset + len(memoryview(request.buffer))
                model.extend(bytes(max(end - len(model), 0)))
                model[request.offset : end] = memoryview(request.buffer)
        assert all(buffer.tobytes() == wanted for buffer, wanted in reads)
        assert path.read_bytes() == bytes(model), "exact, to the last byte"


@given(_NEAR, _NEAR, st.integers(1, 9000), st.sampled_from([0, 1]))
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_file_that_is_too_short_is_always_told(
    handle: AioHandle, folder: Path, size: int, length: int, beyond: int, shift: int
) -> None:
    path = folder / "short"
    path.write_bytes(bytes(size))
    with pytest.raises(FileError, match=f"the file has {size:,} bytes"):
        handle.pread(_buffer(bytes(length + beyond), shift), path, max(size - length, 0))


@given(
    st.lists(st.tuples(_NEAR, _NEAR, st.integers(0, 5000), st.booleans()), max_size=8),
    st.sampled_from([1, 2, 16]),
    st.booleans(),
)
def test_blocks_are_aligned_and_hold_each_byte_once(
    requests: "list[tuple[int, int, int, bool]]", pages: int, writes: bool
) -> None:
    starts, sizes, addresses, direct = np.array(requests, np.int64).reshape(-1, 4).T
    files = np.arange(len(starts))
    addresses = addresses + (files + 1) * (1 << 30)
    wanted = Wanted(
        plain=2 * files, direct=np.where(direct > 0, 2 * files + 1, -1), starts=starts, sizes=sizes, addresses=addresses
    )
    blocks = cut(wanted, pages * ALIGNMENT, writes=writes).in_turns()
    # Of each block the address of each byte and its offset in its file.
    seen: list[np.ndarray] = [_NONE]
    total = 0
    for stage in blocks.stages(4 * ALIGNMENT):
        assert stage.bounced_sizes[:-1].sum() < 4 * ALIGNMENT + pages * ALIGNMENT
        total += len(stage.sizes)
        for at in range(len(stage.sizes)):
            start, size, needed = (int(each[at]) for each in (stage.starts, stage.sizes, stage.needed))
            address, skip, copied = (int(each[at]) for each in (stage.addresses, stage.skips, stage.copied))
            assert 0 < needed <= size <= pages * ALIGNMENT
            if stage.descriptors[at] % 2:
                assert start % ALIGNMENT == size % ALIGNMENT == 0
                assert copied or address % ALIGNMENT == 0
            else:
                assert not copied
                assert not writes or size < 2 * ALIGNMENT or not direct[int(stage.descriptors[at]) // 2]
            assert not writes or needed == size, "what is written is exactly what was asked for"
            seen.append(_bytes_of(address, start + skip, copied or size))
    assert total == len(blocks.sizes)
    expected = [_bytes_of(*each) for each in zip(addresses, starts, sizes, strict=True)]
    found, wanted_bytes = (np.concatenate([_NONE, *each], axis=1) for each in (seen, expected))
    found = found[:, np.argsort(found[0], kind="stable")]
    assert (np.diff(found[0]) > 0).all(), "none comes twice"
    assert np.array_equal(found, wanted_bytes)


_NONE = np.zeros((2, 0), np.int64)


def _bytes_of(address: int, offset: int, size: int) -> "np.ndarray[tuple[int, int], np.dtype[np.int64]]":
    """The address of each byte and its offset in its file."""
    return np.stack([np.arange(address, address + size), np.arange(offset, offset + size)])
