"""`emlio run`: a command that sees datasets as directories, each served by a process of its own."""

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import pairwise

from emlio.cli.key_folder import add_example
from emlio.cli.mount_options import MountOptions, add_mount_flags, checked_directory, options_of
from emlio.cli.own_namespace import end_with_parent, enter_own_namespace
from emlio.energy.job.command import run_command
from emlio.errors import ConfigError, EmlioError

__all__ = ["HELP", "add_arguments", "run"]

HELP = (
    "Run a command that sees the files of datasets at directories, read-only. No other process sees them where the "
    "system allows a namespace of its own, so no root is needed."
)

_EXAMPLE = """\
example:
  emlio run emlio://store1:5555/imagenet=/mnt/imagenet -- python train.py /mnt/imagenet
  emlio run --order sequential emlio://store1:5555/photos=photos -- tar -cf photos.tar photos

exit status: that of the command; 128 plus the signal's number if a signal ended it; 2 or 127 if it was not started
"""

_NOT_FOUND = 127
_END_S = 40.0
_KILL_S = 5.0
_LOOK_S = 0.01
_SOCKETS = "EMLIO_FILES_SOCKETS"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_mount_flags(parser)
    parser.add_argument(
        "words",
        metavar="ADDRESS=DIR",
        nargs=argparse.REMAINDER,
        help="datasets and the directories, which must exist, where the command sees them; then -- and the command",
    )
    parser.usage = "emlio run [OPTION ...] ADDRESS=DIR [ADDRESS=DIR ...] -- COMMAND [ARGUMENT ...]"
    add_example(parser, _EXAMPLE)


def run(arguments: argparse.Namespace) -> int:
    """Mount, run the command, unmount, and return its status."""
    mounts, words = _split(arguments.words)
    options = options_of(arguments)
    signal.signal(
        signal.SIGCHLD, signal.SIG_DFL
    )  # where it is ignored, as a parent may have left it, no child is waited for
    enter_own_namespace()
    with tempfile.TemporaryDirectory(prefix="emlio-run-", ignore_cleanup_errors=True) as sockets:
        environment = {**os.environ, _SOCKETS: sockets}
        agents: dict[int, int] = {}
        try:
            for address, directory in mounts:
                _start(address, directory, options, environment, agents)
            if not all(os.read(ready, 1) for ready in agents.values()):
                return 2  # the agent has told why
            with suppress(OSError):
                os.chdir(os.getcwd())  # what is mounted over it
            if shutil.which(words[0]) is None:  # now: it may be one of the files
                print(f"emlio run: error: the command is not an executable program: {words[0]}", file=sys.stderr)
                return _NOT_FOUND
            status = run_command(words, environment)
        finally:
            _end(agents)
    return status if status >= 0 else 128 - status


def _split(words: Sequence[str]) -> tuple[list[tuple[str, str]], list[str]]:
    """Return addresses and directories, and the command."""
    if "--" not in words or words[0] == "--" or words[-1] == "--":
        raise ConfigError("expected ADDRESS=DIR, then -- and a command, got " + (" ".join(words) or "nothing"))
    mark = words.index("--")
    mounts: list[tuple[str, str]] = []
    for word in words[:mark]:
        address, _, directory = word.rpartition("=")
        if not address or word.startswith("-"):
            raise ConfigError(f"expected ADDRESS=DIR after all options and before --, got {word!r}")
        mounts.append((address, checked_directory(directory)))
    places = sorted(os.path.join(os.path.realpath(directory), "") for _, directory in mounts)
    for place, below in pairwise(places):
        if below.startswith(place):
            raise ConfigError(f"no DIR may be another one or lie below it, got {place} and {below}")
    return mounts, list(words[mark + 1 :])


def _start(
    address: str, directory: str, options: MountOptions, environment: Mapping[str, str], agents: dict[int, int]
) -> None:
    """Start a process that serves a mount, and note what tells that it is ready.

    It is forked: a program that an ordinary user starts by exec has no right to mount.
    """
    parent, (ready, told) = os.getpid(), os.pipe()
    pid = os.fork()
    if pid:
        os.close(told)
        agents[pid] = ready
        return
    status = 2
    try:
        os.setsid()  # a terminal's signals are for the command
        end_with_parent(parent)
        os.environ.update(environment)
        nowhere = os.open(os.devnull, os.O_RDWR)
        os.dup2(nowhere, 0)
        os.dup2(nowhere, 1)
        from emlio.cli.mount import serve_mount  # here: it loads what starts threads

        serve_mount(address, directory, options, lambda _: os.write(told, b"1"))
        with suppress(OSError):
            os.rmdir(environment[_SOCKETS])  # the last of all: also where this process's parent was killed
        status = 0
    except EmlioError as error:
        print(f"emlio run: error: {error}", file=sys.stderr)
    except BaseException as error:  # noqa: BLE001  # this process must not go on as its parent
        print(f"emlio run: error: the agent of {directory}: {error!r}", file=sys.stderr)
    finally:
        sys.stderr.flush()
        os._exit(status)


def _end(agents: Mapping[int, int]) -> None:
    """End all agents, which unmount; kill those that do not end."""
    for pid, ready in agents.items():
        os.close(ready)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    until = time.monotonic() + _END_S
    for pid in agents:
        while not os.waitpid(pid, os.WNOHANG)[0]:
            late_s = time.monotonic() - until
            if late_s > _KILL_S:
                break
            if late_s > 0:
                os.kill(pid, signal.SIGKILL)
            time.sleep(_LOOK_S)
