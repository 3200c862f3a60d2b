"""The advice of commands that ask daemons: what it says works, and nothing is claimed that nobody answered."""

import json
import socket
from pathlib import Path

import pytest

from emlio.cli import main as command
from emlio.daemon.config import DaemonConfig, DatasetSource, Endpoint
from emlio.daemon.service import Daemon
from emlio.keys.folder import KeyFolder
from emlio_testing.datasets import make_dataset


def test_an_advice_to_trust_a_daemon_has_the_name_that_was_asked_for(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    store, stranger = KeyFolder(tmp_path / "store"), KeyFolder(tmp_path / "stranger")
    for keys in (store, stranger):
        keys.make("a")
    make_dataset(tmp_path / "images", records=10, shards=1, payload=100)
    source = DatasetSource(name="images", directory=tmp_path / "images")
    with Daemon(DaemonConfig(data=(source,), bind=Endpoint(host="127.0.0.1", port=0), keys=store.path)) as daemon:
        place = f"localhost:{daemon.endpoint.rpartition(':')[2]}"
        words = ["status", place, "--folder", str(stranger.path)]
        assert command(words) == 1
        assert f"emlio trust {place} KEY" in capsys.readouterr().out
        assert command(["trust", place, str(store.pair().public), "--folder", str(stranger.path)]) == 0
        assert command(words) == 1
        told = capsys.readouterr().out
    assert "emlio trust" not in told
    assert "emlio allow NAME" in told


def test_where_no_daemon_answers_top_does_not_say_that_no_job_runs(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        words = ["top", "--once", "--every", "100ms", f"127.0.0.1:{nobody.getsockname()[1]}"]
        assert command(words) == 1
        assert "nothing is known of jobs" in capsys.readouterr().out
        assert command([*words, "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["jobs"] == []
    (daemon,) = document["daemons"]
    assert not daemon["answered"]
    assert "Connection refused" in daemon["error"]
