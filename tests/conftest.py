"""What holds for every test: nothing it started is left when it ends.

Covers: threads, descriptors (sockets, files, pipes, eventfds) and child processes, compared before and after. Does not cover:
what a fixture of a wider scope holds; that was there before the test began.
"""

import gc
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import zmq

from emlio_testing.processes import fork_server, fork_server_pids, fresh_interpreters

_ENDING_S = 5.0
"""A thread that was told to end may take this long, on a machine whose cores are busy with other things."""


# A machine whose cores are busy with other things must not fail a test; pytest's own timeout ends one that hangs.
hypothesis.settings.register_profile("emlio", deadline=None)
hypothesis.settings.load_profile("emlio")


# What loaders learn of paths is kept for this process only, and for those it starts: not in the user's cache folder.
os.environ["EMLIO_CACHE"] = ""


# A shell's background and nohup leave signals ignored, and so they would be in every process that a test starts. One that
# this process handles has its default in a new program; workers that pytest starts end with it.
for _number in (signal.SIGHUP, signal.SIGQUIT):
    if signal.getsignal(_number) is signal.SIG_IGN or "PYTEST_XDIST_WORKER" in os.environ:
        signal.signal(_number, lambda *_: None)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Holdings:
    """What this process holds at one moment."""

    threads: frozenset[threading.Thread]
    descriptors: frozenset[tuple[str, str]]
    children: frozenset[str]


def _descriptors() -> frozenset[tuple[str, str]]:
    found: set[tuple[str, str]] = set()
    for number in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{number}")
        except OSError:
            continue  # the one that listed the folder
        if not target.startswith("/dev/nvidia"):  # a driver keeps what it opened, for as long as the process lives
            found.add((number, target))
    return frozenset(found)


def _children() -> frozenset[str]:
    found: set[str] = set()
    parents = [Path("/proc/self/task"), *(Path(f"/proc/{pid}/task") for pid in fork_server_pids())]
    for task in (task for parent in parents for task in parent.iterdir()):
        try:
            found.update((task / "children").read_text(encoding="ascii").split())
        except OSError:
            continue  # a thread that ended meanwhile
    return frozenset(found)


def _look() -> _Holdings:
    return _Holdings(threads=frozenset(threading.enumerate()), descriptors=_descriptors(), children=_children())


def _left(before: _Holdings) -> list[str]:
    now = _look()
    threads = sorted(f"thread {thread.name}" for thread in now.threads - before.threads)
    descriptors = sorted(f"descriptor {number} -> {target}" for number, target in now.descriptors - before.descriptors)
    children = sorted(f"process {child}" for child in now.children - before.children)
    return threads + descriptors + children


@pytest.fixture
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's cache folder, of this test alone."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder


@pytest.fixture(scope="session", autouse=True)
def pyzmq_has_what_it_keeps() -> None:
    """A thread and sockets that pyzmq makes for a process's first message without a copy: no test can give them back."""
    zmq.Frame(b"\0", copy=False)


@pytest.fixture(scope="session")
def cuda_has_what_it_keeps() -> None:
    """Pipes, sockets and files that CUDA opens when a process first uses a GPU: no test can give them back."""
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    if torch.cuda.is_available():
        torch.ones(8, 8, device="cuda").matmul(torch.ones(8, 8, device="cuda")).cpu()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--fresh-starts",
        action="store_true",
        help="start each daemon and rank as a new interpreter, as users do: slower, and what a fork shares cannot hide a defect",
    )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """One worker gets all files whose processes are forked from one with PyTorch, which takes seconds to import."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    @cache
    def forks(file: str) -> bool:
        path = config.rootpath / file
        return file.startswith("tests/e2e/") and "torch_starts" in path.read_text(encoding="utf-8")

    class FilesOfPyTorchTogether(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return "of PyTorch" if forks(file) else file

    return FilesOfPyTorchTogether(config, log)


@pytest.fixture(scope="session")
def forked_starts(pytestconfig: pytest.Config) -> Iterator[None]:
    """Daemons and ranks of tests are forked from a process that has imported what they need."""
    with nullcontext() if pytestconfig.getoption("--fresh-starts") else fork_server():
        yield


@pytest.fixture(scope="module")
def fresh_starts() -> Iterator[None]:
    """Each daemon and rank of the module is a new interpreter, as on a user's machine: its start is tested."""
    with fresh_interpreters():
        yield


@pytest.fixture(autouse=True)
def nothing_is_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail the test that leaves a thread, a descriptor or a process."""
    if request.node.get_closest_marker("gpu") is not None:
        request.getfixturevalue("cuda_has_what_it_keeps")
    before = _look()
    yield
    if not _left(before):
        return
    deadline = time.monotonic() + _ENDING_S
    for thread in set(threading.enumerate()) - before.threads:
        thread.join(max(deadline - time.monotonic(), 0))
    if _left(before):
        gc.collect()  # an error's trace may still refer to what was closed
    left = _left(before)
    if left:
        pytest.fail("left behind: " + "; ".join(left), pytrace=False)
