"""`emlio status` on a daemon's own host, without keys: who is answered, and by whom."""

import json
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from emlio.keys.folder import KeyFolder
from emlio_testing.commands import run_emlio
from emlio_testing.datasets import make_dataset
from emlio_testing.ports import free_ports
from emlio_testing.processes import DaemonProcess, RankProcess

SOON_S = 60.0
NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can run a process as another user")
OTHER_USER = 65_534

ASK = """
import encodings.idna, encodings.utf_8_sig, io, json, os, sys
from contextlib import redirect_stdout
from emlio.cli import main

os.environ["HOME"] = "/nonexistent"
words = ["status", *sys.argv[2:], "--json", "--over", "100ms"]
with redirect_stdout(io.StringIO()):
    main(words)  # all modules are loaded before the other user, who may not read them, asks
os.setgroups([]); os.setgid(int(sys.argv[1])); os.setuid(int(sys.argv[1]))
out = io.StringIO()
with redirect_stdout(out):
    main(words)
print(out.getvalue().strip(), flush=True)
"""

SERVE = """
import encodings.idna, encodings.utf_8_sig, json, os, sys, time
from dataclasses import replace
from pathlib import Path
from emlio.daemon.config import DaemonConfig, DatasetSource, Endpoint
from emlio.daemon.service import Daemon

user, data, keys = int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
config = DaemonConfig(
    data=(DatasetSource(name="x", directory=data),), bind=Endpoint(host="127.0.0.1", port=0), cache_dir=keys
)
Daemon(config).close()  # all modules are loaded
config = replace(config, keys=keys)
os.setgroups([]); os.setgid(user); os.setuid(user)
with Daemon(config) as daemon:
    print(json.dumps(daemon.endpoint.removeprefix("tcp://")), flush=True)
    time.sleep(600)
"""

TAKE_NAME = """
import os, socket, sys, time
os.setgroups([]); os.setgid(int(sys.argv[1])); os.setuid(int(sys.argv[1]))
taken = socket.socket(socket.AF_UNIX)
taken.bind("\\0emlio-daemon/" + sys.argv[2])
taken.listen()
print("true", flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """A folder that any user may enter, with a dataset and keys of a daemon without clients."""
    folder = Path(tempfile.mkdtemp(prefix="emlio-local-"))
    folder.chmod(0o755)
    make_dataset(folder / "x", records=20, shards=1)
    KeyFolder(folder / "keys").make("store")
    yield folder
    shutil.rmtree(folder)


def asked(home: Path, *words: object) -> dict[str, list[str] | str]:
    """The datasets, or the error, of each daemon that answers or should."""
    ended = run_emlio("status", *words, "--json", "--over", "100ms", home=home, timeout_s=SOON_S)
    return said(json.loads(ended.out))


def said(document: dict[str, list[dict[str, object]]]) -> dict[str, list[str] | str]:
    found: dict[str, list[str] | str] = {}
    for one in document["daemons"]:
        datasets: list[dict[str, str]] = one.get("datasets") or []  # type: ignore[assignment]
        found[str(one["address"])] = [row["name"] for row in datasets] if one["answered"] else str(one["error"])
    return found


def test_no_keys_are_needed_also_after_a_kill(place: Path, tmp_path: Path) -> None:
    bind = f"tcp://127.0.0.1:{free_ports(2, '127.0.0.1')[0]}"  # the second one needs the same, and the next for data
    for _ in range(2):
        with DaemonProcess({"x": place / "x"}, "--keys", str(place / "keys"), folder=tmp_path, bind=bind) as daemon:
            port = daemon.peer.rpartition(":")[2]
            assert asked(tmp_path, f"localhost:{port}") == {f"localhost:{port}": ["x"]}
            assert asked(tmp_path)[daemon.peer] == ["x"]
            with DaemonProcess({"y": place / "x"}, "--keys", str(place / "keys"), folder=tmp_path) as other:
                both = asked(tmp_path, daemon.peer, other.peer)
                assert both == {daemon.peer: ["x"], other.peer: ["y"]}
            keyed = asked(tmp_path, daemon.peer, "--folder", place / "keys")
            assert "does not trust it yet" in str(keyed[daemon.peer])
            daemon.kill()
            assert "Connection refused" in str(asked(tmp_path, daemon.peer)[daemon.peer])


@NEEDS_ROOT
def test_another_user_is_told_who_needs_no_keys(place: Path, tmp_path: Path) -> None:
    with (
        DaemonProcess({"x": place / "x"}, "--keys", str(place / "keys"), folder=tmp_path) as daemon,
        RankProcess(ASK, str(OTHER_USER), daemon.peer) as asking,
    ):
        error = said(asking.line(0, SOON_S))[daemon.peer]
    assert "run this as one of them, or name a key folder with --folder" in error


@NEEDS_ROOT
def test_root_and_the_daemon_s_own_user_are_answered(place: Path, tmp_path: Path) -> None:
    keys = place / "theirs"
    shutil.copytree(place / "keys", keys)
    for path in (keys, *keys.iterdir()):
        os.chown(path, OTHER_USER, OTHER_USER)
    with RankProcess(SERVE, str(OTHER_USER), str(place / "x"), str(keys)) as serving:
        peer = serving.line(0, SOON_S)
        assert asked(tmp_path, peer) == {peer: ["x"]}
        with RankProcess(ASK, str(OTHER_USER), peer) as asking:
            assert said(asking.line(0, SOON_S)) == {peer: ["x"]}
        with RankProcess(ASK, str(OTHER_USER - 1), peer) as asking:
            assert "requires keys" in said(asking.line(0, SOON_S))[peer]


@NEEDS_ROOT
def test_a_name_that_another_user_took_is_not_asked(tmp_path: Path) -> None:
    with socket.socket() as port:
        port.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{port.getsockname()[1]}"
    with RankProcess(TAKE_NAME, str(OTHER_USER), place) as taking:
        assert taking.line(0, SOON_S) is True
        assert "Connection refused" in str(asked(tmp_path, place)[place])
