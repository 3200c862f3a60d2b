"""Daemons that have several addresses: the one that answers is used, by the control connection and the lanes, and a daemon that
answers at two is one daemon.

Covers: names of two families, one of which leads nowhere; daemons that move; look-ups that fail or take long; names that mean
several addresses of one daemon. Does not cover: several daemons behind a name (tests/e2e/test_membership), the system's own
look-up (tests/e2e/test_host_names).
"""

import logging
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event
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

_RECORDS = 600
_BATCHES = 60
_FOUR, _SIX, _TWO = "127.0.0.1", "::1", "127.0.0.2"

needs_six = pytest.mark.skipif(
    not Path("/proc/net/if_inet6").exists() or "0" * 31 + "1" not in Path("/proc/net/if_inet6").read_text("ascii"),
    reason="this host has no ::1",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("addresses") / "numbers"
    make_dataset(place, records=_RECORDS, shards=4, payload=4000)
    return place


@pytest.fixture
def zone(monkeypatch: pytest.MonkeyPatch) -> "_Zone":
    made = _Zone(socket.getaddrinfo)
    monkeypatch.setattr(socket, "getaddrinfo", made)
    monkeypatch.setattr("emlio.receiver.addresses.host_names._EVERY_S", 0.05)
    return made


class _Zone:
    """The names that these tests know, in the order in which they are answered."""

    def __init__(self, real: Callable[..., Any]) -> None:
        self.known: dict[str, list[str]] = {}
        self.failures = 0
        self.answers = Event()
        self.answers.set()
        self.waiting = Event()
        self._real = real

    def __call__(self, host: str, port: Any, *rest: Any, **more: Any) -> Any:
        if not str(host).endswith(".example"):
            return self._real(host, port, *rest, **more)
        if not self.answers.is_set():
            self.waiting.set()
            assert self.answers.wait(60)
        if host not in self.known or self.failures:
            self.failures = max(self.failures - 1, 0)
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        kinds = {True: socket.AF_INET6, False: socket.AF_INET}
        return [(kinds[":" in address], socket.SOCK_STREAM, 6, "", (address, 0)) for address in self.known[host]]


@contextmanager
def _daemon(folder: Path, host: str, port: int, **changes: Any) -> Iterator[Daemon]:
    usual: dict[str, Any] = {"bind": Endpoint(host=host, port=port), "message_size": 65536, "memory": 1 << 20}
    usual["data"] = (DatasetSource(name="numbers", directory=folder),)
    with Daemon(DaemonConfig(**(usual | changes))) as daemon:
        yield daemon


def _loader(host: str, port: int, **options: Any) -> EmlioLoader:
    # The first call gets ten seconds: where none is lost, the first call was the one.
    usual: dict[str, Any] = {
        "batch_size": 10, "raw": True, "ids": True, "to": "numpy", "prefetch": "1MiB", "heartbeat": "10s", "timeout": "40s",
    }  # fmt: skip
    return EmlioLoader(f"emlio://{host}:{port}/numbers", **loader_arguments(**(usual | options)))


def _free_port(*hosts: str) -> int:
    """A port that is free at all of these addresses, as is the one after it."""
    return free_ports(2, *hosts)[0]


@contextmanager
def _silence(host: str, port: int) -> Iterator[None]:
    """An address at which connections are neither made nor refused."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket(family))
        listener.bind((host, port))
        listener.listen(0)
        for _ in range(4):  # more than it queues
            caller = stack.enter_context(socket.socket(family))
            caller.setblocking(False)
            caller.connect_ex((host, port))
        yield


def _daemons(loader: EmlioLoader) -> int:
    """How many daemons it has."""
    return len(loader.stats().daemons)


def _epoch(loader: EmlioLoader) -> list[int]:
    return sorted(identity for batch in loader for identity in batch["__id__"].tolist())


# ---- two families ---------------------------------------------------------------------------------------------------


@needs_six
@pytest.mark.parametrize("silent", [False, True], ids=["refused", "silent"])
@pytest.mark.parametrize(("here", "elsewhere"), [(_FOUR, _SIX), (_SIX, _FOUR)])
def test_a_name_of_two_families_is_called_where_the_daemon_is(
    folder: Path, zone: _Zone, here: str, elsewhere: str, silent: bool
) -> None:
    zone.known["store.example"] = [_SIX, _FOUR]
    port = _free_port(_FOUR, _SIX)
    with ExitStack() as stack:
        stack.enter_context(_daemon(folder, here, port))
        if silent:
            stack.enter_context(_silence(elsewhere, port))
        loader = stack.enter_context(_loader("store.example", port))
        assert _epoch(loader) == list(range(_RECORDS))
        stats = loader.stats()
    assert (stats.lost_daemons, stats.reopened_streams) == (0, 0)


@needs_six
@pytest.mark.parametrize("here", [_FOUR, _SIX])
def test_localhost_is_where_the_daemon_is(folder: Path, here: str) -> None:
    port = _free_port(_FOUR, _SIX)
    with _daemon(folder, here, port), _loader("localhost", port) as loader:
        assert _epoch(loader) == list(range(_RECORDS))
        assert loader.stats().lost_daemons == 0


@needs_six
def test_a_daemon_that_comes_back_at_its_other_address_is_found_there(folder: Path, zone: _Zone) -> None:
    zone.known["store.example"] = [_FOUR, _SIX]
    port = _free_port(_FOUR, _SIX)
    with ExitStack() as stack:
        first = stack.enter_context(ExitStack())
        first.enter_context(_daemon(folder, _FOUR, port))
        loader = stack.enter_context(_loader("store.example", port))
        batches = iter(loader)
        seen = [next(batches)["__id__"].tolist() for _ in range(3)]
        first.close()
        stack.enter_context(_daemon(folder, _SIX, port))
        seen += [batch["__id__"].tolist() for batch in batches]
    assert sorted(identity for batch in seen for identity in batch) == list(range(_RECORDS))


# ---- look-ups -------------------------------------------------------------------------------------------------------


def test_a_daemon_that_moves_is_found_where_its_name_leads_then(folder: Path, zone: _Zone) -> None:
    zone.known["store.example"] = [_FOUR]
    port = _free_port(_FOUR, _TWO)
    with ExitStack() as stack:
        first = stack.enter_context(ExitStack())
        first.enter_context(_daemon(folder, _FOUR, port))
        loader = stack.enter_context(_loader("store.example", port))
        batches = iter(loader)
        seen = [next(batches)["__id__"].tolist() for _ in range(3)]
        first.close()
        stack.enter_context(_daemon(folder, _TWO, port))
        zone.known["store.example"] = [_TWO]
        seen += [batch["__id__"].tolist() for batch in batches]
    assert sorted(identity for batch in seen for identity in batch) == list(range(_RECORDS))


def test_a_name_that_becomes_known_while_the_job_waits_is_called(folder: Path, zone: _Zone) -> None:
    zone.known["store.example"], zone.failures = [_FOUR], 2
    with (
        _daemon(folder, _FOUR, 0) as daemon,
        _loader("store.example", int(daemon.endpoint.rpartition(":")[2])) as loader,
    ):
        assert zone.failures == 0
        assert _epoch(loader) == list(range(_RECORDS))
        assert loader.stats().lost_daemons == 0


def test_a_look_up_that_takes_long_holds_nothing_up(folder: Path, zone: _Zone) -> None:
    zone.known["store.example"] = [_FOUR]
    with (
        _daemon(folder, _FOUR, 0) as daemon,
        _loader("store.example", int(daemon.endpoint.rpartition(":")[2])) as loader,
    ):
        zone.answers.clear()
        try:
            assert zone.waiting.wait(20)  # from here on every look-up hangs
            assert _epoch(loader) == list(range(_RECORDS))
            assert _epoch(loader) == list(range(_RECORDS))
            assert loader.stats().lost_daemons == 0
        finally:
            zone.answers.set()


def test_unknown_refused_and_silent_are_three_different_errors(zone: _Zone) -> None:
    port = _free_port(_FOUR)
    said: list[str] = []
    zone.known["store.example"] = [_FOUR]
    for host, silent in (("nowhere.example", False), ("store.example", False), ("store.example", True)):
        with ExitStack() as stack:
            if silent:
                stack.enter_context(_silence(_FOUR, port))
            error = stack.enter_context(pytest.raises(PeerLostError))
            _loader(host, port, timeout="400ms")
        said.append(str(error.value))
    start = [f"the daemon at {host}:{port} must answer within 400 ms" for host in ("nowhere.example", "store.example")]
    assert said[0].startswith(f"{start[0]}, the host name 'nowhere.example' cannot be resolved (")
    assert said[1].startswith(f"{start[1]}, connections are refused: nothing listens at {_FOUR}:{port} (")
    assert said[2].startswith(f"{start[1]}, no answer came, not even a refusal (")
    assert said[0].endswith(". Check the name in the loader's address")
    assert "that emlio-daemon is running there and that its --bind names this address" in said[1]
    assert said[2].endswith(" that no firewall drops connections to it")


def test_a_daemon_that_starts_late_is_connected_and_until_then_the_log_says_that_nothing_listens(
    folder: Path, zone: _Zone, caplog: pytest.LogCaptureFixture
) -> None:
    zone.known["store.example"] = [_FOUR]
    port = _free_port(_FOUR)
    refused = f"the daemon at store.example:{port} cannot be reached: connections are refused: nothing listens at {_FOUR}:{port}"
    with ThreadPoolExecutor() as pool, caplog.at_level(logging.WARNING, "emlio.receiver"):
        waiting = pool.submit(_loader, "store.example", port, heartbeat="300ms", timeout="20s")
        assert settles(
            lambda: any(f"{refused}; reconnecting, for 20 s in all" == message for message in caplog.messages), 10
        )
        with _daemon(folder, _FOUR, port), waiting.result(20) as loader:
            assert _epoch(loader) == list(range(_RECORDS))
            assert loader.stats().reopened_streams == 0, "its first stream was opened, not opened again"


# ---- one daemon at several addresses --------------------------------------------------------------------------------


def test_a_daemon_with_two_addresses_is_one_daemon(folder: Path, zone: _Zone, caplog: pytest.LogCaptureFixture) -> None:
    zone.known["store.example"] = [_FOUR, _TWO]
    with caplog.at_level(logging.INFO, "emlio.receiver"), _daemon(folder, "0.0.0.0", 0, insecure=True) as daemon:
        port = int(daemon.endpoint.rpartition(":")[2])
        with _loader("store.example", port) as loader:
            for _ in range(3):
                assert _epoch(loader) == list(range(_RECORDS))
            stats = loader.stats()
    assert (stats.lost_daemons, stats.reopened_streams, stats.moved_shards) == (0, 0, 0)
    # The daemon speaks, too, if it ends before it has heard the loader's goodbye.
    (told,) = [record.getMessage() for record in caplog.records if record.name == "emlio.receiver"]
    # The one that answers first is kept.
    pairs = ((_TWO, _FOUR), (_FOUR, _TWO))
    assert told in [
        f"the daemon at {one}:{port} is the same as at {other}:{port}, which is the address used from now on"
        for one, other in pairs
    ]


def test_an_address_that_is_added_later_does_not_disturb_the_daemon_that_is_there(
    folder: Path, zone: _Zone, caplog: pytest.LogCaptureFixture
) -> None:
    zone.known["store.example"] = [_FOUR]
    with caplog.at_level(logging.INFO, "emlio.receiver"), _daemon(folder, "0.0.0.0", 0, insecure=True) as daemon:
        port = int(daemon.endpoint.rpartition(":")[2])
        with _loader("store.example", port) as loader:
            batches = iter(loader)
            seen = [next(batches)["__id__"].tolist() for _ in range(3)]
            zone.known["store.example"] = [_FOUR, _TWO]
            assert settles(lambda: caplog.text.count("is the same as at") == 2, 20)
            seen += [batch["__id__"].tolist() for batch in batches]
            stats = loader.stats()
    assert sorted(identity for batch in seen for identity in batch) == list(range(_RECORDS))
    assert (stats.lost_daemons, stats.reopened_streams) == (0, 0)


@needs_six
@pytest.mark.parametrize("named_first", [True, False])
def test_a_daemon_that_is_named_in_two_ways_is_one_daemon(folder: Path, zone: _Zone, named_first: bool) -> None:
    zone.known["store.example"] = [_SIX, _FOUR]
    port = _free_port(_FOUR, _SIX)
    names = ["store.example", _FOUR] if named_first else [_FOUR, "store.example"]
    with _daemon(folder, _FOUR, port), _loader(f":{port},".join(names), port) as loader:
        assert _epoch(loader) == list(range(_RECORDS))
        assert (_daemons(loader), loader.stats().lost_daemons) == (1, 0)


@needs_six
def test_daemons_with_two_families_each_are_all_found_however_their_addresses_are_paired(
    folder: Path, zone: _Zone
) -> None:
    """The first listens at its second address only, so it is paired with what is the other one's."""
    zone.known["store.example"] = ["fd00::7", _SIX, _FOUR, _TWO]
    port = _free_port(_FOUR, _TWO, _SIX)
    with _daemon(folder, _TWO, port), _daemon(folder, _SIX, port), _loader("store.example", port) as loader:
        assert _epoch(loader) == list(range(_RECORDS))
        assert (_daemons(loader), loader.stats().lost_daemons) == (2, 0)


def test_where_the_address_in_use_dies_the_daemon_is_called_at_its_other_one(folder: Path, zone: _Zone) -> None:
    zone.known["store.example"] = [_FOUR, _TWO]
    port = _free_port(_FOUR, _TWO)
    with ExitStack() as stack:
        first = stack.enter_context(ExitStack())
        first.enter_context(_daemon(folder, "0.0.0.0", port, insecure=True))
        loader = stack.enter_context(_loader("store.example", port))
        batches = iter(loader)
        seen = [next(batches)["__id__"].tolist() for _ in range(3)]
        first.close()
        stack.enter_context(_daemon(folder, _TWO, port))
        seen += [batch["__id__"].tolist() for batch in batches]
        stats = loader.stats()
    assert sorted(identity for batch in seen for identity in batch) == list(range(_RECORDS))
    assert stats.lost_daemons >= 1


def test_two_daemons_that_one_process_takes_the_place_of_become_one(folder: Path, zone: _Zone) -> None:
    zone.known["store.example"] = [_FOUR, _TWO]
    port = _free_port(_FOUR, _TWO)
    with ExitStack() as stack:
        both = stack.enter_context(ExitStack())
        for host in (_FOUR, _TWO):
            both.enter_context(_daemon(folder, host, port))
        loader = stack.enter_context(_loader("store.example", port))
        batches = iter(loader)
        seen = [next(batches)["__id__"].tolist() for _ in range(3)]
        both.close()
        stack.enter_context(_daemon(folder, "0.0.0.0", port, insecure=True))
        seen += [batch["__id__"].tolist() for batch in batches]
        assert _epoch(loader) == list(range(_RECORDS))
        assert settles(lambda: _daemons(loader) == 1, 30)
        assert loader.stats().lost_daemons >= 2
    assert sorted(identity for batch in seen for identity in batch) == list(range(_RECORDS))


def test_two_daemons_that_share_their_host_s_name_and_process_number_stay_two(folder: Path, zone: _Zone) -> None:
    """As in containers; in this process both have the same anyhow."""
    zone.known["store.example"] = [_FOUR, _TWO]
    port = _free_port(_FOUR, _TWO)
    with _daemon(folder, _FOUR, port), _daemon(folder, _TWO, port), _loader("store.example", port) as loader:
        assert _epoch(loader) == list(range(_RECORDS))
        assert _daemons(loader) == 2
