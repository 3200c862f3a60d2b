"""The agent over ssh: the command, the connection, and reasons why it did not come about.

Covers: quoting for the remote shell, starting and ending ssh, words for its failures. Does not
cover: user, port, keys and hosts, which the user's ssh configuration gives.
"""

import shlex
import socket
import subprocess
import tempfile
from collections.abc import Sequence
from typing import IO, Final, Self

from emlio import __version__
from emlio.errors import ClosedError, ConfigError
from emlio_bench.race.storage.dialogue import Dialogue
from emlio_bench.race.storage.messages import Greet, Greeting

__all__ = ["SshAgent", "ssh_command", "what_to_type", "why_failed"]

_AGENT: Final = "emlio_bench.race.storage.agent"
_OPTIONS: Final = (
    ("BatchMode", "yes"),
    ("ConnectTimeout", "20"),
    ("ServerAliveInterval", "15"),
    ("ServerAliveCountMax", "4"),
)
_START_S: Final = 90.0
_END_S: Final = 20.0
_TERMINATE_S: Final = 2.0
_COMPLAINT_BYTES: Final = 4000
_OF_SSH: Final = 255
"""The exit status of ssh for failures of its own."""
_NO_PROGRAM: Final = (126, 127)


def ssh_command(ssh: str, host: str, python: str) -> list[str]:
    """Return the command that runs the agent on the storage host.

    Args:
        ssh: ssh with options, as for a shell.
        host: the host as ssh knows it, such as "store" or "user@10.0.0.2".
        python: Python on that host; "~/" stands for the home folder there.
    """
    if not host or host.startswith("-") or any(letter.isspace() for letter in host):
        raise ConfigError(f"--storage must be a host as ssh knows it, got {host!r}")
    try:
        words = shlex.split(ssh)
    except ValueError as error:
        raise ConfigError(f"--ssh must be a command as for a shell, got {ssh!r}: {error}") from error
    if not words:
        raise ConfigError("--ssh must be a command, got nothing")
    options = [word for name, value in _OPTIONS for word in ("-o", f"{name}={value}")]
    # `exec`, so that no shell stays between sshd and the agent.
    return [*words, "-T", *options, "--", host, f"exec {_quoted(python)} -m {_AGENT}"]


def _quoted(path: str) -> str:
    """Quote a path for the remote shell, which must still expand a leading "~/"."""
    return f"~/{shlex.quote(path[2:])}" if path.startswith("~/") and path != "~/" else shlex.quote(path)


def what_to_type(host: str) -> str:
    """Return what a user has to type on the storage host."""
    return (
        f"on {host}, in a checkout of version {__version__}, type: python3 -m venv .venv && "
        '.venv/bin/pip install --editable ".[images]" --editable ./benchmarks; then name it here by '
        "--storage-python PATH_OF_CHECKOUT/.venv/bin/python"
    )


def why_failed(
    host: str,
    python: str,
    status: int | None,
    complaint: str,
    heard: str = "it said nothing",
    *,
    ssh: str = "ssh",
) -> str:
    """Return the reason why there is no agent, with what to do about it.

    Args:
        host: the host as ssh knows it.
        python: Python on that host.
        status: exit status of ssh; None if it was still running.
        complaint: standard error of ssh and the agent.
        heard: the reason where nobody complained, such as a greeting of the remote shell in place
            of an answer.
        ssh: ssh with the user's options.
    """
    lines = [line.strip() for line in complaint.splitlines() if line.strip()]
    last = lines[-1] if lines else heard
    if status == _OF_SSH:
        return f"ssh must reach {host} without a password: {last}. Try `{ssh} -o BatchMode=yes {host} true`, or use --by-hand"
    if status in _NO_PROGRAM:
        return f"--storage-python must be a Python on {host}, got {python}: {last}; {what_to_type(host)}"
    if "No module named" in complaint:
        return f"{host} must have emlio and emlio-bench for {python}: {last}; {what_to_type(host)}"
    return f"the agent on {host} must start with {python}: {last} (exit status {status})"


class SshAgent:
    """An agent that ssh started. It ends with this object, and if this process is killed.

    Attributes:
        dialogue: the connection to it.
        greeting: its description of the storage host.
    """

    def __init__(self, command: Sequence[str], *, host: str, python: str, ssh: str = "ssh") -> None:
        """Start the agent, and wait until it has greeted.

        Args:
            command: result of `ssh_command`.
            host: the host as ssh knows it.
            python: Python on that host.
            ssh: ssh with the user's options, for errors.

        Raises:
            ConfigError: there is no agent, with the reason.
        """
        ours, theirs = socket.socketpair()
        with theirs, tempfile.TemporaryFile() as complaints:
            try:
                self._process = subprocess.Popen(
                    command, stdin=theirs.fileno(), stdout=theirs.fileno(), stderr=complaints, start_new_session=True
                )
            except OSError as error:
                ours.close()
                raise ConfigError(f"--ssh must name a program, got {command[0]}: {error.strerror}") from error
            theirs.close()
            self.dialogue = Dialogue(ours, name=host)
            try:
                self.greeting = self.dialogue.ask(Greet(), Greeting, _START_S)
            except ClosedError as error:
                self.close(patience_s=1.0)
                status = self._process.returncode
                raise ConfigError(
                    why_failed(host, python, status, _last_of(complaints), str(error), ssh=ssh)
                ) from error
            except BaseException:
                self.close()
                raise

    @property
    def pid(self) -> int:
        """Process id of ssh."""
        return self._process.pid

    def close(self, patience_s: float = _END_S) -> None:
        """End the agent, and wait until all it started has ended. A second call does nothing.

        Args:
            patience_s: the longest time until ssh is terminated.
        """
        self.dialogue.close()
        for wait_s, end in ((patience_s, self._process.terminate), (_TERMINATE_S, self._process.kill)):
            try:
                self._process.wait(wait_s)
            except subprocess.TimeoutExpired:
                end()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _last_of(complaints: IO[bytes]) -> str:
    complaints.seek(0, 2)
    complaints.seek(max(complaints.tell() - _COMPLAINT_BYTES, 0))
    return complaints.read().decode(errors="replace")
