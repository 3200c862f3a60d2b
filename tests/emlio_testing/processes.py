"""Real processes for tests: a daemon, and small scripts that act as ranks."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Condition, Thread
from types import TracebackType
from typing import IO, Any, Self

import psutil

from emlio_testing.fork_server.client import ForkedProcess, ForkServer

__all__ = [
    "DaemonProcess",
    "RankProcess",
    "fork_server",
    "fork_server_pids",
    "forked_from",
    "fresh_interpreters",
    "run_python",
    "settles",
    "start_python",
]

_READY_S = 60.0
"""A daemon needs half a second. Only a hang may reach this limit, however busy the machine is."""

_END_S = 60.0
_KILL_S = 20.0
_LOOK_EVERY_S = 0.02
_LOOK_AFTER_PART = 0.05
"""The delay of each look, as a part of the time that has passed: the process may need the core."""

_CALM_LOOKS = 10


class _Lines:
    """The lines of a pipe, collected by a thread. A test can wait for one with a deadline."""

    def __init__(self, pipe: IO[str], name: str) -> None:
        self.ended = False
        self._pipe = pipe
        self._lines: list[str] = []
        self._changed = Condition()
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with self._pipe:
            for line in self._pipe:
                with self._changed:
                    self._lines.append(line.rstrip("\n"))
                    self._changed.notify_all()
        with self._changed:
            self.ended = True
            self._changed.notify_all()

    def all(self) -> list[str]:
        with self._changed:
            return list(self._lines)

    def wait(self, reached: Callable[[Sequence[str]], bool], timeout_s: float) -> bool:
        """Wait until the lines satisfy `reached`; return whether they did.

        The wait ends without it when the time is up or the pipe ends.
        """
        with self._changed:
            self._changed.wait_for(lambda: reached(self._lines) or self.ended, timeout_s)
            return reached(self._lines)

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)


class _Starts:
    """The fork servers in use, the latest first. What none of them can fork is a new interpreter."""

    servers: tuple[ForkServer, ...] = ()


@contextmanager
def fork_server(*modules: str, environment: Mapping[str, str] | None = None) -> Generator[ForkServer]:
    """Start daemons and ranks by a fork server meanwhile: their imports cost more than most tests.

    Args:
        modules: what it imports besides the modules of daemons and ranks.
        environment: variables in addition to this process's, with which it imports them.
    """
    with ForkServer(modules, environment or {}) as server, forked_from(server):
        yield server


@contextmanager
def forked_from(server: ForkServer) -> Generator[None]:
    """Start daemons and ranks by this server meanwhile, and by earlier ones those that it cannot fork."""
    _Starts.servers = (server, *_Starts.servers)
    try:
        yield
    finally:
        _Starts.servers = tuple(one for one in _Starts.servers if one is not server)


def fork_server_pids() -> tuple[int, ...]:
    """Return the processes that fork daemons and ranks now, the latest first."""
    return tuple(server.pid for server in _Starts.servers)


@contextmanager
def fresh_interpreters() -> Generator[None]:
    """Start daemons and ranks as a user does meanwhile, for tests in which their start matters."""
    servers, _Starts.servers = _Starts.servers, ()
    try:
        yield
    finally:
        _Starts.servers = servers


def start_python(
    program: Sequence[str],
    environment: Mapping[str, str],
    *,
    folder: Path | None = None,
    python: Path | None = None,
    told: bool = False,
) -> "ForkedProcess | subprocess.Popen[str]":
    """Start Python, with pipes for its output and errors.

    Args:
        program: arguments of Python: -m or -c, the module or the script, and its own arguments.
        environment: its whole environment.
        folder: its working directory; by default this process's.
        python: the interpreter; by default this process's.
        told: whether its standard input is a pipe; else it is empty.
    """
    for server in _Starts.servers if python is None else ():
        if server.serves(environment):
            return server.start(program, environment, folder=folder, told=told)
    return subprocess.Popen(
        [sys.executable if python is None else str(python), *program],
        stdin=subprocess.PIPE if told else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=folder,
    )


class _Process:
    """A child process with its standard error collected."""

    def __init__(
        self,
        program: Sequence[str],
        name: str,
        environment: Mapping[str, str] | None,
        *,
        told: bool = False,
        python: Path | None = None,
    ) -> None:
        self._name = name
        whole = {**os.environ, "PYTHONUNBUFFERED": "1", **(environment or {})}
        self._process = start_python(program, whole, python=python, told=told)
        if self._process.stdout is None or self._process.stderr is None:
            raise AssertionError("pipes were asked for")
        self._out = _Lines(self._process.stdout, f"{name}-stdout")
        self._err = _Lines(self._process.stderr, f"{name}-stderr")

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    @property
    def log(self) -> str:
        """The standard error output so far."""
        return "\n".join(self._err.all())

    @property
    def output(self) -> list[str]:
        """The lines of its standard output so far."""
        return self._out.all()

    @property
    def running(self) -> bool:
        """True if the process has not ended."""
        return self._process.poll() is None

    @property
    def cpu_s(self) -> float:
        """The CPU time used so far, in user and kernel mode."""
        times = psutil.Process(self.pid).cpu_times()
        return float(times.user + times.system)

    def calms_down(self, timeout_s: float = _END_S) -> bool:
        """Wait until the process uses no CPU time; return whether it did in time.

        Then all it could do is done, its queues are full or empty, and it waits.
        """
        seen: list[float] = []

        def probe() -> bool:
            seen.append(self.cpu_s)
            return len(seen) > _CALM_LOOKS and seen[-1] == seen[-1 - _CALM_LOOKS]

        return settles(probe, timeout_s, evenly=True)

    def wait_for_log(self, text: str, timeout_s: float = _READY_S, times: int = 1) -> None:
        """Wait until this many lines of its log contain `text`.

        Raises:
            TimeoutError: the process ended, or the time is up, before.
        """
        if not self._err.wait(lambda lines: sum(text in line for line in lines) >= times, timeout_s):
            raise TimeoutError(self._told(f"must log {text!r} {times} time(s) within {timeout_s} s"))

    def send_signal(self, number: int) -> None:
        """Send a signal to the process."""
        self._process.send_signal(number)

    def pause(self, timeout_s: float = _KILL_S) -> None:
        """Stop the process until SIGCONT.

        After the return it does nothing, not even in a thread on another core.

        Raises:
            TimeoutError: it has not stopped in time.
        """
        self._process.send_signal(signal.SIGSTOP)
        if not settles(self._is_stopped, timeout_s):
            raise TimeoutError(self._told(f"must stop within {timeout_s} s"))

    def _is_stopped(self) -> bool:
        """True if each of its threads is stopped."""
        states = [
            task.read_text(encoding="ascii").rpartition(")")[2].split()[0]
            for task in Path(f"/proc/{self.pid}/task").glob("*/stat")
        ]
        return all(state == "T" for state in states)

    def ends(self, timeout_s: float) -> bool:
        """Wait for the end of the process; return whether it came in time."""
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def finish(self, timeout_s: float = _END_S) -> int:
        """Wait for the end of the process and return its exit status; negative for a signal.

        Raises:
            TimeoutError: it has not ended in time and was killed.
        """
        if not self.ends(timeout_s):
            self.kill()
            raise TimeoutError(self._told(f"must end within {timeout_s} s"))
        status = self._process.wait(_KILL_S)
        self._out.join(_KILL_S)
        self._err.join(_KILL_S)
        return status

    def kill(self) -> None:
        """Kill the process and wait for it. Harmless when it has ended."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
        self._process.wait(_KILL_S)
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._out.join(_KILL_S)
        self._err.join(_KILL_S)

    def _told(self, what: str) -> str:
        status = self._process.poll()
        how = "is running" if status is None else f"ended with status {status}"
        return f"{self._name} {what}; it {how} and wrote:\n{self.log}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()


class DaemonProcess(_Process):
    """An `emlio-daemon` on a port of its own; ready when made, killed at the end of the `with`.

    Attributes:
        endpoint: tcp://HOST:PORT of its control port.
    """

    def __init__(
        self,
        data: Mapping[str, Path],
        *options: str,
        folder: Path,
        bind: str = "tcp://127.0.0.1:0",
        environment: Mapping[str, str] | None = None,
        timeout_s: float = _READY_S,
    ) -> None:
        """Start the daemon and wait until it serves.

        Args:
            data: the directories of the datasets, by name.
            options: more flags of the daemon.
            folder: an existing folder for its ready file.
            bind: its control port.
            environment: variables in addition to this process's.
            timeout_s: how long the start may take.

        Raises:
            TimeoutError: it was not ready in time, or ended; the message has its log.
        """
        number = sum(1 for _ in folder.glob("ready-*"))
        ready = folder / f"ready-{os.getpid()}-{number}-{time.monotonic_ns()}.json"
        arguments = ["-m", "emlio.daemon.cli", "--bind", bind, "--ready-file", str(ready), *options]
        for name, directory in data.items():
            arguments += ["--data", f"{name}={directory}"]
        super().__init__(arguments, "emlio-daemon", environment)
        try:
            # The daemon logs this after it wrote the file. Reading a pipe needs no polling;
            # watching a folder would.
            self.wait_for_log("serving at", timeout_s)
            self.endpoint: str = json.loads(ready.read_text(encoding="utf-8"))["endpoint"]
        except BaseException:
            self.kill()
            raise

    @property
    def peer(self) -> str:
        """HOST:PORT, as in an address."""
        return self.endpoint.removeprefix("tcp://")

    @property
    def data_port(self) -> int:
        """The port on which the daemon listens for lanes."""
        control = int(self.peer.rpartition(":")[2])
        listening = {one.laddr.port for one in self._connections(psutil.CONN_LISTEN)}
        (port,) = listening - {control}
        return int(port)

    @property
    def lanes(self) -> int:
        """The number of connected lanes of all ranks."""
        port = self.data_port
        return sum(one.laddr.port == port for one in self._connections(psutil.CONN_ESTABLISHED))

    def _connections(self, status: str) -> list[Any]:
        return [one for one in psutil.Process(self.pid).net_connections("tcp") if one.status == status]

    def address(self, dataset: str, *others: "DaemonProcess") -> str:
        """Return emlio://HOST:PORT/DATASET, with other daemons that hold parts of it."""
        return f"emlio://{','.join([self.peer, *(other.peer for other in others)])}/{dataset}"


class RankProcess(_Process):
    """A Python script in a process of its own, which prints lines of JSON to standard output."""

    def __init__(
        self,
        script: str,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        python: Path | None = None,
        told: bool = False,
    ) -> None:
        """Start the script.

        Args:
            script: the source.
            arguments: its sys.argv[1:].
            environment: variables in addition to this process's.
            python: the interpreter; by default this process's.
            told: whether it reads lines of JSON from standard input.
        """
        super().__init__(["-c", script, *arguments], "rank", environment, told=told, python=python)

    def tell(self, what: Any) -> None:
        """Write a line of JSON to its standard input."""
        pipe = self._input()
        pipe.write(json.dumps(what) + "\n")
        pipe.flush()

    def tell_no_more(self) -> None:
        """Close its standard input."""
        self._input().close()

    def _input(self) -> IO[str]:
        if self._process.stdin is None:
            raise AssertionError("the script must be made with told=True")
        return self._process.stdin

    def lines(self) -> list[Any]:
        """Return the lines printed so far, decoded."""
        return [json.loads(line) for line in self._out.all()]

    def line(self, number: int, timeout_s: float = _READY_S) -> Any:
        """Wait for the line of that number, from 0, and return it.

        Raises:
            TimeoutError: the process ended, or the time is up, before.
        """
        if not self._out.wait(lambda lines: len(lines) > number, timeout_s):
            raise TimeoutError(self._told(f"must say line {number} within {timeout_s} s"))
        return json.loads(self._out.all()[number])


def run_python(*words: object, timeout_s: float, environment: Mapping[str, str] | None = None) -> str:
    """Run Python with these arguments to its end, and return its output.

    If it does not end in time, it is killed with the processes that it started.

    Args:
        words: its arguments.
        timeout_s: how long it may take.
        environment: variables in addition to this process's.

    Raises:
        AssertionError: its exit status is not 0; the message has the end of its output.
    """
    with subprocess.Popen(
        [sys.executable, *map(str, words)],
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=timeout_s)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    if process.returncode:
        raise AssertionError(f"{words[0]} must end with status 0, got {process.returncode}: {output[-4000:]}")
    return output


def settles(probe: Callable[[], bool], timeout_s: float, *, evenly: bool = False) -> bool:
    """Wait until `probe` returns True; return whether it did in time.

    For facts without an event, as in another process.

    Args:
        probe: checks the fact.
        timeout_s: how long to check.
        evenly: whether to check every 20 ms all the time, instead of less and less often.
    """
    begun = time.monotonic()
    while not probe():
        passed = time.monotonic() - begun
        if passed >= timeout_s:
            return False
        time.sleep(_LOOK_EVERY_S if evenly else min(max(_LOOK_EVERY_S, _LOOK_AFTER_PART * passed), timeout_s - passed))
    return True
