"""A defect that one peer finds ends its own session; one that ends the control thread ends the daemon with an error."""

import logging
from pathlib import Path

import pytest

from emlio.daemon.config import DaemonConfig, DatasetSource, Endpoint
from emlio.daemon.control.arrivals import Arrivals
from emlio.daemon.control.thread import Control, guarded
from emlio.daemon.ranks.claims import Caller
from emlio.daemon.service import Daemon, serve
from emlio.errors import EmlioError
from emlio.receiver.loader import EmlioLoader
from emlio.receiver.setup.recovery import Recovery
from emlio_testing.datasets import make_dataset


def fail(*_: object) -> None:
    raise ValueError("a defect")


def test_what_fails_is_logged_and_the_other_done(caplog: pytest.LogCaptureFixture) -> None:
    done: list[str] = []
    with caplog.at_level(logging.ERROR):
        guarded(fail, lambda: done.append("instead"))
        guarded(lambda: done.append("well"), fail)
    assert done == ["instead", "well"]
    assert "ValueError: a defect" in caplog.text


@pytest.fixture
def config(tmp_path: Path) -> DaemonConfig:
    make_dataset(tmp_path / "data", records=20, shards=2)
    source = DatasetSource(name="data", directory=tmp_path / "data")
    return DaemonConfig(data=(source,), bind=Endpoint(host="127.0.0.1", port=0))


def test_a_message_that_cannot_be_dealt_with_ends_its_session_and_no_other(
    config: DaemonConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    greet = Arrivals.greet

    def fail_for_one(self: Arrivals, caller: Caller) -> None:
        if caller.hello.world_size == 7:
            fail()
        greet(self, caller)

    monkeypatch.setattr(Arrivals, "greet", fail_for_one)
    with Daemon(config) as daemon:
        address = daemon.endpoint.replace("tcp://", "emlio://") + "/data"
        with EmlioLoader(address, batch_size=5, raw=True, recovery=Recovery(timeout="5s")) as loader:
            batches = iter(loader)
            next(batches)
            with pytest.raises(EmlioError, match="internal error, see the daemon's log"):
                EmlioLoader(address, batch_size=5, raw=True, recovery=Recovery(timeout="1s"), rank=0, world_size=7)
            assert sum(1 for _ in batches) == 3
        assert daemon.error is None


def test_a_control_thread_that_fails_ends_the_daemon_with_an_error(
    config: DaemonConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Control, "_timeout_ms", fail)
    with pytest.raises(EmlioError, match=r"the daemon ended with an internal error: ValueError\('a defect'\)"):
        serve(config)
