"""Names as the system looks them up, in a network of their own: each test has its own /etc/hosts.

Covers: names with addresses of both families, as real hosts have them. Does not cover: answers that change, addresses that are
silent (tests/integration/test_loader_addresses).
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_INSIDE = """
import sys
from pathlib import Path

from emlio import EmlioLoader, Recovery
from emlio_testing.processes import DaemonProcess

data, folder, bind, host = sys.argv[1:]
with DaemonProcess({"small": Path(data)}, "--insecure", folder=Path(folder), bind=bind) as daemon:
    port = daemon.endpoint.rpartition(":")[2]
    options = {"batch_size": 10, "raw": True, "ids": True, "to": "numpy", "recovery": Recovery(heartbeat="10s", timeout="30s")}
    with EmlioLoader(f"emlio://{host}:{port}/small", **options) as loader:
        for _ in range(2):
            assert sorted(one for batch in loader for one in batch["__id__"].tolist()) == list(range(500))
        stats = loader.stats()
print("lost", stats.lost_daemons, "reopened", stats.reopened_streams)
"""
_FOREIGN = "198.51.100.7"  # nobody has it, and without a default route it cannot be reached


@pytest.fixture(scope="module")
def alone() -> list[str]:
    """The words before a command that give it a network and mounts of its own."""
    words = ["unshare", "--net", "--mount", "--kill-child", "--fork"]
    if os.getuid() != 0 or shutil.which("unshare") is None or subprocess.run([*words, "true"], check=False).returncode:
        pytest.skip("a network of its own needs root, and a host that lets it have one")
    return words


@pytest.mark.parametrize(
    ("bind", "addresses"),
    [
        ("tcp://0.0.0.0:0", ["::1", "127.0.0.1"]),
        pytest.param("tcp://127.0.0.1:0", ["::1", "127.0.0.1"], marks=pytest.mark.slow),
        pytest.param("tcp://[::1]:0", ["127.0.0.1", "::1"], marks=pytest.mark.slow),
        ("tcp://[::1]:0", [_FOREIGN, "::1"]),
        pytest.param("tcp://127.0.0.1:0", ["2001:db8::7", "127.0.0.1"], marks=pytest.mark.slow),
        ("tcp://0.0.0.0:0", ["127.0.0.1", "127.0.0.2", "127.0.0.3"]),
    ],
)
def test_a_host_is_called_where_its_daemon_is(
    alone: list[str], small: Path, tmp_path: Path, bind: str, addresses: list[str]
) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("".join(f"{address} store1\n" for address in addresses), "ascii")
    prepare = 'set -e; ip link set lo up; mount --bind "$1" /etc/hosts; shift; exec "$@"'
    inside = [sys.executable, "-c", _INSIDE, str(small), str(tmp_path), bind, "store1"]
    ended = subprocess.run(
        [*alone, "sh", "-c", prepare, "sh", str(hosts), *inside],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (ended.returncode, ended.stdout.strip()) == (0, "lost 0 reopened 0"), ended.stderr
