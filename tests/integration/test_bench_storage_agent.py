"""The agent of a storage host: its whole work over loopback, beside a stand-in for ssh; tokens; its end.

Covers: data, servers, meters, energy, halves; both ways to start it. Does not cover: real ssh, namespaces
(tests/e2e/test_bench_storage.py).
"""

import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest

from emlio import __version__
from emlio.cli import main
from emlio.errors import ClosedError, ConfigError, DatasetError, TransportError
from emlio_bench.link.contract import LinkKind
from emlio_bench.link.spec import LinkSpec
from emlio_bench.race.outcome import Contest, Run
from emlio_bench.race.records.corpus import Corpus
from emlio_bench.race.run.joules import Joules
from emlio_bench.race.run.measure import Job, run_once
from emlio_bench.race.storage.by_hand import TOKEN, admit, call, new_token
from emlio_bench.race.storage.duties import Duties, boot_id
from emlio_bench.race.storage.messages import AskClock, Greet, Greeting, Prepare, Serve, Served, TakePlace
from emlio_bench.race.storage.other_host import OtherHost
from emlio_bench.race.storage.over_ssh import SshAgent, ssh_command
from emlio_bench.race.storage.two_hosts import TwoHosts, clock_offset_ns
from emlio_bench.race.systems.dali import DaliFiles
from emlio_bench.race.systems.ours import Local, Remote
from emlio_bench.race.systems.paper import PaperWay
from emlio_bench.race.systems.system import System
from emlio_testing.datasets import read_tfrecord, write_tfrecord
from emlio_testing.ports import free_ports
from emlio_testing.processes import RankProcess, settles
from tests.e2e.test_energy_record import Host

HERE = "127.0.0.1"
CORPUS = Corpus(records=600, record_bytes=2000)
CONTEST = Contest(name="read", words="read", corpus=CORPUS, rtt_ns=10_000, batch=16, epochs=2)
SOON_S = 20.0

STAND_IN = """#!/bin/sh
# ssh to this machine: the last word is the script of the remote shell.
for script; do :; done
export SSH_CONNECTION="127.0.0.1 1 127.0.0.1 22" XDG_CACHE_HOME={cache} PYTHONPATH={path}
exec sh -c "$script"
"""


@pytest.fixture
def ssh(tmp_path: Path) -> str:
    program = tmp_path / "ssh"
    path = os.pathsep.join(filter(None, sys.path))
    program.write_text(STAND_IN.format(cache=tmp_path / "there", path=path), encoding="utf-8")
    program.chmod(0o755)
    return str(program)


@pytest.fixture
def agent(ssh: str) -> Iterator[SshAgent]:
    with SshAgent(ssh_command(ssh, "store", sys.executable), host="store", python=sys.executable) as made:
        yield made


@pytest.fixture
def store(agent: SshAgent, tmp_path: Path) -> OtherHost:
    return OtherHost(agent.dialogue, agent.greeting, name="store", address="", forms=tmp_path / "here")


def ran(system: System, store: OtherHost, forms: Path, contest: Contest = CONTEST, prepared: Path | None = None) -> Run:
    job = Job(
        contest=contest,
        system=system,
        setting=system.settings(0)[0],
        prepared=prepared or store.prepare(system, contest.corpus, forms),
        spec=LinkSpec(rtt_ns=contest.rtt_ns),
        kind=LinkKind.REAL,
        round=0,
        place=0,
        seed=1,
    )
    return run_once(job, None, store)


# ---- its work -------------------------------------------------------------------------------------------------------


def test_the_agent_describes_its_host(agent: SshAgent) -> None:
    found = agent.greeting
    assert (found.version, found.boot, found.reached_at) == (__version__, boot_id(), HERE)
    assert "cores" in found.world
    assert abs(clock_offset_ns(agent.dialogue)) < 50_000_000  # one machine has one clock


def test_systems_are_served_there_and_read_here(store: OtherHost, tmp_path: Path) -> None:
    assert store.address == HERE
    assert store.rtt_ns < 10_000_000
    # Enough for a processor's time, which is counted in hundredths of a second.
    contest = replace(CONTEST, corpus=Corpus(records=3000, record_bytes=20_000))
    for system in (Remote(), PaperWay()):
        run = ran(system, store, tmp_path / "here", contest)
        assert run.failure is None
        assert [epoch.is_exact(contest.corpus) for epoch in run.epochs] == [True, True]
        assert run.storage_cpu_ns > 0
        assert run.to_training_bytes >= 2 * contest.corpus.payload_bytes
        assert run.in_flight is None
    assert (tmp_path / "there/emlio-bench/data").is_dir()
    assert not (tmp_path / "here").exists(), "the training host needs no data"


@pytest.mark.slow
def test_half_of_the_records_are_made_here(store: OtherHost, tmp_path: Path) -> None:
    contest = replace(CONTEST, corpus=Corpus(records=3000, record_bytes=2000), halves=True)
    counted: list[float] = []
    for _ in range(20):
        run = ran(Remote(), store, tmp_path / "here", contest)
        assert run.failure is None
        assert [epoch.is_exact(contest.corpus) for epoch in run.epochs] == [True, True]
        counted.append(run.to_training_bytes / sum(epoch.payload_bytes for epoch in run.epochs))
        # The interface's bytes are counted: those of other tests at the same time, too, which only add to them.
        if counted[-1] < 0.7:
            break
        time.sleep(1)
    assert 0.3 < min(counted) < 0.7


def test_local_data_are_made_here_and_must_be_those_of_the_storage(store: OtherHost, tmp_path: Path) -> None:
    run = ran(Local(), store, tmp_path / "here")
    assert run.failure is None
    assert run.storage_cpu_ns == 0
    other = replace(CONTEST, corpus=replace(CORPUS, records=601))
    made = store.prepare(Local(), other.corpus, tmp_path / "here")
    shard = next(made.glob("*.tfrecord"))
    write_tfrecord(shard, read_tfrecord(shard)[::-1])
    assert main(["index", "--force", "--mapping", str(made)]) == 0
    again = OtherHost(store._dialogue, store._greeting, name="store", address="", forms=tmp_path / "here")
    with pytest.raises(DatasetError, match="both hosts must make the same records"):
        again.prepare(Local(), other.corpus, tmp_path / "here")


@pytest.mark.skipif(find_spec("nvidia.dali") is None, reason="needs nvidia-dali")
def test_a_mount_that_is_there_is_read_and_half_of_the_data_is_beside_it(store: OtherHost, tmp_path: Path) -> None:
    mount = tmp_path / "mount"
    mount.mkdir()
    contest = replace(CONTEST, corpus=Corpus(records=3000, record_bytes=2000), halves=True, epochs=1)
    run = ran(DaliFiles(form="tfrecord", mount=mount), store, tmp_path / "here", contest)
    assert run.failure is None
    assert [epoch.is_exact(contest.corpus) for epoch in run.epochs] == [True]
    assert any(mount.rglob("*.tfrecord"))
    assert any((tmp_path / "here/examples").rglob("training/*.tfrecord"))


def test_a_server_that_cannot_start_is_a_failure_and_the_next_one_runs(store: OtherHost, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    run = ran(Remote(), store, tmp_path / "here", prepared=tmp_path / "elsewhere")
    assert run.failure is not None
    assert "data must be in" in run.failure
    assert ran(Remote(), store, tmp_path / "here").failure is None


def test_requests_have_borders(agent: SshAgent, tmp_path: Path) -> None:
    with pytest.raises(TransportError, match="a system must be one of"):
        agent.dialogue.ask(Prepare(system="../sh", corpus=CORPUS), str)
    with pytest.raises(ConfigError, match=r"must have the IPv4 address 0\.0\.0\.1"):
        Duties({}, reached_at="").carry_out(TakePlace(address="0.0.0.1"))
    for address, said in (("0.0.0.1", "must be reachable at 0.0.0.1"), ("::1", "must have an IPv4 address")):
        with pytest.raises(ConfigError, match=said):
            OtherHost(agent.dialogue, agent.greeting, name="store", address=address, forms=tmp_path)


# ---- its end --------------------------------------------------------------------------------------------------------


def test_all_that_it_started_ends_with_the_connection(ssh: str, tmp_path: Path) -> None:
    agent = SshAgent(ssh_command(ssh, "store", sys.executable), host="store", python=sys.executable)
    agent.dialogue.ask(TakePlace(address=HERE), str)
    prepared = agent.dialogue.ask(Prepare(system="emlio", corpus=CORPUS), str)
    agent.dialogue.ask(Serve(system="emlio", prepared=prepared, halves=False, rtt_ns=0), Served)
    family = [psutil.Process(agent.pid), *psutil.Process(agent.pid).children(recursive=True)]
    assert len(family) >= 2
    agent.close()
    assert settles(lambda: not any(alive(one) for one in family), SOON_S)


def test_its_servers_end_where_it_is_killed(ssh: str, tmp_path: Path) -> None:
    agent = SshAgent(ssh_command(ssh, "store", sys.executable), host="store", python=sys.executable)
    with agent:
        agent.dialogue.ask(TakePlace(address=HERE), str)
        prepared = agent.dialogue.ask(Prepare(system="emlio", corpus=CORPUS), str)
        agent.dialogue.ask(Serve(system="emlio", prepared=prepared, halves=False, rtt_ns=0), Served)
        servers = psutil.Process(agent.pid).children(recursive=True)
        os.kill(agent.pid, signal.SIGKILL)
        assert settles(lambda: not any(alive(one) for one in servers), SOON_S)
        with pytest.raises(ClosedError):
            agent.dialogue.ask(AskClock(), int)


INTERRUPTED = """
import os, signal, sys
from emlio_bench.race.storage import agent

class Duties:
    def __init__(self, environment, *, reached_at):
        pass

    def carry_out(self, request):
        return 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            os.kill(os.getpid(), number)
        print("all servers have ended", file=sys.stderr)

agent.Duties = Duties
agent.main([], os.environ)
"""
"""An agent that gets signals while it ends its servers."""


@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, None])
def test_no_further_signal_breaks_off_its_end(first: signal.Signals | None) -> None:
    with RankProcess(INTERRUPTED, told=True) as agent:
        agent.tell({"type": "AskClock"})
        assert agent.line(0)["answer"] == 0
        if first is None:
            agent.tell_no_more()
        else:
            agent.send_signal(first)
        assert agent.finish(SOON_S) == 0, agent.log
        assert "all servers have ended" in agent.log


def alive(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


# ---- energy ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_two_machines_are_recorded_each_by_itself(agent: SshAgent, tmp_path: Path) -> None:
    host = Host(tmp_path / "exported")
    try:
        with Joules(tmp_path / "energy", powercap_root=host.tree) as own:
            own.rest(5.1, tries=1)
            both = TwoHosts(own, agent.dialogue)
            store = OtherHost(agent.dialogue, agent.greeting, name="store", address="", forms=tmp_path / "here")
            job = Job(
                contest=replace(CONTEST, step_ns=20_000_000),
                system=Remote(),
                setting=Remote().settings(0)[0],
                prepared=store.prepare(Remote(), CORPUS, tmp_path / "here"),
                spec=LinkSpec(rtt_ns=10_000),
                kind=LinkKind.REAL,
                round=0,
                place=0,
                seed=1,
            )
            run = run_once(job, both, store)
    finally:
        host.close()
    assert run.energy is not None
    assert run.energy.method.startswith("compute measured and estimated")
    assert "storage estimated" in run.energy.method
    methods = {(one.host, one.domain): one.method for one in run.energy.hosts}
    assert methods["compute", "cpu"] == "measured"
    assert methods["storage", "cpu"].startswith("estimated")
    assert run.energy.train_joules is not None


# ---- other ways to it -----------------------------------------------------------------------------------------------


def test_an_agent_by_hand_does_the_same(ssh: str, tmp_path: Path) -> None:
    token, (port,) = new_token(), free_ports(1)
    script = f"{TOKEN}={token} {sys.executable} -m emlio_bench.race.storage.agent {HERE} {port}"
    with ThreadPoolExecutor(1) as threads:
        ending = threads.submit(os.spawnl, os.P_WAIT, ssh, "ssh", script)
        dialogue = call(HERE, token, name="store", port=port, wait_s=SOON_S)
        store = OtherHost(
            dialogue, dialogue.ask(Greet(), Greeting), name="store", address=HERE, forms=tmp_path / "here"
        )
        assert ran(Remote(), store, tmp_path / "here").failure is None
        dialogue.close()
        assert ending.result(SOON_S) == 0


@pytest.mark.skipif(shutil.which("ssh") is None, reason="needs ssh: apt-get install openssh-client")
def test_a_refused_connection_is_an_error_of_ssh() -> None:
    command = ssh_command(f"ssh -F none -p {free_ports(1)[0]}", HERE, "python3")
    with pytest.raises(ConfigError, match=r"without a password: .*Connection refused"):
        SshAgent(command, host=HERE, python="python3")


def test_who_knows_the_token_is_admitted_and_nobody_else() -> None:
    token, port = new_token(), free_ports(1)[0]

    def attend() -> bytes:
        with admit(HERE, port, token, 20) as connection:
            connection.sendall(b'{"answer": 5}\n')
            return connection.recv(100)

    with ThreadPoolExecutor(1) as threads:
        attending = threads.submit(attend)
        with pytest.raises(ConfigError, match="must accept the token"):
            call(HERE, new_token(), name="store", port=port, wait_s=20)
        dialogue = call(HERE, token, name="store", port=port, wait_s=20)
        assert dialogue.ask(AskClock(), int) == 5
        assert b"AskClock" in attending.result()
        dialogue.close()


def test_an_agent_by_hand_needs_a_token_and_gives_up() -> None:
    port = free_ports(1)[0]
    with pytest.raises(ConfigError, match="at least 16 characters, got 5"), admit(HERE, port, "short"):
        pass
    with pytest.raises(TransportError, match="none did"), admit(HERE, port, new_token(), 0.01):
        pass
    with pytest.raises(ConfigError, match="must listen at"), admit("192.0.2.1", port, new_token()):
        pass
    with pytest.raises(ConfigError, match="it had not"):
        call(HERE, new_token(), name="store", port=port, wait_s=-1)


def test_an_agent_that_is_busy_or_breaks_off_is_not_told_to_have_another_token() -> None:
    with socket.create_server((HERE, 0)) as listener:
        port = listener.getsockname()[1]
        # The connection waits in the queue of the listener, as behind another connection.
        with pytest.raises(TransportError, match=r"must answer within 0\.1 s, it did not"):
            call(HERE, new_token(), name="store", port=port, answer_s=0.1)
        listener.accept()[0].close()

        def close_after(sent: bytes) -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(sent)

        for sent in (b"", bytes(7)):
            with ThreadPoolExecutor(1) as threads:
                closing = threads.submit(close_after, sent)
                with pytest.raises(TransportError, match="must answer, the connection broke"):
                    call(HERE, new_token(), name="store", port=port)
                closing.result(SOON_S)
