"""The paper's figures with their storage side on another host: two namespaces, sshd in one of them.

Covers: ssh with a configuration of its own, the measured round trip, the report, the end of the agent where ssh is killed;
counters that a host exports. Does not cover: two machines, NFS.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest

from emlio_bench.harness.results import RESULTS, read_results
from emlio_bench.link.contract import LinkEnd, LinkKind, LinkSpec
from emlio_bench.link.emulated import EmulatedLink, why_not
from emlio_bench.processes.child import Child
from emlio_bench.race.needs.environments import find_program
from emlio_bench.race.servers.remote_folder import why_no_mount, why_no_served_folder
from emlio_testing.processes import settles
from tests.e2e.test_energy_record import Host

pytestmark = pytest.mark.e2e

RTT_NS = 5_000_000
SOON_S = 20.0
LONG_S = 240.0
PORT = 2222

SSHD = """
Port {port}
ListenAddress {address}
HostKey {folder}/host
AuthorizedKeysFile {folder}/client.pub
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
PermitRootLogin prohibit-password
LogLevel ERROR
"""

SSH = """
Host store
  HostName {address}
  Port {port}
  User root
  IdentityFile "{folder}/client"
  StrictHostKeyChecking no
  UserKnownHostsFile /dev/null
  LogLevel ERROR
"""

PYTHON = """#!/bin/sh
export PYTHONPATH={path} XDG_CACHE_HOME={folder}/there
exec {python} "$@"
"""

KILLED = """
import os, signal, sys, time
from pathlib import Path
from emlio_bench.harness.contest import Corpus
from emlio_bench.race.storage.agent import Served
from emlio_bench.race.storage.remote import Remote, ssh_command
from emlio_bench.race.systems.ours import Remote as Ours

ssh, address, python, folder = sys.argv[1:]
host = Remote(ssh_command(ssh, "store", python), [Ours()], name="store", address=address, forms=Path(folder))
prepared = host.prepare(Ours(), Corpus(records=100, record_bytes=2000), Path(folder))
host.ask("serve", Served, system="emlio", prepared=str(prepared), halves=False, rtt_ns=0)
print("serving", flush=True)
os.kill(host._child.pid, signal.SIGKILL)
time.sleep(600)
"""


@dataclass(frozen=True)
class Store:
    """A host with sshd, and the end of the network from which it is reached."""

    address: str
    training: LinkEnd
    folder: Path

    @property
    def flags(self) -> list[str]:
        return ["--storage", "store", "--ssh", self.ssh, "--storage-python", str(self.folder / "python")]

    @property
    def ssh(self) -> str:
        return f"ssh -F {self.folder}/ssh_config"

    def run(self, *words: str) -> "subprocess.CompletedProcess[str]":
        command = self.training.command([sys.executable, "-m", "emlio_bench.cli", "paper", *words])
        return subprocess.run(command, capture_output=True, text=True, timeout=LONG_S, check=False)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    sshd = find_program("sshd", tmp_path)
    reason = why_not() or why_no_served_folder(tmp_path)
    if reason is not None or sshd is None or shutil.which("ssh") is None:
        pytest.skip(f"{reason or 'needs ssh: apt-get install openssh-client'}")
    for name in ("host", "client"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{tmp_path}/{name}"], check=True)
    path = os.pathsep.join(filter(None, sys.path))
    (tmp_path / "python").write_text(PYTHON.format(path=path, folder=tmp_path, python=sys.executable))
    (tmp_path / "python").chmod(0o755)
    with EmulatedLink(LinkSpec(rtt_ns=RTT_NS)) as link:
        address = link.storage.address
        (tmp_path / "sshd_config").write_text(SSHD.format(port=PORT, address=address, folder=tmp_path))
        (tmp_path / "ssh_config").write_text(SSH.format(port=PORT, address=address, folder=tmp_path))
        # As root, sshd needs /run/sshd.
        command = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs tmpfs /run && mkdir -m 755 /run/sshd && exec "$@"']
        command += ["sh", sshd, "-D", "-e", "-f", f"{tmp_path}/sshd_config"]
        with Child("sshd", link.storage.command(command)) as server:
            server.wait_until(lambda: _listens(link.storage))
            yield Store(address, link.training, tmp_path)


def _listens(end: LinkEnd) -> bool:
    with end.make_socket() as probe:
        return probe.connect_ex((end.listen, PORT)) == 0


def below(folder: Path) -> list[psutil.Process]:
    """All processes that run with the storage host's Python."""
    found: list[psutil.Process] = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("XDG_CACHE_HOME") == f"{folder}/there":
                found.append(process)
        except psutil.Error:
            continue
    return found


@pytest.mark.slow
@pytest.mark.skipif(find_spec("nvidia.dali") is None, reason="needs nvidia-dali")
def test_a_figure_over_ssh_has_the_same_report(store: Store, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ("--scale", "tiny", "--figure", "5", "--no-install", "--out", str(out), "--cache", str(tmp_path / "here"))
    done = store.run(*store.flags, *words, "--cpu-watts", "10:20")
    assert done.returncode == 0, done.stderr
    race = read_results(out / RESULTS)
    wanted = {"emlio", "emlio-local", "paper", "dali-local"}
    if why_no_mount(tmp_path) is None:
        wanted |= {"dali-file", "dali-tfrecord"}
    assert {run.subject for run in race.runs} >= wanted
    assert [run.failure for run in race.runs if run.subject in wanted and run.failure is not None] == []
    for contest in race.contests:
        assert contest.rtt_ns == pytest.approx(RTT_NS, rel=0.1)
    for name, link in race.links:
        assert link.kind is LinkKind.REAL, name
        assert link.missed == ()
    assert {run.words.get("exact", "yes") for run in race.runs} == {"yes"}
    report = (out / "report.md").read_text()
    assert "The storage side ran on store" in report
    assert "## Figure 5" in report
    assert "both hosts" in report
    assert (tmp_path / "there/emlio-bench/data").is_dir()
    assert below(tmp_path) == []


def test_all_on_the_storage_host_ends_where_ssh_is_killed(store: Store) -> None:
    command = [sys.executable, "-c", KILLED, store.ssh, store.address, str(store.folder / "python"), str(store.folder)]
    with Child("a training host", store.training.command(command)) as host:
        assert host.line(60.0) == b"serving"
        assert settles(lambda: below(store.folder) == [], SOON_S)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--storage", "nowhere.invalid"], "`ssh nowhere.invalid` must work without a password"),
        (["--storage-python", "/no/python"], "--storage-python must be a Python there with emlio"),
        (["--storage-address", "0.0.0.1"], "store must be reachable at 0.0.0.1"),
    ],
)
def test_a_host_that_does_not_do_is_an_error_that_says_why(
    store: Store, tmp_path: Path, flags: Sequence[str], said: str
) -> None:
    done = store.run(*store.flags, *flags, "--figure", "7", "--out", str(tmp_path / "out"))
    assert done.returncode == 2
    assert said in done.stderr


# ---- counters -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_energy_from_a_counter_is_shown_as_counted(tmp_path: Path) -> None:
    host = Host(tmp_path / "exported")
    try:
        out = tmp_path / "out"
        words = [
            "--scale",
            "tiny",
            "--figure",
            "7",
            "--rtt",
            "1ms",
            "--kind",
            "emulated",
            "--no-install",
            "--out",
            str(out),
        ]
        words += ["--cache", str(tmp_path / "cache"), "--powercap-root", str(host.tree)]
        command = [sys.executable, "-m", "emlio_bench.cli", "paper", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LONG_S, check=False)
    finally:
        host.close()
    assert done.returncode == 0, done.stderr
    report = (out / "report.md").read_text()
    assert "CPU estimated" not in report
    for host_name in ("compute", "storage"):
        assert f"{host_name} CPU measured" in report
