"""A handle whose settings change between calls: the same bytes, the same errors, one end."""

import errno
import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

from emlio import native
from emlio.aio import AioHandle, Request, aligned, tuner
from emlio.aio.decider import Memory, Trial
from emlio.aio.interval import SETTINGS, Interval, Setting
from emlio.aio.tuner import Tune, shipped_models
from emlio.errors import ConfigError, FileError
from emlio.learned.model import Model

pytestmark = pytest.mark.skipif(not native.is_used(), reason=f"the C library is not used: {native.why_not()}")

FIRST = Setting(block_bytes=64 << 10, depth=4)


def turning(settings: Iterator[Setting]) -> Tune:
    """Another setting after each call."""
    return Tune(decide=lambda memory, now: replace(memory.seen(now), setting=next(settings)), every_ns=0)


@pytest.fixture
def handle() -> Iterator[AioHandle]:
    order = np.random.default_rng(0).permutation(len(SETTINGS)).tolist()
    with AioHandle("64KiB", 4, tune=turning(cycle([SETTINGS[place] for place in order]))) as made:
        yield made


def test_bytes_are_the_same_whatever_the_setting(handle: AioHandle, tmp_path: Path) -> None:
    random, file, size = np.random.default_rng(1), tmp_path / "file", 5 << 20
    model = np.zeros(size, np.uint8)
    handle.pwrite(model, file)
    for number in range(len(SETTINGS)):
        start = int(random.integers(0, size - 1)) & (-4096 if number % 2 else -1)
        part = aligned(min(int(random.integers(1, 3 << 20)), size - start))
        part[:] = random.integers(0, 256, len(part), np.uint8)
        model[start : start + len(part)] = part
        handle.pwrite(part, file, start)
        back = aligned(len(part))
        handle.pread(back, file, start)
        assert (back == part).all()
    assert file.read_bytes() == model.tobytes()


def test_calls_under_way_keep_their_setting_while_others_change_it(handle: AioHandle, tmp_path: Path) -> None:
    wrong: list[int] = []

    def work(number: int) -> None:
        for turn in range(20):
            part = np.full(600_000, (number + turn) % 256, np.uint8)
            file = tmp_path / str(number)
            handle.pwrite(part, file)
            back = np.zeros(600_000, np.uint8)
            handle.pread(back, file)
            if (back != part).any():
                wrong.append(number)

    threads = [Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_call_that_fails_leaves_the_others_complete_and_the_handle_in_use(handle: AioHandle, tmp_path: Path) -> None:
    short, whole = tmp_path / "short", tmp_path / "whole"
    short.write_bytes(bytes(100_000))
    content = np.random.default_rng(2).integers(0, 256, 1 << 20, np.uint8)
    for _ in range(10):
        copy = np.zeros_like(content)
        handle.submit(
            [
                Request(buffer=content, file=whole, write=True),
                Request(buffer=bytearray(200_000), file=short),
            ]
        )
        with pytest.raises(FileError) as caught:
            handle.wait()
        assert caught.value.errno == errno.ENODATA
        handle.pread(copy, whole)
        assert (copy == content).all()
    assert handle.setting(write=True) in SETTINGS


def failure_of(call: Callable[[], object]) -> FileError | None:
    try:
        call()
    except FileError as error:
        return error
    return None


@pytest.mark.parametrize("failing", [0, 3])
def test_a_write_that_fails_midway_can_be_written_again_with_another_setting(
    handle: AioHandle, tmp_path: Path, failing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file then has its new size, and no byte but those from before, zeros, and those to be written."""
    file, part = tmp_path / "file", np.full(1 << 20, 7, np.uint8)[1:]  # bounced, in stages
    begin, calls = tuner.DiskQueue.begin, cycle(range(failing + 1))

    def fail(*given: object, **more: object) -> object:
        if next(calls) == failing:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        call: Callable[..., object] = begin
        return call(*given, **more)

    with monkeypatch.context() as patched:
        patched.setattr(tuner.DiskQueue, "begin", fail)
        failures = [error for _ in range(4) if (error := failure_of(lambda: handle.pwrite(part, file))) is not None]
    assert failures
    assert all(error.errno == errno.EIO for error in failures)
    assert file.stat().st_size == len(part)
    assert set(np.unique(np.fromfile(file, np.uint8)).tolist()) <= {0, 7}
    handle.pwrite(part, file)
    assert file.read_bytes() == part.tobytes()


def test_reads_and_writes_are_decided_on_apart(tmp_path: Path) -> None:
    asked: list[tuple[bool, int]] = []

    def only_writes(memory: Memory, now: Interval) -> Memory:
        asked.append((now.write, now.size_bytes))
        return replace(memory.seen(now), setting=SETTINGS[-1]) if now.write else memory.seen(now)

    with AioHandle("64KiB", 4, tune=Tune(decide=only_writes, every_ns=0)) as handle:
        handle.pwrite(aligned(1 << 20), tmp_path / "file")
        handle.pread(aligned(1 << 16), tmp_path / "file")
        assert (handle.setting(write=True), handle.setting(write=False)) == (SETTINGS[-1], FIRST)
    assert asked == [(True, 1 << 20), (False, 1 << 16)]


def test_only_what_the_system_gives_no_queue_for_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(*_: object) -> object:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    seen: list[Memory] = []

    def try_last(memory: Memory, now: Interval) -> Memory:
        seen.append(memory)
        return replace(memory.seen(now), setting=SETTINGS[-1], trial=Trial(before=FIRST, rate=1.0))

    with AioHandle("64KiB", 4, tune=Tune(decide=try_last, every_ns=0)) as handle:
        with monkeypatch.context() as patched:
            patched.setattr(tuner, "DiskQueue", refused)
            for _ in range(2):
                handle.pwrite(np.ones(1 << 20, np.uint8), tmp_path / "file")
            assert handle.setting(write=True) == FIRST
        assert caplog.text.count("no queue of depth") == 1
        assert (seen[1].trial, *seen[1].bans) == (None, SETTINGS[-1])
        assert (tmp_path / "file").read_bytes() == b"\1" * (1 << 20)
        handle.pread(aligned(4096), tmp_path / "file")
        assert handle.setting(write=False) == SETTINGS[-1]


def test_transfers_go_on_with_the_first_setting_where_a_decider_fails(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(memory: Memory, now: Interval) -> Memory:
        if now.write:
            raise MemoryError
        return replace(memory.seen(now), setting=SETTINGS[-1])

    (tmp_path / "a").write_bytes(b"a" * 4096)
    read, written = np.zeros(4096, np.uint8), np.ones(4096, np.uint8)
    with AioHandle("64KiB", 4, tune=Tune(decide=fails, every_ns=0)) as handle:
        for _ in range(2):
            handle.submit(
                [Request(buffer=read, file=tmp_path / "a"), Request(buffer=written, file=tmp_path / "b", write=True)]
            )
            assert handle.wait() == 2
        assert (handle.setting(write=False), handle.setting(write=True)) == (FIRST, FIRST)
    assert (read.tobytes(), (tmp_path / "b").read_bytes()) == (b"a" * 4096, b"\1" * 4096)
    assert caplog.text.count("the decider failed") == 1
    assert "MemoryError" in caplog.text


def test_all_queues_are_closed(tmp_path: Path) -> None:
    before = set(os.listdir("/proc/self/fd"))
    with AioHandle("64KiB", 4, tune=turning(cycle(SETTINGS))) as handle:
        for _ in SETTINGS:
            handle.pwrite(aligned(4096), tmp_path / "file")
    assert set(os.listdir("/proc/self/fd")) == before


def test_nothing_is_decided_unless_asked_for(tmp_path: Path) -> None:
    with AioHandle("64KiB", 4) as handle:
        handle.pwrite(aligned(1 << 20), tmp_path / "file")
        assert handle.setting(write=True) == FIRST
    with AioHandle(tune="learned") as handle:
        handle.pwrite(aligned(1 << 20), tmp_path / "file")
        assert handle.setting(write=True) == Setting(block_bytes=1 << 20, depth=32)


def test_models_of_a_folder_are_used_unless_they_are_of_another_kind(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "emlio.aio")
    models = shipped_models()
    for write, name in ((False, "read.npz"), (True, "write.npz")):
        models[write].save(tmp_path / name)
    for given in (tmp_path, str(tmp_path)):
        with AioHandle(tune=given) as handle:
            handle.pwrite(aligned(1 << 20), tmp_path / "file")
    with AioHandle(tune=Tune(decide=Tune.parse(tmp_path).decide, every_ns=0)) as handle:  # type: ignore[union-attr]
        handle.pwrite(aligned(1 << 20), tmp_path / "file")
    assert "the rate with this setting is not known yet" in caplog.text
    models[True].save(tmp_path / "read.npz")
    with pytest.raises(ConfigError, match=r"read.npz must be a model of reads, is one of writes of "):
        Tune.parse(tmp_path)
    Model.load("read").save(tmp_path / "read.npz")
    with pytest.raises(ConfigError, match=r"read\.npz must be a model of this release for AioHandle"):
        AioHandle(tune=tmp_path)
    (tmp_path / "read.npz").unlink()
    with pytest.raises(ConfigError, match=r"read\.npz: No such file"):
        AioHandle(tune=tmp_path)


@pytest.mark.parametrize("wrong", ["yes", "", "a\0b", None, True, np.array(["learned", "off"]), b"off", Path("none")])
def test_tune_must_be_a_word_or_a_folder(wrong: Any) -> None:
    with pytest.raises(ConfigError, match=r'tune must be "off", "learned" or a folder .*, got'):
        AioHandle(tune=wrong)
