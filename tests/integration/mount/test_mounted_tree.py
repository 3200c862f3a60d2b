"""A mounted tree beside the same tree in memory: what each call returns."""

import ctypes
import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emlio.errors import ClosedError, FileError
from emlio.files.mount import Mount
from emlio.files.mount.source import RangesRead
from emlio.store.file_table import NameTable
from emlio_testing.file_reader import WAYS, FileReader
from emlio_testing.mounted_trees import MTIME_NS, Link, MemorySource, MountedTree, Sparse, mount_is_refused, read_of

pytestmark = [
    pytest.mark.skipif(bool(mount_is_refused()), reason=mount_is_refused()),
    pytest.mark.timeout(60),
]

PAGE = 4096


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "mounted"
    made.mkdir()
    return made


_NAME = st.binary(min_size=1, max_size=12).filter(lambda name: not {0, 47} & set(name) and name not in (b".", b".."))
_BYTES = st.one_of(
    st.binary(max_size=50),
    st.integers(0, 3 * PAGE).map(lambda size: np.random.default_rng(size).bytes(size)),
)
_CONTENT = st.one_of(
    st.none(),
    _BYTES,
    st.builds(Link, st.binary(min_size=1, max_size=60).filter(lambda target: 0 not in target)),
    st.builds(Sparse, st.integers(0, 1 << 40)),
)


@st.composite
def _trees(draw: st.DrawFn) -> MountedTree:
    content: dict[bytes, Any] = {}
    folders = [b""]
    for _ in range(draw(st.integers(0, 14))):
        above = draw(st.sampled_from(folders))
        path = above + b"/" + draw(_NAME) if above else draw(_NAME)
        if path not in content:
            content[path] = draw(_CONTENT)
            if content[path] is None:
                folders.append(path)
    modes = {path: draw(st.sampled_from([0o444, 0o400, 0o555])) for path in content if isinstance(content[path], bytes)}
    return MountedTree(content, modes)


def _same_entry(tree: MountedTree, number: int, found: os.stat_result) -> None:
    held = tree.content[number]
    assert found.st_ino == number + 1
    assert found.st_mode == int(tree.tree.modes[number])
    assert found.st_size == (len(held.target) if isinstance(held, Link) else tree.size(number))
    assert found.st_mtime_ns == found.st_ctime_ns == MTIME_NS + number
    assert (found.st_uid, found.st_gid) == (os.getuid(), os.getgid())
    assert found.st_blocks == (found.st_size + 511) // 512


def _same_tree(tree: MountedTree, root: bytes) -> None:
    seen = {b""}
    for place, folders, files in os.walk(root):
        with os.scandir(place) as listed:
            for entry in listed:
                path = entry.path[len(root) + 1 :]
                number = tree.numbers[path]
                seen.add(path)
                _same_entry(tree, number, entry.stat(follow_symlinks=False))
                held = tree.content[number]
                assert entry.is_symlink() == isinstance(held, Link)
                assert entry.inode() == number + 1
                if isinstance(held, Link):
                    assert os.readlink(entry.path) == held.target
        assert len(set(folders)) + len(set(files)) == len(os.listdir(place))
    assert seen == set(tree.paths)


@pytest.fixture(scope="module")
def reader() -> Iterator[FileReader]:
    with FileReader() as made:
        yield made


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_trees(), st.data())
def test_a_mount_is_the_tree(folder: Path, reader: FileReader, tree: MountedTree, data: st.DataObject) -> None:
    root = os.fsencode(folder)
    with Mount(tree.tree, folder, MemorySource(tree)):
        _same_tree(tree, root)
        for _ in range(data.draw(st.integers(0, 12)) if tree.files else 0):
            number = data.draw(st.sampled_from(tree.files))
            offset = data.draw(st.one_of(st.integers(0, 3 * PAGE), st.integers(0, max(tree.size(number), 1))))
            size = data.draw(st.one_of(st.integers(1, 64), st.integers(1, 3 * PAGE)))
            way = data.draw(st.sampled_from(sorted(WAYS)))
            read = reader.read(way, root + b"/" + tree.paths[number], offset, size)
            assert read == tree.read(number, offset, size), (way, number, offset, size)
    assert os.listdir(folder) == []


@pytest.fixture
def small(folder: Path) -> Iterator[tuple[MountedTree, Path, Mount]]:
    content = {b"file": b"content", b"folder/inner": b"", b"link": Link(b"file"), b"run": b"#!/bin/sh\nexit 3\n"}
    tree = MountedTree(content, {b"run": 0o555})
    with Mount(tree.tree, folder, MemorySource(tree)) as mount:
        yield tree, folder, mount


_WRITES: list[Callable[[Path], object]] = [
    lambda root: os.open(root / "file", os.O_RDWR),
    lambda root: (root / "new").write_bytes(b""),
    lambda root: (root / "file").unlink(),
    lambda root: (root / "file").rename(root / "other"),
    lambda root: (root / "file").chmod(0o600),
    lambda root: os.truncate(root / "file", 0),
    lambda root: os.utime(root / "file"),
    lambda root: (root / "folder").rmdir(),
    lambda root: (root / "more").mkdir(),
    lambda root: (root / "more").symlink_to("file"),
    lambda root: os.link(root / "file", root / "more"),
    lambda root: os.mkfifo(root / "more"),
    lambda root: os.chown(root / "file", 0, 0),
    lambda root: os.setxattr(root / "file", "user.x", b"1"),
    lambda root: os.open(root, os.O_TMPFILE | os.O_RDWR),
]


@pytest.mark.parametrize("write", range(len(_WRITES)))
def test_what_writes_is_refused(write: int, small: tuple[MountedTree, Path, Mount]) -> None:
    with pytest.raises(OSError) as refused:  # noqa: PT011  # the errno is checked
        _WRITES[write](small[1])
    assert refused.value.errno == errno.EROFS


def test_what_is_not_there_is_told(small: tuple[MountedTree, Path, Mount]) -> None:
    _, root, _ = small
    for name, number in [("no", errno.ENOENT), ("file/no", errno.ENOTDIR), ("n" * 256, errno.ENAMETOOLONG)]:
        for _ in range(2):  # that there is none is kept
            with pytest.raises(OSError) as told:  # noqa: PT011
                os.stat(root / name)
            assert told.value.errno == number
    with pytest.raises(OSError) as told:  # noqa: PT011
        os.getxattr(root / "file", "user.x")
    assert told.value.errno in (errno.EOPNOTSUPP, errno.ENODATA)
    with pytest.raises(IsADirectoryError):
        os.pread(descriptor := os.open(root / "folder", os.O_RDONLY), 1, 0)
    os.close(descriptor)
    assert os.access(root / "file", os.R_OK)
    assert not os.access(root / "file", os.W_OK)
    assert not os.access(root / "file", os.X_OK)
    assert subprocess.run([root / "run"], check=False).returncode == 3
    found = os.statvfs(root)
    assert found.f_files == 6
    assert found.f_namemax == 255
    assert found.f_flag & os.ST_RDONLY


def test_an_open_file_or_folder_costs_no_request(small: tuple[MountedTree, Path, Mount]) -> None:
    _, root, mount = small
    path = root / "file"
    requests = []
    for _ in range(3):
        os.listdir(root)
        assert os.stat(path).st_size == 7
        descriptor = os.open(path, os.O_RDONLY)
        assert os.read(descriptor, 100) == b"content"
        os.close(descriptor)
        requests.append(mount.counts().requests)
    assert requests[1] == requests[2]


def test_a_read_that_the_source_cannot_answer_fails_and_is_asked_again(folder: Path) -> None:
    tree = MountedTree({b"bad": b"b" * 100, b"good": b"g" * 100})
    source = MemorySource(tree, failing={tree.numbers[b"bad"]})
    with Mount(tree.tree, folder, source):
        for _ in range(2):
            with pytest.raises(OSError, match="Input/output"):
                (folder / "bad").read_bytes()
        assert (folder / "good").read_bytes() == b"g" * 100
        source.failing.clear()
        assert (folder / "bad").read_bytes() == b"b" * 100


class _WrongSize:
    def __init__(self, by: int) -> None:
        self.by = by

    def read_ranges(self, _files: Any, _offsets: Any, lengths: Any) -> Iterator[RangesRead]:
        yield read_of([b"x" * (length + self.by) for length in lengths.tolist()])


class _Raises:
    def read_ranges(self, *_: Any) -> Iterator[RangesRead]:
        raise RuntimeError("the source is broken")


@pytest.mark.parametrize("source", [_WrongSize(-1), _WrongSize(1), _Raises()])
def test_bytes_that_are_too_few_are_never_zeros(source: Any, folder: Path) -> None:
    tree = MountedTree({b"file": b"content", b"large": b"l" * 50_000})
    with Mount(tree.tree, folder, source):
        for name in ("file", "large"):
            with pytest.raises(OSError, match="Input/output"):
                (folder / name).read_bytes()


def test_many_threads_read_the_same_and_other_files(folder: Path) -> None:
    random = np.random.default_rng(1)
    tree = MountedTree(
        {b"d%d/%04d" % (number % 7, number): random.bytes(number * 37 % 20_000) for number in range(400)}
    )
    with Mount(tree.tree, folder, MemorySource(tree)), ThreadPoolExecutor(16) as pool:

        def read(seed: int) -> bool:
            for number in np.random.default_rng(seed).permutation(np.array(tree.files)).tolist():
                path = os.fsencode(folder) + b"/" + tree.paths[number]
                with open(path, "rb") as file:
                    if file.read() != tree.content[number]:
                        return False
            return True

        assert all(pool.map(read, [seed % 5 for seed in range(16)]))


def test_odd_names_and_many_and_deep_entries(folder: Path) -> None:
    deep = b"/".join([b"d" * 200] * 15)
    content: dict[bytes, Any] = {b"many/%d" % number: b"" for number in range(100_000)}
    content |= {deep + b"/file": b"deep", b"\xff\xfe\x80": b"odd", b"n" * 255: b"long", b" \n\t'\"*?\\": b"signs"}
    tree = MountedTree(content)
    root = os.fsencode(folder)
    with Mount(tree.tree, folder, MemorySource(tree)):
        assert sorted(os.listdir(root + b"/many")) == sorted(b"%d" % number for number in range(100_000))
        assert os.listdir(root) == [path for path in tree.paths[1:] if b"/" not in path]
        for path in (deep + b"/file", b"\xff\xfe\x80", b"n" * 255, b" \n\t'\"*?\\"):
            assert Path(os.fsdecode(root + b"/" + path)).read_bytes() == content[path]


def test_a_folder_is_listed_on_from_where_it_was_left(folder: Path) -> None:
    tree = MountedTree({b"%05d" % number: b"" for number in range(5000)})
    libc = ctypes.CDLL(None, use_errno=True)
    with Mount(tree.tree, folder, MemorySource(tree)):
        with os.scandir(folder) as listed:
            first = [next(listed).name for _ in range(1234)]
            rest = [entry.name for entry in listed]
        assert [name.encode() for name in first + rest] == tree.paths[1:]
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        buffer = ctypes.create_string_buffer(4096)
        seen = libc.syscall(217 if os.uname().machine == "x86_64" else 61, descriptor, buffer, 4096)
        os.lseek(descriptor, 0, os.SEEK_SET)
        assert seen > 0
        assert sorted(os.listdir(descriptor)) == [path.decode() for path in tree.paths[1:]]
        os.close(descriptor)


def test_trees_that_cannot_be_are_refused_and_nothing_stays_mounted(folder: Path) -> None:
    good = MountedTree({b"a/b": b"1", b"l": Link(b"a")}).tree
    twice = replace(good, names=NameTable.of(["", "a", "a", "b"]))
    wrong = [
        replace(good, names=NameTable.of(["", "a", "l" * 256, "b"])),
        replace(good, sizes=np.array([2, 1, 0, 1]), targets=np.empty(0, np.uint8)),
        replace(good, sizes=np.array([2, 1, 4096, 1]), targets=np.full(4096, ord("a"), np.uint8)),
        replace(good, targets=np.zeros(1, np.uint8)),
        twice,
    ]
    for tree in wrong:
        with pytest.raises(FileError) as refused:
            Mount(tree, folder, MemorySource(MountedTree({})))
        assert refused.value.errno == (errno.EEXIST if tree is twice else errno.EINVAL)
        assert os.listdir(folder) == []
    with Mount(good, folder, MemorySource(MountedTree({b"a/b": b"1", b"l": Link(b"a")}))):
        assert os.listdir(folder) == ["a", "l"]


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    tree = MountedTree({})
    with pytest.raises(FileError) as refused:
        Mount(tree.tree, tmp_path / "no", MemorySource(tree))
    assert refused.value.errno == errno.ENOENT


def test_a_closed_mount_is_gone(folder: Path) -> None:
    tree = MountedTree({b"file": b"content"})
    mount = Mount(tree.tree, folder, MemorySource(tree))
    (folder / "file").read_bytes()
    mount.close()
    mount.close()
    assert mount.is_closed
    assert os.listdir(folder) == []
    assert mount.counts().missed == 1
    with pytest.raises(ClosedError):
        mount.drop(np.array([1]), np.array([0]), PAGE)


def test_programs_of_others_read_it(small: tuple[MountedTree, Path, Mount]) -> None:
    root = small[1]
    packed = subprocess.run(["tar", "cf", "-", "-C", root, "."], capture_output=True, check=True).stdout
    assert b"content" in packed
    found = subprocess.run(["grep", "-r", "content", root], capture_output=True, text=True, check=True).stdout
    assert found.splitlines() == [f"{root}/file:content"]
    program = "import sys, numpy; print(numpy.fromfile(sys.argv[1], 'u1').tobytes().decode())"
    read = subprocess.run([sys.executable, "-c", program, root / "file"], capture_output=True, text=True, check=True)
    assert read.stdout == "content\n"
