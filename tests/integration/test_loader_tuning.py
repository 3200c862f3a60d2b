"""A loader whose settings change while it runs, over real sockets: every record, lanes and messages as they were set."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from emlio import EmlioLoader, Recovery
from emlio.daemon.config import DaemonConfig, DatasetSource, Endpoint
from emlio.daemon.service import Daemon
from emlio.errors import ConfigError, EmlioError
from emlio.receiver.machine.instructions import ConnectLane
from emlio.receiver.machine.lane_set import LaneSet
from emlio.receiver.tuning.log import read_log, replayed
from emlio.receiver.tuning.state import RuleState
from emlio.receiver.tuning.tuning import Tuning
from emlio_testing.datasets import make_dataset
from emlio_testing.processes import settles
from emlio_testing.serving import peer_of

_RECORDS = 2_000
_MIB = 1 << 20
_LONG_S = 20.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "numbers"
    make_dataset(folder, records=_RECORDS, shards=4, payload=3000)
    return folder


@pytest.fixture
def daemon(folder: Path) -> Iterator[Daemon]:
    with _daemon(folder) as daemon:
        yield daemon


def _daemon(folder: Path, **changes: Any) -> Daemon:
    data = (DatasetSource(name="numbers", directory=folder),)
    return Daemon(DaemonConfig(data=data, bind=Endpoint(host="127.0.0.1", port=0), **changes))


def _loader(daemon: Daemon, **options: Any) -> EmlioLoader:
    return EmlioLoader(
        f"{peer_of(daemon)}/numbers", batch_size=10, raw=True, ids=True, to="numpy", rank=0, world_size=1, **options
    )


def _still(state: RuleState, *_: object) -> tuple[RuleState, None]:
    """A rule that leaves everything as the test sets it."""
    return state, None


def _ids(loader: EmlioLoader, batches: int | None = None) -> Iterator[list[int]]:
    for number, batch in enumerate(loader):
        yield batch["__id__"].tolist()
        if batches is not None and number + 1 == batches:
            return


def _wait_for_lanes(loader: EmlioLoader, lanes: int, epochs: Iterator[Any]) -> None:
    """Take batches until so many lanes are connected."""

    def has() -> bool:
        next(epochs)
        return loader.stats().lanes == lanes

    assert settles(has, _LONG_S), loader.stats().lanes


def test_lanes_come_and_go_while_records_come_in_the_same_order(daemon: Daemon) -> None:
    with _loader(daemon, tune="off") as loader:
        expected = [[*_ids(loader)] for _ in range(2)]
    taken: list[tuple[int, list[int]]] = []

    def epochs(loader: EmlioLoader) -> Iterator[None]:
        while True:
            epoch = loader.epoch
            for ids in _ids(loader):
                taken.append((epoch, ids))
                yield

    with _loader(daemon, tune=_still) as loader:
        batches = epochs(loader)
        for lanes in (3, 1, 4, 2, 1):
            loader._shell.engine.tune(Tuning(window_bytes=2 * _MIB, lanes=lanes))
            _wait_for_lanes(loader, lanes, batches)
        batches.close()
        stats = loader.stats()
        assert stats.reopened_streams == 0, "a lane was closed with something on its way"
        assert loader.tuning.lanes == 1
    for epoch, told in enumerate(expected):
        mine = [ids for number, ids in taken if number == epoch]
        assert mine == told[: len(mine)]
    assert len(taken) > 5


def test_a_daemon_with_a_number_of_its_own_keeps_it(folder: Path) -> None:
    with _daemon(folder, lanes=2) as daemon, _loader(daemon, tune=_still) as loader:
        batches = (ids for _ in range(1000) for ids in _ids(loader))
        loader._shell.engine.tune(Tuning(window_bytes=2 * _MIB, lanes=5))
        next(batches)
        _wait_for_lanes(loader, 2, batches)
        for _ in range(50):
            next(batches)
        _wait_for_lanes(loader, 2, batches)
        assert loader.stats().reopened_streams == 0


def test_lanes_that_were_tried_are_undone_and_stay_so_when_the_stream_is_opened_again(daemon: Daemon) -> None:
    with _loader(daemon, tune=_still) as loader:
        batches = (ids for _ in range(1000) for ids in _ids(loader))
        usual = Tuning(window_bytes=2 * _MIB)
        for lanes in (4, 0, 3, 0):
            loader._shell.engine.tune(msgspec.structs.replace(usual, lanes=lanes))
            _wait_for_lanes(loader, lanes or 1, batches)
        batches.close()
        connects: list[object] = []
        engine = loader._shell.engine
        carry_out = engine._lanes.carry_out
        engine._lanes.carry_out = lambda told: connects.append(told) or carry_out(told)  # type: ignore[method-assign, func-returns-value]
        for _ in range(3):
            for number, _ids_of_batch in enumerate(_ids(loader)):
                if number == 100:
                    break
        assert not [told for told in connects if isinstance(told, ConnectLane)]
        assert loader.stats().lanes == 1


def test_the_size_of_messages_changes_within_a_stream(daemon: Daemon) -> None:
    sizes: list[int] = []
    with _loader(daemon, tune=_still) as loader:
        accept = loader._shell.engine._machine.intake.accept

        def seen(stream: int, message: Any, **options: Any) -> Any:
            sizes.append(len(message.payload))
            return accept(stream, message, **options)

        loader._shell.engine._machine.intake.accept = seen  # type: ignore[method-assign]
        batches = (ids for _ in range(1000) for ids in _ids(loader))

        def largest(low: int, high: int) -> bool:
            sizes.clear()
            for _ in range(450):
                next(batches)
            return low < max(sizes) <= high

        for message_bytes in (100_000, 1_000_000, 70_000):
            loader._shell.engine.tune(Tuning(window_bytes=16 * _MIB, message_bytes=message_bytes))
            assert settles(lambda most=message_bytes: largest(most // 2, most), _LONG_S), max(sizes)  # type: ignore[misc]
        assert loader.stats().reopened_streams == 0


def test_a_smaller_window_holds_less_and_ends_in_no_wait(daemon: Daemon) -> None:
    with _loader(daemon, tune=_still) as loader:
        batches = (ids for _ in range(1000) for ids in _ids(loader))
        next(batches)
        intake = loader._shell.engine._machine.intake
        assert settles(lambda: intake.grants.held_bytes > 3 * _MIB, _LONG_S)
        loader._shell.engine.tune(Tuning(window_bytes=_MIB, credit_parts=2))
        for _ in range(1100):  # an epoch is one message, and five of them may be on their way
            next(batches)
        # The receive thread hears of batches that were taken a little later, and the next batch needs some bytes more.
        assert settles(lambda: intake.grants.held_bytes <= _MIB * 5 // 4, _LONG_S)
        assert loader.stats().window_bytes == _MIB


def test_frozen_settings_hold_and_nothing_changes(daemon: Daemon, tmp_path: Path) -> None:
    (tmp_path / "settings").write_text('{"window_bytes": 4194304, "lanes": 2, "credit_parts": 4}')
    with _loader(daemon, tune=tmp_path / "settings") as loader:
        batches = (ids for _ in range(1000) for ids in _ids(loader))
        _wait_for_lanes(loader, 2, batches)
        assert loader.tuning == Tuning(window_bytes=4 * _MIB, lanes=2, credit_parts=4)
        assert loader.stats().window_bytes == 4 * _MIB


@pytest.mark.parametrize("tune", ["auto", "learned"])
def test_a_loader_writes_a_log_whose_decisions_can_be_decided_again_and_gets_every_record_once(
    daemon: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tune: str
) -> None:
    monkeypatch.setenv("EMLIO_TUNE_LOG", str(tmp_path / "logs"))

    def reads() -> bool:
        assert sorted(number for ids in _ids(loader) for number in ids) == list(range(_RECORDS))
        return _looks(tmp_path) > 3

    with _loader(daemon, tune=tune) as loader:
        assert settles(reads, _LONG_S)
    (log,) = (tmp_path / "logs").iterdir()
    assert bool(next(read_log(log)).model) == (tune == "learned")
    looks = list(replayed(read_log(log)))
    assert all((again.tuning if again is not None else None) == line.tuning for line, again, _ in looks)
    assert all(asked for _, _, asked in looks)
    last = looks[-1][0].snapshot
    assert last is not None
    assert last.storage_bytes > 0
    assert last.storage_cpu_ns > 0
    assert last.round_trip_ns is not None or any(line.snapshot and line.snapshot.round_trip_ns for line, _, _ in looks)
    assert np.all(np.diff([line.snapshot.at_ns for line, _, _ in looks if line.snapshot]) >= 400_000_000)


def test_a_log_that_cannot_be_written_names_the_variable(
    daemon: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("EMLIO_TUNE_LOG", str(tmp_path / "file"))
    with pytest.raises(ConfigError, match=r"EMLIO_TUNE_LOG must name a folder for logs, got '.*file': .*is no folder"):
        _loader(daemon)


def test_a_rule_that_ends_its_thread_is_the_loaders_error_at_once(daemon: Daemon) -> None:
    def rule(*_: object) -> Any:
        raise SystemExit(3)

    with _loader(daemon, tune=rule) as loader, pytest.raises(EmlioError, match=r"it failed: SystemExit\(3\)"):
        [ids for _ in range(1000) for ids in _ids(loader)]


def _looks(folder: Path) -> int:
    return sum(path.read_bytes().count(b'"snapshot"') for path in (folder / "logs").iterdir())


def test_a_daemon_that_may_send_again_after_a_long_epoch_keeps_its_lanes(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    renewed: list[int] = []
    monkeypatch.setattr(LaneSet, "renew", lambda lanes: renewed.append(lanes.up))
    # All of an epoch and of the next one are here soon: then the daemon may send nothing until the next epoch begins.
    with _loader(daemon, tune="off", epochs=3, prefetch="32MiB", recovery=Recovery(heartbeat="1s")) as loader:
        seen = [ids for _ in range(3) for ids in _ids(loader) if not time.sleep(0.01)]
        assert loader.stats().reopened_streams == 0
    assert sum(map(len, seen)) == 3 * _RECORDS
    assert renewed == []


@pytest.mark.parametrize(("settings", "lanes"), [(Tuning(window_bytes=64 * _MIB, lanes=3), None), ("off", 1)])
def test_what_a_loader_was_told_is_not_remembered_as_what_its_path_needs(
    daemon: Daemon, settings: Any, lanes: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMLIO_CACHE", str(tmp_path))
    with _loader(daemon, tune=settings) as loader:
        assert sum(1 for _ in loader) == _RECORDS // 10
    found = json.loads(file.read_bytes()) if (file := tmp_path / "paths.json").exists() else {}
    assert [path["lanes"] for path in found.values()] == ([] if lanes is None else [lanes])
