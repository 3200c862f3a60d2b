"""A job begins while a daemon is down whose shards others hold, and that one joins when it comes.

Covers: a daemon that refuses, one that is silent, one that comes later; ranks that see different daemons; what cannot be known.
Does not cover: which daemons suffice (tests/unit/receiver/assignment/test_completeness, tests/property/test_quorum_properties).
"""

import logging
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from emlio import EmlioLoader
from emlio.daemon.config import DaemonConfig, DatasetSource, Endpoint
from emlio.daemon.service import Daemon
from emlio.errors import PeerLostError
from emlio_testing.datasets import make_dataset
from emlio_testing.loader_arguments import loader_arguments
from emlio_testing.processes import settles
from emlio_testing.proxy import free_ports

_RECORDS = 2000
_SHARDS = 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("quorum") / "numbers"
    make_dataset(place, records=_RECORDS, shards=_SHARDS, payload=4000)
    return place


def _part(folder: Path, place: Path, *numbers: int) -> Path:
    place.mkdir()
    for number in numbers:
        name = f"train-{number:05d}-of-{_SHARDS:05d}.tfrecord"
        (place / name).hardlink_to(folder / name)
    return place


@contextmanager
def _daemon(folder: Path, port: int = 0, host: str = "127.0.0.1") -> Iterator[int]:
    """A daemon; tells its port."""
    config = DaemonConfig(
        bind=Endpoint(host=host, port=port),
        data=(DatasetSource(name="numbers", directory=folder),),
        message_size=65536,
        memory=1 << 20,
    )
    with Daemon(config) as daemon:
        yield int(daemon.endpoint.rpartition(":")[2])


def _loader(*peers: "str | int", **options: Any) -> EmlioLoader:
    usual: dict[str, Any] = {
        "batch_size": 10, "raw": True, "ids": True, "to": "numpy", "prefetch": "1MiB", "heartbeat": "1s", "timeout": "60s",
    }  # fmt: skip
    hosts = ",".join(f"127.0.0.1:{peer}" if isinstance(peer, int) else peer for peer in peers)
    return EmlioLoader(f"emlio://{hosts}/numbers", **loader_arguments(**(usual | options)))


@contextmanager
def _down(*, silent: bool) -> Iterator[int]:
    """A port where no daemon is: it refuses, or says nothing."""
    with socket.socket() as taken:
        # Otherwise a port on which an earlier test's connection has ended is not free yet.
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", free_ports(2, "127.0.0.1")[0]))
        if silent:
            taken.listen(8)
        yield int(taken.getsockname()[1])


def _rest(batches: Iterator[Any]) -> list[int]:
    return [identity for batch in batches for identity in batch["__id__"].tolist()]


@pytest.mark.parametrize("silent", [False, True], ids=["refused", "silent"])
def test_a_job_begins_without_a_daemon_whose_shards_others_hold(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, silent: bool
) -> None:
    part, rest = _part(folder, tmp_path / "part", 0, 1), _part(folder, tmp_path / "rest", 1, 2, 3)
    with (
        _daemon(part) as one,
        _daemon(rest) as other,
        _down(silent=silent) as dead,
        _loader(one, dead, other) as loader,
    ):
        assert sorted(_rest(iter(loader))) == list(range(_RECORDS))
        stats = loader.stats()
    assert (stats.lost_daemons, stats.reopened_streams) == (0, 0)
    told = f"the daemon at 127.0.0.1:{dead} does not answer. The job starts without it, since others hold all shards"
    assert told in caplog.text


def test_a_daemon_that_comes_later_joins(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with ExitStack() as stack:
        caplog.set_level(logging.INFO, "emlio.receiver")
        one = stack.enter_context(_daemon(folder))
        with _down(silent=False) as late:
            loader = stack.enter_context(_loader(late, one))
        batches = iter(loader)
        seen = _rest(next(batches) for _ in range(5))
        stack.enter_context(_daemon(folder, late))
        assert settles(lambda: "is back after" in caplog.text, 20)
        seen += _rest(batches)
        assert loader.stats().lost_daemons == 0
    assert sorted(seen) == list(range(_RECORDS))


def test_ranks_that_begin_with_different_daemons_up_come_to_one_plan(folder: Path) -> None:
    with ExitStack() as stack:
        one = stack.enter_context(_daemon(folder))
        with _down(silent=False) as late:
            first = stack.enter_context(_loader(one, late, rank=0, world_size=2))
        stack.enter_context(_daemon(folder, late))
        second = stack.enter_context(_loader(one, late, rank=1, world_size=2))
        states = [{**loader.state_dict(), "rank": None} for loader in (first, second)]
        assert states[0] == states[1]
        assert sorted(_rest(iter(first)) + _rest(iter(second))) == list(range(_RECORDS))


def test_one_that_may_hold_what_nobody_else_does_is_waited_for(folder: Path, tmp_path: Path) -> None:
    part, rest = _part(folder, tmp_path / "part", 0, 1, 2), _part(folder, tmp_path / "rest", 3)
    with _daemon(part) as one, ExitStack() as stack:
        with _down(silent=False) as late:
            why = rf"127\.0\.0\.1:{late} must answer within 1 s, connections are refused.*; it may hold shards .*: "
            what = r"the others hold 3 of 4 shards, for example not train-00003-of-00004\.tfrecord"
            with pytest.raises(PeerLostError, match=why + what):
                _loader(one, late, timeout="1s")
        stack.enter_context(_daemon(rest, late))
        with _loader(one, late) as loader:
            assert sorted(_rest(iter(loader))) == list(range(_RECORDS))


def test_where_nothing_says_how_many_shards_there_are_all_daemons_are_waited_for(folder: Path, tmp_path: Path) -> None:
    place = tmp_path / "plain"
    place.mkdir()
    for path in folder.glob("*.tfrecord"):
        (place / f"{path.name[6:11]}.tfrecord").hardlink_to(path)
    with _daemon(place) as one, _down(silent=False) as dead:
        why = rf"127\.0\.0\.1:{dead} must answer.*: the names of the shards do not contain their total number"
        with pytest.raises(PeerLostError, match=why):
            _loader(one, dead, timeout="1s")


def test_shards_of_this_host_count_too(folder: Path, tmp_path: Path) -> None:
    part, rest = _part(folder, tmp_path / "part", 0), _part(folder, tmp_path / "rest", 1, 2, 3)
    with _daemon(rest) as one, _down(silent=False) as dead, _loader(dead, one, local=part) as loader:
        assert sorted(_rest(iter(loader))) == list(range(_RECORDS))
        assert loader.stats().local_bytes > 0
