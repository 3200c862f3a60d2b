"""Files that are read past the page cache: the same bytes as ever, read ahead, and the way round where the disk refuses."""

import errno
import fcntl
import io
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emlio.index.dataset import Dataset
from emlio.index.opening import open_dataset
from emlio.native.disk import Batch, DiskQueue, TransferError
from emlio.reading.buffers import AheadBudget
from emlio.reading.direct.direct_engine import DirectEngine
from emlio.reading.direct.io_choice import IoMode, choose_io
from emlio.reading.direct.io_settings import IoSettings
from emlio.reading.gather import Gatherer
from emlio.reading.group_engine import GroupEngine
from emlio.reading.open_engine import open_engine
from emlio_testing.datasets import write_tfrecord
from emlio_testing.format_datasets import FORMS
from emlio_testing.reading import feed_of

_SIZE = (5 << 20) + 333


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[DirectEngine]:
    write_tfrecord(tmp_path / "0.tfrecord", [np.random.default_rng(0).bytes(_SIZE)])
    with open_dataset("d", tmp_path) as opened:
        if not choose_io(IoMode.DIRECT, opened).direct:
            pytest.skip("the file system of temporary files does not offer direct reading")
        made = open_engine(opened, None, AheadBudget(8 << 20), direct=IoSettings())
        assert isinstance(made, DirectEngine)
        yield made
        made.close()
        assert made.pool.lent == 0


_STEP = st.tuples(
    st.sampled_from(["seek", "on"]), st.integers(0, _SIZE + 99), st.sampled_from([0, 7, 5000, 70_000, 3 << 20])
)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(_STEP, max_size=12), refusing=st.booleans())
def test_what_is_read_is_in_the_file_whatever_the_order(
    engine: DirectEngine, steps: list[tuple[str, int, int]], *, refusing: bool
) -> None:
    content, finish = engine.dataset.folder_store.read(0, 0, _SIZE + 99), DiskQueue.finish
    calls = 0

    def refuse(queue: DiskQueue, batch: Batch, *ranges: "np.ndarray | None") -> None:
        nonlocal calls
        finish(queue, batch, *ranges)
        calls += 1
        if refusing and calls % 2:
            raise TransferError(errno.EIO, 0)

    with pytest.MonkeyPatch.context() as patch, engine.opened(0) as raw, io.BufferedReader(raw) as file:
        patch.setattr(DiskQueue, "finish", refuse)
        for what, place, count in steps:
            if what == "seek":
                file.seek(place)
            at = file.tell()
            assert file.read(count) == content[at : at + count]


def test_a_file_that_is_read_in_order_is_read_ahead(engine: DirectEngine) -> None:
    content = engine.dataset.folder_store.read(0, 0, _SIZE + 99)
    with engine.opened(0) as raw, io.BufferedReader(raw) as file:
        assert b"".join(iter(lambda: file.read(10_000), b"")) == content
        file.seek(-100, os.SEEK_END)
        assert file.read() == content[-100:]


def test_a_file_that_cannot_be_opened_so_is_read_through_the_page_cache(
    engine: DirectEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.EINVAL, "its file system does not offer it")

    monkeypatch.setattr(fcntl, "fcntl", refuse)
    with engine.opened(0) as file:
        assert file.readall() == engine.dataset.folder_store.read(0, 0, int(engine.files.store.sizes[0]))


@pytest.mark.parametrize("form", ["parquet", "arrow", "npz-inflated"])
def test_groups_are_made_of_files_that_are_read_directly(form: str, tmp_path: Path, own_cache: Path) -> None:
    FORMS[form].make(tmp_path / "data", 211)
    with open_dataset("d", tmp_path / "data") as dataset:
        assert choose_io(IoMode.DIRECT, dataset).direct
        assert _rows(dataset, direct=True) == _rows(dataset, direct=False)


def _rows(dataset: Dataset, *, direct: bool) -> bytes:
    engine = open_engine(dataset, None, AheadBudget(1 << 20), direct=IoSettings() if direct else None)
    assert isinstance(engine, GroupEngine) == (dataset.groups is not None)
    feed, parts, gatherer = feed_of(engine, "global", 4000, end=1), list[bytes](), Gatherer()
    while (message := feed.next(gatherer)) is not None:
        out = np.zeros(message.payload_bytes, np.uint8)
        feed.read(message, gatherer, out)
        parts.append(out.tobytes())
    feed.stop()
    assert (engine.disk_bytes > 0) == direct
    engine.close()
    return b"".join(parts)
