"""A mount's process that is killed, and cannot go: what it has open keeps the connection, and only its guard ends that.

The kernel does so to a thread that stores into a page which a reader waits for. Here this process has a copy of the descriptor.
"""

import ctypes
import errno
import os
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from emlio.files.mount import Agent
from emlio.files.mount.mounting import mounts_at
from emlio_testing.mounted_trees import MemorySource, MountedTree, mount_is_refused
from emlio_testing.processes import settles

_REFUSED = mount_is_refused()
pytestmark = [pytest.mark.skipif(bool(_REFUSED), reason=_REFUSED), pytest.mark.timeout(60)]

_PIDFD_GETFD = 438
_AGENT = """
import signal, sys
from contextlib import nullcontext
from emlio.cli.mount_guard import guarded
from emlio.files.mount import Agent
from emlio_testing.mounted_trees import MemorySource, MountedTree
tree = MountedTree({b"a": b"abc"})
source = MemorySource(tree)
source.opened.clear()
if sys.argv[2] == "without SIGCHLD":
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
with guarded() as guard, Agent(tree.tree, sys.argv[1], source) as agent:
    if sys.argv[2] != "without":
        guard(agent.mount.directory, agent.mount.number)
    print("mounted", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    made = tmp_path / "mounted"
    made.mkdir()
    yield made
    while mounts_at(str(made)):
        subprocess.run(["umount", "-l", made], check=False)


@contextmanager
def _started(folder: Path, how: str) -> Generator[subprocess.Popen[str]]:
    words = [sys.executable, "-c", _AGENT, str(folder), how]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as agent:
        assert agent.stdout is not None
        assert agent.stdout.readline() == "mounted\n"
        try:
            yield agent
        finally:
            agent.kill()


def _copied(process: int) -> int:
    """Return a copy of another process's descriptor of /dev/fuse."""
    (number,) = [int(one.name) for one in Path(f"/proc/{process}/fd").iterdir() if os.path.realpath(one) == "/dev/fuse"]
    pidfd = os.pidfd_open(process)
    try:
        copied = ctypes.CDLL(None, use_errno=True).syscall(_PIDFD_GETFD, pidfd, number, 0)
    finally:
        os.close(pidfd)
    if copied < 0:
        number = ctypes.get_errno()
        assert number in (errno.EPERM, errno.ENOSYS), os.strerror(number)
        pytest.skip(f"pidfd_getfd is refused here: {os.strerror(number)}")
    return int(copied)


@pytest.mark.parametrize(
    ("how", "signalled"),
    [("without", signal.SIGTERM), *(("guarded", one) for one in (signal.SIGTERM, signal.SIGKILL, signal.SIGQUIT))],
)
def test_a_reader_does_not_hang_where_the_killed_process_cannot_go(
    how: str, signalled: signal.Signals, folder: Path
) -> None:
    with _started(folder, how) as agent:
        (guard,) = psutil.Process(agent.pid).children()
        held = _copied(agent.pid)
        os.killpg(agent.pid, signalled)  # which ends the agent; its guard goes on
    try:
        words = [sys.executable, "-c", f"open({str(folder / 'a')!r}).read()"]
        with subprocess.Popen(words, stderr=subprocess.PIPE) as reader:
            try:
                if how == "guarded":
                    said = reader.communicate(timeout=10)[1].decode()
                    # The kernel says the second where the read was on its way to the process.
                    assert any(os.strerror(number) in said for number in (errno.ENOTCONN, errno.ECONNABORTED)), said
                else:
                    with pytest.raises(subprocess.TimeoutExpired):
                        reader.wait(2)
            finally:
                os.close(held)
            assert reader.wait(10) == 1, "it got an error"
    finally:
        assert settles(lambda: not guard.is_running(), 10)


@pytest.mark.parametrize("how", ["guarded", "without SIGCHLD"])
def test_a_guard_ends_with_its_mount_and_not_with_a_terminals_signals(how: str, folder: Path) -> None:
    with _started(folder, how) as agent:
        (guard,) = psutil.Process(agent.pid).children()
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
            guard.send_signal(number)
        assert agent.stdin is not None
        assert guard.is_running()
        agent.stdin.close()
        assert agent.wait(10) == 0
    assert not guard.is_running()
    assert not mounts_at(str(folder))


@pytest.mark.parametrize("hides", [False, True])
def test_another_mount_there_stays_where_a_process_is_killed(hides: bool, folder: Path) -> None:
    """Also where it has the numbers of the killed one's, which was unmounted while that stood still."""
    with _started(folder, "guarded") as killed:
        if not hides:
            os.kill(killed.pid, signal.SIGSTOP)
            assert not ctypes.CDLL(None).umount2(os.fsencode(folder), 0)
        (guard,) = psutil.Process(killed.pid).children()
        tree = MountedTree({b"a": b"abc"})
        with Agent(tree.tree, folder, MemorySource(tree)):
            killed.kill()
            assert killed.wait(10) == -signal.SIGKILL
            assert settles(lambda: not guard.is_running(), 10)
            assert (folder / "a").read_bytes() == b"abc"


def test_a_mount_that_another_one_hides_is_there_again_after_that(folder: Path) -> None:
    first, second = MountedTree({b"a": b"first"}), MountedTree({b"a": b"second"})
    with Agent(first.tree, folder, MemorySource(first)) as hidden:
        with Agent(second.tree, folder, MemorySource(second)):
            assert (folder / "a").read_bytes() == b"second"
            assert hidden.mount.is_mounted
        assert hidden.mount.is_mounted
        assert (folder / "a").read_bytes() == b"first"
    assert os.listdir(folder) == []
    assert not hidden.mount.is_mounted
