"""What goes wrong reaches the user as an error that names it, in time, and leaves nothing behind."""

import gc
import os
import socket
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np
import pytest

from emlio import EmlioLoader
from emlio.daemon.config import Endpoint
from emlio.daemon.service import Daemon
from emlio.errors import (
    ClosedError,
    CorruptRecordError,
    DatasetError,
    PeerLostError,
    RefusedError,
    TransportError,
)
from emlio.example.encode import encode_example
from emlio_testing.datasets import make_dataset
from emlio_testing.processes import settles
from emlio_testing.serving import daemon_of, raw_loader

_RECORDS = 60
_HERE = Endpoint(host="127.0.0.1", port=0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_dataset(tmp_path / "numbers", records=_RECORDS, shards=2, payload=100)
    return tmp_path / "numbers"


def _daemon(folder: Path, **changes: Any) -> Daemon:
    return daemon_of({"numbers": folder}, **({"message_size": 4096, "memory": 1 << 20} | changes))


def _loader(endpoint: str, dataset: str = "numbers", **options: Any) -> EmlioLoader:
    address = f"{endpoint.replace('tcp', 'emlio')}/{dataset}"
    return raw_loader(address, **({"batch_size": 8, "seed": 0} | options))


def _ids(loader: EmlioLoader) -> list[int]:
    return [identity for batch in loader for identity in batch["__id__"].tolist()]


def _read_for_ever(loader: EmlioLoader) -> None:
    while True:
        _ids(loader)


@contextmanager
def _silent_listener(*, accepts: bool) -> Iterator[str]:
    """A port that never says anything; it may at least complete connections."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(8)
        endpoint = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
        if not accepts:
            yield endpoint
            return
        listener.settimeout(0.05)
        done, accepted = Event(), list[socket.socket]()

        def accept() -> None:
            while not done.is_set():
                try:
                    accepted.append(listener.accept()[0])
                except TimeoutError:
                    continue

        thread = Thread(target=accept)
        thread.start()
        try:
            yield endpoint
        finally:
            done.set()
            thread.join()
            for connection in accepted:
                connection.close()


@pytest.mark.parametrize("accepts", [True, False])
def test_a_daemon_that_never_answers_is_an_error_within_the_timeout(accepts: bool) -> None:
    with (
        _silent_listener(accepts=accepts) as endpoint,
        pytest.raises(PeerLostError, match="must answer within 300 ms") as lost,
    ):
        _loader(endpoint, timeout="300ms")
    assert endpoint.removeprefix("tcp://") in str(lost.value)


def test_a_port_where_nobody_listens_is_an_error_within_the_timeout() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(PeerLostError, match="Check that emlio-daemon is running there"):
            _loader(f"tcp://127.0.0.1:{taken.getsockname()[1]}", timeout="300ms")


def test_one_dead_daemon_of_two_is_named_where_the_other_lacks_something(folder: Path, tmp_path: Path) -> None:
    part = tmp_path / "part"
    part.mkdir()
    (part / "train-00000-of-00002.tfrecord").hardlink_to(folder / "train-00000-of-00002.tfrecord")
    with _daemon(part) as daemon, _silent_listener(accepts=False) as dead:
        both = f"{daemon.endpoint},{dead.removeprefix('tcp://')}"
        what = "no answer came, .*the others hold 1 of 2 shards, for example not train-00001-of-00002"
        with pytest.raises(PeerLostError, match=f"{dead.removeprefix('tcp://')} must answer within 300 ms, {what}"):
            _loader(both, timeout="300ms")


def test_an_address_that_cannot_be_resolved_is_said_to_be_unknown() -> None:
    with pytest.raises(PeerLostError, match=r"the host name 'no-such-host\.invalid' cannot be resolved \(.+\)"):
        _loader("tcp://no-such-host.invalid:5555", timeout="300ms")


def test_a_transforms_error_reaches_the_user_in_its_place_and_the_loader_goes_on(folder: Path) -> None:
    broken = [True]

    def transform(sample: dict[str, Any]) -> int:
        if sample["__id__"] == 20 and broken[0]:
            raise KeyError("no label in record 20")
        return int(sample["__id__"])

    with _daemon(folder) as daemon, _loader(daemon.endpoint, transform=transform, shuffle=False) as loader:
        batches = iter(loader)
        assert [next(batches).tolist() for _ in range(2)] == [list(range(8)), list(range(8, 16))]
        for _ in range(2):
            with pytest.raises(KeyError, match="no label in record 20"):
                next(batches)
        state = loader.state_dict()
        assert state["consumed"] == 16
        broken[0] = False
        loader.load_state_dict(state)
        assert [batch.tolist()[0] for batch in loader] == [16, 24, 32, 40, 48, 56]
        assert [batch.tolist()[0] for batch in loader] == list(range(0, 60, 8))


def _use_badly(loader: EmlioLoader) -> None:
    for _ in loader:
        raise ZeroDivisionError


def test_an_error_in_the_users_own_loop_leaves_the_loader_usable(folder: Path) -> None:
    with _daemon(folder) as daemon, _loader(daemon.endpoint) as loader:
        with pytest.raises(ZeroDivisionError):
            _use_badly(loader)
        assert sorted(_ids(loader)) == list(range(_RECORDS))


def test_closing_during_an_iteration_ends_it_and_everything_behind_it(folder: Path) -> None:
    with _daemon(folder) as daemon:
        loader = _loader(daemon.endpoint)
        batches = iter(loader)
        record = next(batches)["record"][0]
        before = bytes(record)
        loader.close()
        loader.close()
        for use in (lambda: next(batches), lambda: iter(loader), loader.state_dict, lambda: loader.set_epoch(1)):
            with pytest.raises(ClosedError, match="the loader is closed"):
                use()
        assert bytes(record) == before  # what was handed out stays the user's


def test_closing_from_another_thread_wakes_who_waits(folder: Path) -> None:
    waiting, raised = Event(), list[BaseException]()

    def transform(sample: Any) -> Any:
        waiting.set()
        assert go_on.wait(20)
        return sample

    go_on = Event()
    with _daemon(folder) as daemon:
        loader = _loader(daemon.endpoint, transform=transform)

        def use() -> None:
            try:
                next(iter(loader))
            except ClosedError as error:
                raised.append(error)

        user = Thread(target=use)
        user.start()
        assert waiting.wait(20)
        closer = Thread(target=loader.close)
        closer.start()
        user.join(20)
        assert not user.is_alive()
        go_on.set()
        closer.join(20)
        assert not closer.is_alive()
    assert len(raised) == 1


def test_a_loader_that_is_dropped_ends_its_threads_by_itself(folder: Path) -> None:
    with _daemon(folder) as daemon:
        loader = _loader(daemon.endpoint)
        next(iter(loader))
        gone = weakref.ref(loader)
        del loader
        gc.collect()
        assert gone() is None


def test_a_loader_is_of_no_use_in_a_forked_child(folder: Path) -> None:
    with _daemon(folder) as daemon, _loader(daemon.endpoint) as loader:
        pid = loader._shell.pid
        loader._shell.pid = pid + 1  # what a child sees: os.getpid() is another
        try:
            with pytest.raises(ClosedError, match="belongs to the process that made it"):
                iter(loader)
        finally:
            loader._shell.pid = pid
        assert os.getpid() == pid


def _damage(folder: Path, shard: int, record: int) -> None:
    """Change a byte of a record's data, in a file that keeps its size and time of change."""
    path = sorted(folder.glob("*.tfrecord"))[shard]
    stat = path.stat()
    with path.open("r+b") as file:
        file.seek(record * 116 + 12 + 50)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes((byte[0] ^ 1,)))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def test_a_damaged_record_is_an_error_that_names_shard_and_record(folder: Path) -> None:
    with _daemon(folder) as daemon:
        _damage(folder, 1, 7)  # before there is a loader: the daemon sends it records at once
        with _loader(daemon.endpoint) as loader:
            with pytest.raises(
                CorruptRecordError, match=r"record 7 of shard train-00001-of-00002\.tfrecord"
            ) as corrupt:
                _ids(loader)
            assert (corrupt.value.record, corrupt.value.shard) == (7, "train-00001-of-00002.tfrecord")
            assert loader.stats().bad_records >= 1  # the next epoch's may have come already


def test_a_damaged_record_is_left_out_or_replaced_where_that_is_wanted_and_counted(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with _daemon(folder) as daemon:
        _damage(folder, 1, 7)
        bad = 30 + 7
        with _loader(daemon.endpoint, on_error="skip") as loader:
            assert sorted(_ids(loader)) == [identity for identity in range(_RECORDS) if identity != bad]
            assert (loader.stats().skipped_records, loader.stats().replaced_records) == (1, 0)
            assert loader.stats().records == _RECORDS - 1
            assert f"{_RECORDS - 1} records, 1 bad record skipped, " in str(loader.stats())
            assert len(_ids(loader)) == _RECORDS - 1
        warnings = [one.message for one in caplog.records if "records is bad" in one.message]
        assert len(warnings) == 2, "one for each epoch"
        assert warnings[1].startswith(
            f"epoch 1: 1 of {_RECORDS} records is bad and was left out. The first is record 7 of shard "
            "train-00001-of-00002.tfrecord: "
        )
        assert "CRC32C" in warnings[1]
        caplog.clear()
        with _loader(daemon.endpoint, on_error="replace") as loader:
            ids = _ids(loader)
            assert len(ids) == _RECORDS
            assert set(range(_RECORDS)) - set(ids) == {bad}
            assert (loader.stats().skipped_records, loader.stats().replaced_records) == (0, 1)
            assert loader.stats().records == _RECORDS
        assert f"epoch 0: 1 of {_RECORDS} records is bad and was replaced by another record" in caplog.text
        with _loader(daemon.endpoint, verify="none") as loader:
            assert sorted(_ids(loader)) == list(range(_RECORDS))
            assert loader.stats().bad_records == 0


def test_a_shard_that_changes_while_it_is_served_is_an_error_that_names_it(folder: Path) -> None:
    path = sorted(folder.glob("*.tfrecord"))[1]
    with _daemon(folder) as daemon, _loader(daemon.endpoint) as loader:
        os.utime(path, ns=(1, 1))
        with pytest.raises(DatasetError, match=path.name):
            _read_for_ever(
                loader
            )  # the first epochs may have been read before, or soon after the last look at the file


def test_a_shard_that_was_cut_is_an_error_and_the_daemon_lives_on(folder: Path) -> None:
    path = sorted(folder.glob("*.tfrecord"))[1]
    make_dataset(folder.parent / "others", records=20, shards=1)
    both = {name: folder.parent / name for name in ("numbers", "others")}
    with daemon_of(both, message_size=4096, memory=1 << 20) as daemon, _loader(daemon.endpoint) as loader:
        batches = iter(loader)
        assert len(next(batches)["__id__"]) == 8
        with path.open("r+b") as file:
            file.truncate(500)
        refused: list[RefusedError] = []

        def is_refused() -> bool:
            """Files are looked at once a second for all who join. Until then a stream that begins finds it out."""
            try:
                _loader(daemon.endpoint).close()
            except RefusedError as error:
                refused.append(error)
            except DatasetError as error:
                if path.name not in str(error):
                    raise
            return bool(refused)

        assert settles(is_refused, 20)
        assert path.name in str(refused[0])
        assert refused[0].code == "dataset-changed"
        with pytest.raises(DatasetError, match=path.name):
            _use_for_ever(loader)
        with _loader(daemon.endpoint, dataset="others") as others:
            assert sorted(_ids(others)) == list(range(20))


def _use_for_ever(loader: EmlioLoader) -> None:
    for _ in range(10_000):
        _ids(loader)


def test_a_daemon_that_ends_is_an_error_that_names_it_after_what_was_received(folder: Path) -> None:
    with _daemon(folder) as daemon:
        loader = _loader(daemon.endpoint, timeout="2s")
        with loader:
            next(iter(loader))
            daemon.stop()
            assert daemon.wait(20)
            with pytest.raises(TransportError, match=daemon.endpoint.removeprefix("tcp://")):
                _use_for_ever(loader)


def test_features_arrays_and_transforms_come_as_they_were_asked_for(tmp_path: Path) -> None:
    make_dataset(
        tmp_path / "numbers",
        records=20,
        shards=2,
        payload=lambda number: encode_example({"label": [number], "weight": [number / 2.0], "name": [b"n%d" % number]}),
    )
    with _daemon(tmp_path / "numbers") as daemon:
        with _loader(daemon.endpoint, raw=False, shuffle=False) as loader:
            batch = next(iter(loader))
            assert batch["label"].tolist() == list(range(8))
            assert batch["weight"].dtype == np.float32
            assert [bytes(name) for name in batch["name"]] == [b"n%d" % number for number in range(8)]
        with _loader(daemon.endpoint, raw=False, shuffle=False, fields=["label"], ids=False) as loader:
            assert list(next(iter(loader))) == ["label"]
        collated = _loader(
            daemon.endpoint, raw=False, shuffle=False, collate_fn=lambda samples: [s["label"] for s in samples]
        )
        with collated as loader:
            assert [int(label) for label in next(iter(loader))] == list(range(8))
