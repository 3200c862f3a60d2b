"""The fork server of the tests: its processes are like new interpreters, from the start to the exit status."""

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import psutil
import pytest

from emlio_testing.datasets import make_dataset
from emlio_testing.fork_server.client import ForkedProcess, ForkServer
from emlio_testing.processes import (
    DaemonProcess,
    RankProcess,
    fork_server,
    fork_server_pids,
    fresh_interpreters,
    settles,
)

_SAY = "import json, os, sys; print(json.dumps([sys.argv, os.environ.get('EMLIO_X'), os.getcwd()]))"


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with fork_server() as made:
        yield made


def _environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONUNBUFFERED": "1", **more}


def _ended(server: ForkServer, script: str, *words: str, **more: str) -> tuple[int, str, str]:
    with server.start(["-c", script, *words], _environment(**more)) as process:
        return process.wait(20), process.stdout.read(), process.stderr.read()


def test_a_script_has_its_arguments_environment_and_folder(
    server: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    status, out, err = _ended(server, _SAY, "a", "b", EMLIO_X="y")
    assert (status, json.loads(out), err) == (0, [["-c", "a", "b"], "y", str(tmp_path)], "")


@pytest.mark.parametrize(
    ("script", "status"),
    [
        ("", 0),
        ("raise SystemExit(3)", 3),
        ("raise SystemExit('no')", 1),
        ("1 / 0", 1),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
        ("import os, signal; os.kill(os.getpid(), signal.SIGINT); import time; time.sleep(9)", -signal.SIGINT),
        ("import atexit, os; atexit.register(os._exit, 7)", 7),
    ],
)
def test_the_exit_status_is_that_of_a_new_interpreter(server: ForkServer, script: str, status: int) -> None:
    forked, out, err = _ended(server, script)
    fresh = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, env=_environment()
    )
    assert (forked, out) == (fresh.returncode, fresh.stdout) == (status, "")
    assert err.splitlines()[-1:] == fresh.stderr.splitlines()[-1:]


def test_each_process_has_random_numbers_of_its_own(server: ForkServer) -> None:
    script = "import os, random; print(random.random())"
    assert len({_ended(server, script)[1] for _ in range(3)}) == 3


def test_a_process_holds_no_descriptor_of_others(server: ForkServer) -> None:
    script = "import os; print(sorted(map(int, os.listdir('/proc/self/fd')))[:-1])"
    with RankProcess("import time; time.sleep(100)"):
        status, out, _ = _ended(server, script)
    assert (status, json.loads(out)) == (0, [0, 1, 2])


def test_a_variable_that_is_read_at_the_start_needs_a_new_interpreter(server: ForkServer) -> None:
    assert server.serves(_environment(EMLIO_JOB="x", RANK="1"))
    for name in ("PYTHONPATH", "LD_PRELOAD", "MALLOC_ARENA_MAX", "OMP_NUM_THREADS", "TZ"):
        assert not server.serves(_environment(**{name: "1"})), name
    assert not server.serves({name: word for name, word in _environment().items() if name != "PATH"})


@pytest.mark.usefixtures("server")
def test_a_rank_reads_what_it_is_told_stops_and_is_killed() -> None:
    script = "import sys\nfor line in sys.stdin:\n    print(line.strip())\n"
    with RankProcess(script, told=True) as rank:
        assert isinstance(rank._process, ForkedProcess)
        rank.tell([1])
        assert rank.line(0) == [1]
        rank.pause()
        rank.tell([2])
        assert rank.running
        rank.send_signal(signal.SIGCONT)
        assert rank.line(1) == [2]
        rank.kill()
        assert rank.finish() == -signal.SIGKILL
        rank.send_signal(signal.SIGTERM)  # harmless


@pytest.mark.usefixtures("server")
def test_ctrl_c_in_the_terminal_leaves_the_server_which_ends_what_it_started() -> None:
    server = fork_server_pids()[0]
    script = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); print(1); time.sleep(100)"
    with RankProcess(script) as rank:
        assert rank.line(0) == 1
        for pid in (server, rank.pid):
            os.kill(pid, signal.SIGINT)
        assert rank.running
        rank.kill()
        assert rank.finish() == -signal.SIGKILL
    with RankProcess("print(2)") as rank:
        assert rank.line(0) == 2


class Interrupted(BaseException):
    pass


def _interrupt_a_start(server: ForkServer) -> None:
    """Interrupt a start while it waits for the answer of the server, which is stopped meanwhile."""

    def interrupt(number: int, frame: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    os.kill(server.pid, signal.SIGSTOP)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(Interrupted):
            server.start(["-c", "import time; time.sleep(100)"], _environment())
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        os.kill(server.pid, signal.SIGCONT)


def _forked_by(server: ForkServer) -> list[psutil.Process]:
    """Return its children, once it has answered."""
    assert select.select([server._channel], [], [], 20)[0]
    return psutil.Process(server.pid).children()


def _runs(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def test_an_interrupted_start_does_not_give_its_process_to_the_next(server: ForkServer) -> None:
    _interrupt_a_start(server)
    assert _ended(server, "import os; print(os.getpid())")[0] == 0
    with server.start(["-c", "import os; print(os.getpid())"], _environment()) as process:
        assert process.wait(20) == 0
        assert process.stdout.read() == f"{process.pid}\n"


def test_an_interrupted_start_leaves_no_process_where_no_start_follows(server: ForkServer) -> None:
    _interrupt_a_start(server)
    _forked_by(server)
    assert settles(lambda: not psutil.Process(server.pid).children(), 20)


def test_a_start_that_is_interrupted_after_the_answer_leaves_no_process(
    server: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    receive = socket.recv_fds

    def interrupted(*words: Any) -> NoReturn:
        _, handles, _, _ = receive(*words)
        for handle in handles:
            os.close(handle)
        raise Interrupted

    with monkeypatch.context() as patch:
        patch.setattr(socket, "recv_fds", interrupted)
        with pytest.raises(Interrupted):
            server.start(["-c", "import time; time.sleep(100)"], _environment())
    assert settles(lambda: not psutil.Process(server.pid).children(), 20)
    assert _ended(server, "")[0] == 0


def test_a_server_that_closes_after_an_interrupted_start_ends_that_process_and_no_other() -> None:
    with ForkServer() as server:
        other = server.start(["-c", "import sys; sys.stdin.read()"], _environment(), told=True)
        _interrupt_a_start(server)
        orphans = [child for child in _forked_by(server) if child.pid != other.pid]
        server.close()
        assert server._process.returncode == 0
        assert settles(lambda: not any(_runs(orphan) for orphan in orphans), 20)
        assert _runs(psutil.Process(other.pid))
    other.kill()
    with pytest.raises(AssertionError, match="must outlive"):
        other.wait(20)
    for pipe in (other.stdin, other.stdout, other.stderr):
        if pipe is not None:
            pipe.close()


def test_ctrl_c_does_not_reach_a_thread_that_an_import_started(tmp_path: Path) -> None:
    (tmp_path / "starts_a_thread.py").write_text(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(100,), daemon=True).start()\n"
    )
    place = {"PYTHONPATH": str(tmp_path)}
    with ForkServer(["starts_a_thread"], place) as server:
        assert _ended(server, "", **place)[0] == 0
        assert len(os.listdir(f"/proc/{server.pid}/task")) == 2
        os.kill(server.pid, signal.SIGINT)
        assert _ended(server, "", **place)[0] == 0
        assert _ended(server, "import os, signal; os.kill(os.getpid(), 2)", **place)[0] == -signal.SIGINT


def test_more_modules_can_be_loaded_for_later_processes() -> None:
    script = "import sys; print('wave' in sys.modules)"
    with ForkServer() as server:
        assert _ended(server, script)[1] == "False\n"
        server.load("wave")
        assert _ended(server, script)[1] == "True\n"


@pytest.mark.usefixtures("server")
def test_a_process_is_forked_from_the_latest_server_that_can_fork_it() -> None:
    script, variables = "import os; print(os.getppid())", {"OMP_NUM_THREADS": "1"}
    with fork_server(environment=variables):
        latest, earlier, *_ = fork_server_pids()
        with RankProcess(script, environment=variables) as one, RankProcess(script) as other:
            assert (one.line(0), other.line(0)) == (latest, earlier)
    assert fork_server_pids()[0] == earlier


@pytest.mark.usefixtures("server")
def test_where_a_fresh_interpreter_is_wanted_none_is_forked() -> None:
    with fresh_interpreters(), RankProcess("print(1)") as rank:
        assert isinstance(rank._process, subprocess.Popen)
        assert rank.line(0) == 1


@pytest.mark.usefixtures("server")
def test_a_daemon_is_forked_and_serves(tmp_path: Path) -> None:
    make_dataset(tmp_path / "small", records=10, shards=1)
    with DaemonProcess({"small": tmp_path / "small"}, folder=tmp_path) as daemon:
        assert isinstance(daemon._process, ForkedProcess)
        daemon.send_signal(signal.SIGTERM)
        assert daemon.finish() == 0
