"""The recorder of a job's folder, shared by the job's processes.

Covers: which of several processes starts it, its process, waiting until it answers, its end. Does
not cover: requests to it (emlio.energy.recording.edge), recording
(emlio.energy.recording.record).

A recorder that is started here ends when the last connection that holds it is closed. The kernel
closes the connections of a process that dies. So no recorder outlives its job, whichever rank
started it or ends first.
"""

import os
import select
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from emlio.energy.job.folder import alone, recorder_socket
from emlio.energy.recording.edge import Edge, EdgeClient
from emlio.errors import ConfigError, PeerLostError, TransportError

__all__ = ["JobRecorder"]

_COMMAND = "import sys; from emlio.cli import main; sys.exit(main())"
_STARTING_S = 30.0
_ANSWER_S = 1.0
_HOLDING_S = 10.0
_ENDING_S = 5.0


class JobRecorder:
    """A connection that holds a recorder. It must be used by one thread at a time."""

    def __init__(self, folder: Path, *, options: Sequence[str] = ()) -> None:
        """Find or start the recorder, and wait until it answers.

        Args:
            folder: of the job on this node; it is created if it does not exist.
            options: more arguments for `emlio energy record`, used only if a recorder is started
                here.

        Raises:
            ConfigError: the folder cannot be used.
            TransportError: the recorder cannot be started, or does not answer.
        """
        self._process: _Process | None = None
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with alone(folder / "recorder.lock"):
                self._client = self._found(folder) or self._started(folder, options)
        except OSError as error:
            raise ConfigError(f"a recorder cannot be started in {folder}: {error}") from error

    def _found(self, folder: Path) -> EdgeClient | None:
        """Return a connection to a running recorder, or None.

        A recorder that is about to end closes the connection; then another one is started.
        """
        try:
            client = EdgeClient(recorder_socket(folder), timeout_s=_ANSWER_S)
        except TransportError:
            return None
        try:
            client.hold(timeout_s=_HOLDING_S)
        except PeerLostError:
            client.close()
            return None
        return client

    def _started(self, folder: Path, options: Sequence[str]) -> EdgeClient:
        self._process = _Process(folder, options)
        try:
            self._process.wait_until_ready(_STARTING_S)
            client = EdgeClient(recorder_socket(folder), timeout_s=_ANSWER_S)
            try:
                client.hold(timeout_s=_HOLDING_S)
            except BaseException:
                client.close()
                raise
        except BaseException:
            self._process.end()
            raise
        return client

    def read(self) -> Edge:
        """Ask for a reading, as `EdgeClient.read` does."""
        return self._client.read()

    def close(self) -> None:
        """Release the recorder. Closing again does nothing.

        If this process started the recorder and no other process holds it, it has ended on return.
        """
        self._client.close()
        if self._process is not None and self._process.wait(_ENDING_S):
            self._process = None


class _Process:
    """A recorder process started here, in a session of its own, which protects it from Ctrl-C."""

    def __init__(self, folder: Path, options: Sequence[str]) -> None:
        path = str(Path(sys.executable).absolute()) if sys.executable else "python3"
        node = socket.gethostname()
        words = [
            path,
            "-P",
            "-c",
            _COMMAND,
            "energy",
            "record",
            "--out",
            str(folder / f"{node}.sqlite"),
            "--node",
            node,
        ]
        words += ["--socket", str(recorder_socket(folder)), "--while-held", "--ready-fd", "3", *options]
        # The recorder must import the same modules as this process, wherever they are installed.
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self.log = folder / "recorder.log"
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._ready, written = os.pipe()
        try:
            actions = [
                (os.POSIX_SPAWN_DUP2, written, 3),
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, str(self.log), flags, 0o644),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ]
            self._pid = os.posix_spawn(path, words, environment, file_actions=actions, setsid=True)
        except BaseException:
            os.close(self._ready)
            raise
        finally:
            os.close(written)

    def wait_until_ready(self, timeout_s: float) -> None:
        """Wait until the recorder answers.

        Raises:
            TransportError: it ended, or did not answer in time.
        """
        try:
            heard = os.read(self._ready, 1) if _readable(self._ready, timeout_s) else None
        finally:
            os.close(self._ready)
        if heard is None:
            raise TransportError(f"the recorder must answer within {timeout_s:g} s; it did not, see {self.log}")
        if not heard:
            raise TransportError(f"the recorder ended unexpectedly: {_last_line(self.log)}")

    def wait(self, timeout_s: float) -> bool:
        """Wait for the process to end and return whether it has."""
        try:
            handle = os.pidfd_open(self._pid)
        except ProcessLookupError:
            return True
        except OSError:  # Linux before 5.3, or pidfd_open forbidden: the zombie is reaped when this process ends
            return self._is_reaped(os.WNOHANG)
        try:
            if not _readable(handle, timeout_s):
                return False
        finally:
            os.close(handle)
        return self._is_reaped(0)

    def _is_reaped(self, options: int) -> bool:
        try:
            return os.waitpid(self._pid, options)[0] == self._pid
        except ChildProcessError:  # the kernel has reaped it, because SIGCHLD is ignored
            return True

    def end(self) -> None:
        """Terminate the process."""
        with suppress(ProcessLookupError):
            os.kill(self._pid, 15)
        self.wait(_ENDING_S)


def _readable(descriptor: int, timeout_s: float) -> bool:
    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN)
    return bool(waiting.poll(timeout_s * 1000))


def _last_line(path: Path) -> str:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    return lines[-1] if lines else "it logged nothing"
