"""Shards on this host's disks: the same batches as through a daemon, in whole and in part, from any position."""

import json
import os
import shutil
from contextlib import ExitStack
from itertools import chain, islice
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np
import pytest

from emlio import EmlioLoader
from emlio.errors import ClosedError
from emlio.example.encode import encode_example
from emlio.formats.record_form import Slices
from emlio.formats.tfrecord.mapping import mapping_name
from emlio.tfrecord import FRAME_BYTES
from emlio_testing.datasets import make_dataset
from emlio_testing.serving import numbered_ids, raw_loader, served

_RECORDS = 203
_SMALL: dict[str, Any] = {"message_size": 4096, "memory": 1 << 20}
_SHARDS = 4
_MODES = ["global", "block:8:4", "shard", "none"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole dataset, and its halves as they would lie on two hosts; the same of decoded records; a tiny one."""
    folder = tmp_path_factory.mktemp("data")
    make_dataset(folder / "numbers", records=_RECORDS, shards=_SHARDS)
    make_dataset(folder / "bare", records=_RECORDS, shards=_SHARDS, mapped=False)
    make_dataset(folder / "tiny", records=3, shards=1, payload=8)
    make_dataset(
        folder / "examples",
        records=_RECORDS,
        shards=_SHARDS,
        payload=lambda number: encode_example(
            {"label": [number], "box": [number / 2.0, 1.5], "text": [b"n%d" % number] * (1 + number % 2)}
        ),
    )
    for name in ("numbers", "bare", "examples"):
        _part(folder / name, folder / f"{name}-first", (0, 1))
        _part(folder / name, folder / f"{name}-second", (2, 3))
    return folder


def _part(whole: Path, part: Path, shards: tuple[int, ...]) -> None:
    part.mkdir()
    for number in shards:
        name = f"train-{number:05d}-of-{_SHARDS:05d}.tfrecord"
        for file in (name, mapping_name(number)):
            if (whole / file).exists():
                shutil.copy2(whole / file, part / file)


def _plain(value: Any) -> Any:
    """A batch's content, bit for bit, as something that can be compared and outlives the loader."""
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, np.ndarray):
        return (value.dtype.str, value.shape, value.tobytes())
    if isinstance(value, list | Slices):
        return [_plain(part) for part in value]
    return bytes(value)


def _epochs(address: "str | Path", count: int = 2, **options: Any) -> list[list[Any]]:
    with raw_loader(address, **options) as loader:
        return [[_plain(batch) for batch in loader] for _ in range(count)]


def _epoch(loader: EmlioLoader) -> list[list[int]]:
    return [numbered_ids(batch) for batch in loader]


@pytest.mark.parametrize("shuffle", _MODES)
@pytest.mark.parametrize("name", ["numbers", "examples"])
def test_a_directory_and_a_daemon_give_the_same_batches_bit_for_bit(folder: Path, name: str, shuffle: str) -> None:
    options: dict[str, Any] = {"shuffle": shuffle, "raw": name == "numbers"}
    with served(folder / name, **_SMALL) as address:
        through_daemon = _epochs(address, **options)
        assert _epochs(address, local=folder / f"{name}-second", **options) == through_daemon
        assert _epochs(address, local=folder / name, **options) == through_daemon
    for directory in (folder / name, str(folder / name), f"file://{folder / name}"):
        assert _epochs(directory, **options) == through_daemon
    assert through_daemon[0] != through_daemon[1] or shuffle == "none"


@pytest.mark.parametrize("shuffle", _MODES)
@pytest.mark.parametrize("name", ["numbers", "bare"])
def test_two_ranks_each_with_a_half_of_its_own_get_every_record_once(folder: Path, name: str, shuffle: str) -> None:
    halves = (folder / f"{name}-first", folder / f"{name}-second")
    seen: list[list[int]] = [[], []]
    with (
        served(halves[0], **_SMALL) as first,
        served(halves[1], **_SMALL) as second,
        served(folder / name, **_SMALL) as whole,
        ExitStack() as stack,
    ):
        for rank, other in enumerate((second, first)):
            options: dict[str, Any] = {"rank": rank, "world_size": 2, "shuffle": shuffle, "batch_size": 9}
            reference = _epochs(whole, **options)
            loader = stack.enter_context(raw_loader(other, local=halves[rank], **options))
            for epoch in range(2):
                batches = [(_plain(batch), numbered_ids(batch)) for batch in loader]
                assert [plain for plain, _ in batches] == reference[epoch]
                seen[epoch] += chain.from_iterable(ids for _, ids in batches)
            stats = loader.stats()
            assert stats.local_bytes > 0
            assert stats.received_bytes > 0
            assert stats.lanes > 0
    assert [sorted(ids) for ids in seen] == [list(range(_RECORDS))] * 2


def test_a_local_directory_that_is_named_may_be_relative(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    reference = _epochs(folder / "numbers", 1)
    assert _epochs("./numbers", 1) == reference
    with served(folder / "numbers", **_SMALL) as address:
        assert _epochs(address, 1, local="numbers-first") == reference


@pytest.mark.parametrize("stop", [1, 7, 12, 13])
def test_a_job_goes_on_from_its_position_whoever_reads(folder: Path, stop: int) -> None:
    with served(folder / "numbers", **_SMALL) as address:
        ways: list[tuple[Any, dict[str, Any]]] = [
            (address, {}),
            (address, {"local": folder / "numbers-first"}),
            (folder / "numbers", {}),
        ]
        first, second = _epochs(folder / "numbers")
        for begun, goes_on in ((0, 1), (1, 2), (2, 0), (2, 2)):
            where, options = ways[begun]
            with raw_loader(where, **options) as loader:
                for _ in islice(loader, stop):
                    pass
                state = json.loads(json.dumps(loader.state_dict()))
            where, options = ways[goes_on]
            with raw_loader(where, **options) as loader:
                loader.load_state_dict(state)
                assert [_plain(batch) for batch in loader] == first[stop:]
                assert [_plain(batch) for batch in loader] == second


@pytest.mark.parametrize("half", [False, True])
def test_out_of_order_the_same_batches_come(folder: Path, half: bool) -> None:
    reference = _epochs(folder / "numbers", 3)
    with served(folder / "numbers-second", **_SMALL) as address:
        where = address if half else folder / "numbers"
        options = {"local": folder / "numbers-first"} if half else {}
        came = _epochs(where, 3, in_order=False, **options)
    for epoch in range(3):
        assert sorted(map(str, came[epoch])) == sorted(map(str, reference[epoch]))


@pytest.mark.timeout(100)
@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize(("size_bytes", "batch_size"), [(3 << 20, 3), (300_000, 4)])
def test_a_window_smaller_than_a_batch_does_not_stop_it(
    tmp_path: Path, size_bytes: int, batch_size: int, half: bool, in_order: bool
) -> None:
    made = make_dataset(tmp_path / "numbers", records=14, shards=_SHARDS, payload=size_bytes)
    _part(tmp_path / "numbers", tmp_path / "first", (0, 1))
    with served(tmp_path / "numbers", **_SMALL) as address:
        where = address if half else tmp_path / "numbers"
        options: dict[str, Any] = {"local": tmp_path / "first"} if half else {}
        with raw_loader(where, prefetch="1MiB", batch_size=batch_size, in_order=in_order, **options) as loader:
            for _ in range(2):
                seen: list[int] = []
                for batch in loader:
                    seen += numbered_ids(batch)
                    assert [bytes(record) for record in batch["record"]] == [
                        made[number] for number in numbered_ids(batch)
                    ]
                assert sorted(seen) == list(range(14))
            # Beyond the window goes what the next batch needs, and no message more.
            assert loader.stats().peak_window_bytes <= max(1 << 20, batch_size * (size_bytes + FRAME_BYTES)) + (1 << 20)


def test_what_a_user_keeps_stays_as_it_is_while_memory_is_used_again(tmp_path: Path) -> None:
    made = make_dataset(tmp_path / "numbers", records=60, shards=2, payload=150_000)
    with raw_loader(tmp_path / "numbers", batch_size=4, prefetch="2MiB") as loader:
        kept = list(loader)
        for _ in range(4):
            assert len(_epoch(loader)) == 15
        for batch in kept:
            assert [bytes(record) for record in batch["record"]] == [made[number] for number in numbered_ids(batch)]
    assert [bytes(record) for record in kept[-1]["record"]] == [made[number] for number in numbered_ids(kept[-1])]


def _sockets() -> set[str]:
    found: set[str] = set()
    for number in os.listdir("/proc/self/fd"):
        try:
            found.add(os.readlink(f"/proc/self/fd/{number}"))
        except OSError:
            continue  # the one that listed the folder
    return {target for target in found if target.startswith("socket:")}


def test_a_directory_needs_no_socket(folder: Path) -> None:
    before = _sockets()
    with raw_loader(folder / "numbers") as loader:
        batches = iter(loader)
        next(batches)
        assert _sockets() == before
        assert len(list(batches)) == 12
        assert _sockets() == before
        assert loader.stats().lanes == 0
    with served(folder / "numbers", **_SMALL) as address, raw_loader(address) as loader:
        next(iter(loader))
        assert _sockets() > before, "with a daemon there are sockets, and this test sees them"


def test_closing_in_the_midst_of_an_epoch_ends_it_and_leaves_the_user_what_he_has(folder: Path) -> None:
    loader = raw_loader(folder / "numbers")
    batches = iter(loader)
    batch = next(batches)
    before = _plain(batch)
    loader.close()
    loader.close()
    with pytest.raises(ClosedError, match="the loader is closed"):
        next(batches)
    assert _plain(batch) == before


def test_closing_from_another_thread_wakes_who_waits(folder: Path) -> None:
    waiting, go_on, raised = Event(), Event(), list[BaseException]()

    def transform(sample: Any) -> Any:
        waiting.set()
        assert go_on.wait(20)
        return sample

    loader = raw_loader(folder / "numbers", transform=transform)

    def use() -> None:
        try:
            next(iter(loader))
        except ClosedError as error:
            raised.append(error)

    user, closer = Thread(target=use), Thread(target=loader.close)
    user.start()
    assert waiting.wait(20)
    closer.start()
    user.join(20)
    go_on.set()
    closer.join(20)
    assert not user.is_alive()
    assert not closer.is_alive()
    assert len(raised) == 1
