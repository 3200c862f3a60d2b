"""Agents that push ahead: windows, sequences, an agent that is killed, an ordinary user."""

import ctypes
import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from emlio.files.mount import Agent
from emlio.files.mount.mounting import mounts_at
from emlio.native.fuse import FuseSession
from emlio_testing.mounted_trees import MemorySource, MountedTree, Sparse, mount_is_refused
from emlio_testing.processes import settles

_REFUSED = mount_is_refused()
pytestmark = [pytest.mark.skipif(bool(_REFUSED), reason=_REFUSED), pytest.mark.timeout(60)]

PAGE = 4096


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    made = tmp_path / "mounted"
    made.mkdir()
    yield made
    if mounts_at(str(made)):
        subprocess.run(["umount", "-l", made], check=False)
        pytest.fail("it is still mounted")


def _many(count: int, size: int = 1000) -> MountedTree:
    random = np.random.default_rng(0)
    return MountedTree({b"%d/%06d" % (number % 10, number): random.bytes(size) for number in range(count)})


def _path(folder: Path, tree: MountedTree, number: int) -> Path:
    return folder / os.fsdecode(tree.paths[number])


_AGENT = """
import sys, time
import numpy as np
from emlio.files.mount import Agent
from emlio_testing.processes import settles
from emlio_testing.mounted_trees import MemorySource, MountedTree
tree = MountedTree({b"%05d" % number: b"%d" % number * 500 for number in range(3000)})
source = MemorySource(tree)
with Agent(tree.tree, sys.argv[1], source, window_bytes=8 << 20) as agent:
    agent.hint(np.array(tree.files))
    print("mounted", flush=True)
    if "waits" in sys.argv:
        source.opened.clear()
    time.sleep(60)
"""


def _agent(folder: Path, *more: str) -> subprocess.Popen[str]:
    made = subprocess.Popen([sys.executable, "-c", _AGENT, folder, *more], stdout=subprocess.PIPE, text=True)
    assert made.stdout is not None
    assert made.stdout.readline() == "mounted\n"
    return made


@pytest.mark.parametrize("more", [(), ("waits",)])
def test_an_agent_that_is_killed_leaves_errors_and_nothing_that_hangs(more: tuple[str, ...], folder: Path) -> None:
    agent = _agent(folder, *more)
    ends = Event()

    def read() -> set[int | None]:
        seen = set[int | None]()
        while not ends.is_set() or len(seen) < 1:
            for number in range(0, 3000, 7):
                try:
                    assert (folder / f"{number:05}").read_bytes() == b"%d" % number * 500
                except OSError as error:
                    seen.add(error.errno)
                    if ends.is_set():
                        return seen
        return seen

    try:
        with ThreadPoolExecutor(4) as pool:
            reads = [pool.submit(read) for _ in range(4)]
            time.sleep(0.3)
            agent.kill()
            assert agent.wait(10) == -signal.SIGKILL
            ends.set()
            for one in reads:
                assert one.result(20) <= {errno.ENOTCONN, errno.ECONNABORTED, errno.EIO}
        with pytest.raises(OSError) as gone:  # noqa: PT011
            os.stat(folder / "not looked up before")
        assert gone.value.errno == errno.ENOTCONN
    finally:
        agent.kill()
        agent.communicate()
        subprocess.run(["umount", "-l", folder], check=True)
    assert os.listdir(folder) == []


def test_closing_waits_for_calls_of_threads_that_push(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree, real, freed, begun = _many(1000), FuseSession.push, list[bool](), Event()

    def late(session: FuseSession, *given: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
        begun.set()
        time.sleep(0.3)  # as a thread that is not scheduled
        freed.append(session._session is None)
        return np.zeros(0, np.int32) if freed[-1] else real(session, *given)

    monkeypatch.setattr(FuseSession, "push", late)
    with Agent(tree.tree, folder, MemorySource(tree)) as agent:
        agent.hint(np.array(tree.files))
        assert begun.wait(10)
    assert freed
    assert not any(freed)


@pytest.mark.parametrize("window_mib", [8, 16])
def test_memory_and_window_are_bounded_while_large_files_are_read(window_mib: int, folder: Path) -> None:
    tree = MountedTree({b"%d" % number: Sparse(60 << 20) for number in range(3)})
    source = MemorySource(tree)
    with Agent(tree.tree, folder, source, window_bytes=window_mib << 20) as agent:
        agent.hint(np.array(tree.files))
        most = 0
        for number in tree.files:
            with _path(folder, tree, number).open("rb") as file:
                for offset in range(0, 60 << 20, 1 << 20):
                    assert file.read(1 << 20) == tree.read(number, offset, 1 << 20)
                    most = max(most, agent.held_bytes)
        assert most <= window_mib << 20
        assert _cached_bytes(_path(folder, tree, tree.files[0])) == 0
        assert _cached_bytes(_path(folder, tree, tree.files[1])) == 0
        pushed = agent.mount.counts().stored_bytes
    assert pushed > 100 << 20


def _cached_bytes(path: Path) -> int:
    """How many bytes of a file the page cache has."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    size = path.stat().st_size
    descriptor = os.open(path, os.O_RDONLY)
    try:
        address = libc.mmap(None, size, 1, 1, descriptor, 0)
        pages = (ctypes.c_ubyte * -(-size // PAGE))()
        assert libc.mincore(ctypes.c_void_p(address), ctypes.c_size_t(size), pages) == 0
        libc.munmap(ctypes.c_void_p(address), ctypes.c_size_t(size))
        return sum(page & 1 for page in pages) * PAGE
    finally:
        os.close(descriptor)


def test_pages_of_files_that_stay_open_are_freed_though_the_kernel_is_to_forget_them(folder: Path) -> None:
    tree = _many(400, 60_000)
    with Agent(tree.tree, folder, MemorySource(tree), window_bytes=8 << 20, max_files=0) as agent:
        agent.hint(np.array(tree.files))
        kept = [os.open(_path(folder, tree, number), os.O_RDONLY) for number in tree.files]
        try:
            for number, descriptor in zip(tree.files, kept, strict=True):
                assert os.read(descriptor, 60_000) == tree.content[number]
            assert settles(lambda: agent.mount.counts().forgotten >= 200, 10)
            assert settles(lambda: _all_cached(folder, tree) <= 8 << 20, 10), "and not all 24 MB"
        finally:
            for descriptor in kept:
                os.close(descriptor)


def test_what_a_late_reader_gets_is_freed_on_both_sides_where_the_kernel_reads_across_pieces(folder: Path) -> None:
    size = (1 << 20) + 60_000
    tree = MountedTree({b"%03d" % number: Sparse(size) for number in range(60)})
    with Agent(tree.tree, folder, MemorySource(tree), window_bytes=8 << 20) as agent:
        agent.hint(np.array(tree.files))
        for ahead in (True, False):  # the second one finds all but the last files gone
            for number in tree.files[: None if ahead else 40]:
                with _path(folder, tree, number).open("rb", buffering=16_384) as file:
                    while file.read(16_384):
                        pass
        assert any(one.offset % (1 << 20) + one.size > 1 << 20 for one in agent.mount._source.asked)
        # The window, which may be the second reader's now, has room for seven files and a part.
        late = [_path(folder, tree, number) for number in tree.files[: 40 - 8]]
        assert settles(lambda: sum(map(_cached_bytes, late)) <= 1 << 20, 10), (
            "an eighth of the window, and not all ends"
        )


def test_what_could_not_be_pushed_is_pushed_for_the_next_order(folder: Path) -> None:
    tree = _many(1000)
    source = MemorySource(tree)
    source.failing = set(tree.files)
    with Agent(tree.tree, folder, source, window_bytes=16 << 20) as agent:
        first = agent.hint(np.array(tree.files))
        assert settles(lambda: len(source.asked) >= 1000, 10)
        assert settles(lambda: not agent.held_bytes, 10)
        source.failing = set()
        agent.hint(np.array(tree.files)[::-1], instead_of=[first])
        assert settles(lambda: agent.held_bytes == 1000 * PAGE, 10)
        assert settles(lambda: agent.mount.counts().stored > 900, 10), (
            "all but tripwires; a page is held before it is stored"
        )


def _all_cached(folder: Path, tree: MountedTree) -> int:
    return sum(_cached_bytes(_path(folder, tree, number)) for number in tree.files)


def test_a_reader_of_a_sequence_is_found_and_pushed_to(folder: Path) -> None:
    tree = _many(2000)
    with Agent(tree.tree, folder, MemorySource(tree), window_bytes=8 << 20) as agent:
        for number in tree.files:
            assert _path(folder, tree, number).read_bytes() == tree.content[number]
        found = agent.mount.counts()
        assert found.missed < 500
        assert found.stored > 1500


def _has_missed(agent: Agent, least: int) -> bool:
    return agent.figures("").on_demand >= least


def test_a_folder_that_is_read_here_and_there_is_pushed_whole_if_it_fits(folder: Path) -> None:
    tree, missed, random = _many(4000), [], np.random.default_rng(1)
    for window_bytes in (32 << 20, 8 << 20):
        with Agent(tree.tree, folder, MemorySource(tree), window_bytes=window_bytes) as agent:
            for number in random.permutation(tree.files).tolist():
                assert _path(folder, tree, number).read_bytes() == tree.content[number]
            # A read is counted after it was answered.
            least = 4000 if window_bytes == 8 << 20 else 0
            settles(partial(_has_missed, agent, least), 5)
            figures = agent.figures("")
            missed.append(figures.on_demand)
            assert figures.orders == ()
            pushed = [(pool.pieces, pool.pushed) for pool in figures.pools]
            assert pushed == ([(4000, 4000)] if window_bytes == 32 << 20 else [])
            assert figures.held_bytes <= window_bytes
    assert missed[0] < 2000
    assert missed[1] == 4000


def test_a_pool_whose_pages_the_kernel_freed_is_pushed_again_as_is_an_order_of_its_files(folder: Path) -> None:
    tree, random = _many(4000), np.random.default_rng(1)
    with Agent(tree.tree, folder, MemorySource(tree), window_bytes=64 << 20) as agent:
        for told in (False, False, True):
            order, before = random.permutation(tree.files), agent.figures("").on_demand
            if told:
                agent.hint(order)
            for number in order.tolist():
                assert _path(folder, tree, number).read_bytes() == tree.content[number]
            assert agent.figures("").on_demand < before + 2000
            for number in tree.files:
                with _path(folder, tree, number).open("rb", buffering=0) as file:
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def test_two_folders_that_are_read_in_turn_do_not_replace_each_other_again_and_again(folder: Path) -> None:
    tree = MountedTree({b"%d/%04d" % (number % 2, number): bytes(16_000) for number in range(1600)})
    halves = [[number for number in tree.files if tree.paths[number][:1] == name] for name in (b"0", b"1")]
    random = np.random.default_rng(1)
    with Agent(tree.tree, folder, MemorySource(tree), window_bytes=16 << 20) as agent:
        for turn in range(30):
            for number in random.choice(halves[turn % 2], 20).tolist():
                assert _path(folder, tree, number).read_bytes() == tree.content[number]
                time.sleep(0.001)
        figures = agent.figures("")
        assert len(figures.pools) == 1
        # Reads of what is there are not seen: if all of it was there soon, 200 of the 300 reads elsewhere replace it, once.
        assert figures.pushed_bytes <= 2 * 800 * 16_384


def test_large_files_that_are_read_here_and_there_are_pushed_once(folder: Path) -> None:
    tree, random = MountedTree({b"%d" % number: Sparse(1_500_000) for number in range(40)}), np.random.default_rng(1)
    with Agent(tree.tree, folder, MemorySource(tree), window_bytes=128 << 20) as agent:
        for _ in range(3):
            before = agent.figures("").pushed_bytes
            for number in random.permutation(tree.files).tolist():
                assert len(_path(folder, tree, number).read_bytes()) == 1_500_000
                time.sleep(0.005)
        figures = agent.figures("")
        assert figures.pushed_bytes - before < 60_000_000
        kept = [
            *figures.pools,
            *figures.orders,
        ]  # the parts of files that follow each other may be taken for a sequence
        assert 80 in [one.pushed for one in kept]
        assert agent.held_bytes == 40 * (1 << 20) + 40 * 111 * 4096


def test_a_sequence_that_did_not_go_on_does_not_hide_that_files_are_read_here_and_there(folder: Path) -> None:
    tree, random = _many(4000), np.random.default_rng(1)
    with Agent(tree.tree, folder, MemorySource(tree), window_bytes=20 << 20) as agent:
        for number in [*tree.files[:8], *random.permutation(tree.files).tolist()]:
            assert _path(folder, tree, number).read_bytes() == tree.content[number]
        figures = agent.figures("")
        assert [pool.pushed for pool in figures.pools] == [4000]
        assert figures.orders == ()
        assert figures.on_demand < 2000


@pytest.mark.parametrize("max_files", [0, 1000, 10_000])
def test_files_behind_a_reader_are_forgotten_where_they_are_too_many(max_files: int, folder: Path) -> None:
    tree = _many(5000)
    random = np.random.default_rng(max_files)
    with Agent(tree.tree, folder, MemorySource(tree), window_bytes=8 << 20, max_files=max_files) as agent:
        for _ in range(2):
            order = random.permutation(tree.files)
            name = agent.hint(order)
            for number in order.tolist():
                assert _path(folder, tree, number).read_bytes() == tree.content[number]
            agent.forget(name)
        expected = {0: 5000, 1000: 4000, 10_000: 0}[max_files]  # in folders of 500
        assert settles(lambda: expected // 2 <= agent.mount.counts().forgotten <= 4 * expected, 20)
        assert settles(lambda: agent.held_bytes == 0, 20)


def test_a_reader_of_a_known_order_asks_the_kernel_for_little(folder: Path) -> None:
    tree = _many(2000)
    with Agent(tree.tree, folder, MemorySource(tree), window_bytes=64 << 20) as agent:
        agent.hint(np.array(tree.files))
        pushed = len(tree.files) - len(tree.files) // 64 - 2
        assert settles(lambda: agent.mount.counts().stored >= pushed, 20)
        paths = [_path(folder, tree, number) for number in tree.files]
        list(map(os.stat, paths))  # each is known, whether it was listed or pushed first
        before = agent.mount.counts()
        for path in paths:
            descriptor = os.open(path, os.O_RDONLY)
            assert os.fstat(descriptor).st_size == len(os.read(descriptor, 1 << 20)) == 1000
            os.close(descriptor)
        after = agent.mount.counts()
        assert after.missed == before.missed
        assert after.requests - before.requests <= len(paths) // 64 + 2  # of tripwires


def test_what_an_order_pushes_is_not_freed_with_the_order_before(folder: Path) -> None:
    """Epoch after epoch has an order of its own, of the same files."""
    tree, random, name = _many(4000), np.random.default_rng(0), 0
    with Agent(tree.tree, folder, MemorySource(tree)) as agent:
        subprocess.run(["find", folder], stdout=subprocess.DEVNULL, check=True)
        missed: list[int] = []
        for _ in range(4):
            order = random.permutation(tree.files)
            name = agent.hint(order, instead_of=[name])
            before = agent.mount.counts().missed
            for number in order.tolist():
                assert _path(folder, tree, number).read_bytes() == tree.content[number]
            missed.append(agent.mount.counts().missed - before)
    assert sorted(missed)[2] < 400, missed


def test_an_ordinary_user_mounts_in_a_namespace_of_its_own(folder: Path) -> None:
    if subprocess.run(["unshare", "-Urm", "true"], check=False, stderr=subprocess.DEVNULL).returncode:
        pytest.skip("user namespaces are not allowed here")
    program = _AGENT.replace("time.sleep(60)", "print(open(sys.argv[1] + '/00007').read() == '7' * 500)")
    done = subprocess.run(
        ["unshare", "-Urm", sys.executable, "-c", program, folder],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert done.stdout == "mounted\nTrue\n", done.stderr
