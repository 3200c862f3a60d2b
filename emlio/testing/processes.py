"""Real processes for tests: a daemon, and small scripts that act as ranks.

Covers: starting them, waiting with deadlines for what they say, signals, ending them whatever happens. Does not cover: what
they are tested for; daemons and loaders inside the test's own process (emlio.daemon.service).
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Condition, Thread
from types import TracebackType
from typing import IO, Any, Self

import psutil

__all__ = ["DaemonProcess", "RankProcess", "run_python", "settles"]

_READY_S = 20.0
"""A daemon needs half a second; a machine with ten tests at once gets forty times that."""

_END_S = 20.0
_KILL_S = 5.0
_LOOK_EVERY_S = 0.02
_CALM_LOOKS = 10


class _Lines:
    """The lines of a pipe, collected by a thread, so that a test can wait for one with a deadline."""

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
        """Whether the lines came to satisfy `reached` before the time was up or the pipe ended."""
        with self._changed:
            self._changed.wait_for(lambda: reached(self._lines) or self.ended, timeout_s)
            return reached(self._lines)

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)


class _Process:
    """A child process with its standard error collected."""

    def __init__(self, arguments: Sequence[str], name: str, environment: Mapping[str, str] | None) -> None:
        self._name = name
        self._process = subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **(environment or {})},
        )
        if self._process.stdout is None or self._process.stderr is None:
            raise AssertionError("pipes were asked for")
        self._out = _Lines(self._process.stdout, f"{name}-stdout")
        self._err = _Lines(self._process.stderr, f"{name}-stderr")

    @property
    def pid(self) -> int:
        """The process's number."""
        return self._process.pid

    @property
    def log(self) -> str:
        """What it has written to standard error so far."""
        return "\n".join(self._err.all())

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    @property
    def cpu_s(self) -> float:
        """CPU time it has used so far, in user and kernel mode."""
        times = psutil.Process(self.pid).cpu_times()
        return float(times.user + times.system)

    def calms_down(self, timeout_s: float = _END_S) -> bool:
        """Whether it came to rest in time: all it could do is done, its queues are full or empty, it waits."""
        seen: list[float] = []

        def probe() -> bool:
            seen.append(self.cpu_s)
            return len(seen) > _CALM_LOOKS and seen[-1] == seen[-1 - _CALM_LOOKS]

        return settles(probe, timeout_s)

    def wait_for_log(self, text: str, timeout_s: float = _READY_S, times: int = 1) -> None:
        """Wait until `text` stands in this many lines of its log.

        Raises:
            TimeoutError: it ended, or the time is up, before.
        """
        if not self._err.wait(lambda lines: sum(text in line for line in lines) >= times, timeout_s):
            raise TimeoutError(self._told(f"must log {text!r} {times} time(s) within {timeout_s} s"))

    def send_signal(self, number: int) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def pause(self, timeout_s: float = _KILL_S) -> None:
        """Stop it until SIGCONT; from the return on it does nothing, not even in a thread on another core.

        Raises:
            TimeoutError: it has not stopped in time.
        """
        self._process.send_signal(signal.SIGSTOP)
        if not settles(lambda: os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOHANG) is not None, timeout_s):
            raise TimeoutError(self._told(f"must stop within {timeout_s} s"))

    def finish(self, timeout_s: float = _END_S) -> int:
        """Wait for its end and return its exit status; negative for a signal.

        Raises:
            TimeoutError: it has not ended in time; it is killed then.
        """
        try:
            status = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise TimeoutError(self._told(f"must end within {timeout_s} s")) from None
        self._out.join(_KILL_S)
        self._err.join(_KILL_S)
        return status

    def kill(self) -> None:
        """End it without its consent and collect it. Harmless when it has ended."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
        self._process.wait(_KILL_S)
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
    """An `emlio-daemon` on a port of its own; born ready, killed at the end of the `with`.

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
        """Start it and wait until it serves.

        Args:
            data: the datasets: name to directory.
            options: more of its flags.
            folder: an existing one for its ready file.
            bind: its control port.
            environment: variables besides this process's.
            timeout_s: how long the start may take.

        Raises:
            TimeoutError: it was not ready in time, or ended; the message holds its log.
        """
        number = sum(1 for _ in folder.glob("ready-*"))
        ready = folder / f"ready-{os.getpid()}-{number}-{time.monotonic_ns()}.json"
        arguments = [sys.executable, "-m", "emlio.daemon.cli", "--bind", bind, "--ready-file", str(ready), *options]
        for name, directory in data.items():
            arguments += ["--data", f"{name}={directory}"]
        super().__init__(arguments, "emlio-daemon", environment)
        try:
            # The daemon says so after it wrote the file; reading a pipe needs no polling, watching a folder would.
            self.wait_for_log("serving at", timeout_s)
            self.endpoint: str = json.loads(ready.read_text(encoding="utf-8"))["endpoint"]
        except BaseException:
            self.kill()
            raise

    @property
    def peer(self) -> str:
        """HOST:PORT, as it stands in an address."""
        return self.endpoint.removeprefix("tcp://")

    def address(self, dataset: str, *others: "DaemonProcess") -> str:
        """emlio://HOST:PORT/DATASET, with other daemons that hold parts of it."""
        return f"emlio://{','.join([self.peer, *(other.peer for other in others)])}/{dataset}"


class RankProcess(_Process):
    """A Python script in a process of its own, which says what it saw as lines of JSON on standard output."""

    def __init__(
        self,
        script: str,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        python: Path | None = None,
    ) -> None:
        """Start it.

        Args:
            script: the source.
            arguments: its sys.argv[1:].
            environment: variables besides this process's.
            python: the interpreter; by default this process's.
        """
        interpreter = sys.executable if python is None else str(python)
        super().__init__([interpreter, "-c", script, *arguments], "rank", environment)

    def lines(self) -> list[Any]:
        """What it has said so far."""
        return [json.loads(line) for line in self._out.all()]

    def line(self, number: int, timeout_s: float = _READY_S) -> Any:
        """Wait for its line of that number, from 0, and return it.

        Raises:
            TimeoutError: it ended, or the time is up, before.
        """
        if not self._out.wait(lambda lines: len(lines) > number, timeout_s):
            raise TimeoutError(self._told(f"must say line {number} within {timeout_s} s"))
        return json.loads(self._out.all()[number])


def run_python(*words: object, timeout_s: float, environment: Mapping[str, str] | None = None) -> str:
    """Run a Python with these arguments to its end; what it started ends with it. Returns what it wrote.

    Args:
        words: its arguments.
        timeout_s: how long it may take.
        environment: variables besides this process's.

    Raises:
        AssertionError: it ended with another status than 0; the message has the end of what it wrote.
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


def settles(probe: Callable[[], bool], timeout_s: float) -> bool:
    """Whether `probe` comes true in time; for what nobody announces, such as another process's descriptors."""
    deadline = time.monotonic() + timeout_s
    while not probe():
        if time.monotonic() >= deadline:
            return False
        time.sleep(_LOOK_EVERY_S)
    return True
