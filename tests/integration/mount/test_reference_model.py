"""A tree in memory beside the same tree mounted and read with `Files`: what each call returns, whatever was called before."""

import errno
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from emlio.files import Files
from emlio.files.mount import Agent
from emlio.store.folder import Kind
from emlio_testing.file_reader import WAYS, FileReader
from emlio_testing.mounted_trees import Link, mount_is_refused
from emlio_testing.serving import served

pytestmark = [
    pytest.mark.skipif(bool(mount_is_refused()), reason=mount_is_refused()),
    pytest.mark.timeout(300),
]

_LINKS: Final = 40
"""On a way; the kernel follows no more."""

Content = Mapping[bytes, "bytes | Link | None"]


class EscapeError(Exception):
    """A path leads out of the tree."""


class Model:
    """The reference: paths and what is there; None is a folder."""

    def __init__(self, content: Content) -> None:
        self.content = dict(content)
        for path in content:
            while path := path.rpartition(b"/")[0]:
                self.content.setdefault(path, None)
        self.content[b""] = None

    def find(self, path: bytes, *, follow: bool = True) -> bytes:
        """Return the path of an entry without links and dots."""
        waiting, here, links = path.split(b"/")[::-1], b"", 0
        while waiting:
            part = waiting.pop()
            if self.content[here] is not None:
                raise OSError(errno.ENOTDIR, path)
            if part == b"..":
                if not here:
                    raise EscapeError
                here = here.rpartition(b"/")[0]
            elif part not in (b"", b"."):
                there = here + b"/" + part if here else part
                if there not in self.content:
                    raise OSError(errno.ENOENT, path)
                found = self.content[there]
                if isinstance(found, Link) and (follow or waiting):
                    links += 1
                    if links > _LINKS:
                        raise OSError(errno.ELOOP, path)
                    waiting += found.target.split(b"/")[::-1]
                else:
                    here = there
        return here

    def names(self, folder: bytes) -> list[bytes]:
        """Return the names in a folder."""
        begin = folder + b"/" if folder else b""
        below = [path.removeprefix(begin) for path in self.content if path and path.startswith(begin)]
        return sorted(name for name in below if b"/" not in name)

    def stat(self, path: bytes, *, follow: bool) -> tuple[str, int]:
        found = self.content[there := self.find(path, follow=follow)]
        if isinstance(found, Link):
            return "link", len(found.target)
        return ("folder", len(self.names(there))) if found is None else ("file", len(found))

    def listdir(self, path: bytes) -> list[bytes]:
        if self.content[found := self.find(path)] is not None:
            raise OSError(errno.ENOTDIR, path)
        return self.names(found)

    def readlink(self, path: bytes) -> bytes:
        found = self.content[self.find(path, follow=False)]
        if not isinstance(found, Link):
            raise OSError(errno.EINVAL, path)
        return found.target

    def read(self, path: bytes, offset: int, size: int) -> bytes:
        found = self.content[self.find(path)]
        if not isinstance(found, bytes):
            raise OSError(errno.EISDIR, path)
        return found[offset : offset + size]

    def refusal(self, call: str, path: bytes) -> int:
        """Return why a call that writes is refused."""
        try:
            above, _, _ = path.rpartition(b"/")
            parent = self.find(above)
            if self.content[parent] is not None:
                return errno.ENOTDIR
            if call in ("unlink", "rename"):
                return errno.EROFS
            if call == "mkdir":
                self.find(path, follow=False)
                return errno.EEXIST
            there = self.content[self.find(path)]
        except OSError as error:
            is_new = error.errno == errno.ENOENT and call == "mkdir" and self._is_there(above)
            return errno.EROFS if is_new else error.errno or 0
        return errno.EISDIR if there is None and call in ("open", "truncate") else errno.EROFS

    def _is_there(self, path: bytes) -> bool:
        try:
            self.find(path)
        except OSError:
            return False
        return True


_WRITES: Final[Mapping[str, Callable[[bytes], object]]] = {
    "open": lambda path: os.open(path, os.O_RDWR),
    "truncate": lambda path: os.truncate(path, 0),
    "chmod": lambda path: os.chmod(path, 0o600),
    "utime": os.utime,
    "unlink": os.unlink,
    "mkdir": os.mkdir,
    "rename": lambda path: os.rename(path, path + b".new"),
}

_RANDOM: Final = np.random.default_rng(35)
_SIZES: Final = (0, 1, 4095, 4096, 4097, (1 << 20) + 1, 3_000_000)
CONTENT: Final[Content] = {
    **{b"size-%d" % size: _RANDOM.bytes(size) for size in _SIZES},
    **{b"many/%03d" % number: _RANDOM.bytes(number * 41) for number in range(200)},
    **{b"chain/%02d" % number: Link(b"%02d" % (number + 1)) for number in range(_LINKS + 3)},
    b"chain/%02d" % (_LINKS + 3): b"the end of the chain",
    b"d/e/f/deep": _RANDOM.bytes(5000),
    b"d/\xff\xfe.bin": b"not UTF-8",
    b"d/ \n\\": b"",
    b"none": None,
    b"d/e/\xf0": None,
    b"to-file": Link(b"d/e/f/deep"),
    b"to-folder": Link(b"d/e"),
    b"to-link": Link(b"to-folder/f/../../\xff\xfe.bin"),
    b"d/up": Link(b"../d/e/.."),
    b"d/e/round": Link(b"../e/round"),
    b"left": Link(b"right"),
    b"right": Link(b"left"),
    b"dangling": Link(b"nowhere/at/all"),
    b"d/e/slash": Link(b"f//./"),
}
_FILES: Final = [path for path, held in CONTENT.items() if isinstance(held, bytes)]
_KNOWN: Final = sorted(Model(CONTENT).content)
_ODD: Final = [
    *(path for path in _KNOWN if not path.startswith((b"many/", b"chain/"))),
    *(b"chain/%02d" % number for number in range(5)),  # with too many links, and just few enough
]
"""Each of them is another case."""

_ODD_FILES: Final = [path for path in _ODD if path in _FILES]

_PARTS = st.sampled_from([b"..", b".", b"", b"no", b"up", b"to-folder", b"d", b"e", b"f", b"deep", b"round", b"slash"])
_PATHS = st.one_of(
    st.sampled_from(_ODD),
    st.sampled_from(_KNOWN),
    st.builds(lambda path, parts: b"/".join([path, *parts]), st.sampled_from(_KNOWN), st.lists(_PARTS, max_size=4)),
)
_PLACES = st.one_of(
    st.integers(0, 2 * 4096),
    st.builds(lambda near, by: max(near + by, 0), st.sampled_from([*_SIZES, 131_072]), st.integers(-3, 3)),
)
_LENGTHS = st.one_of(st.integers(0, 3 * 4096), st.integers(131_070, 131_075))
_READS = st.tuples(
    st.just("read"),
    st.sampled_from(sorted(WAYS)),
    st.one_of(st.sampled_from(_ODD_FILES), st.sampled_from(_FILES)),
    _PLACES,
    _LENGTHS,
)
_ORDERS = st.one_of(
    st.permutations(range(200)).map(lambda order: [b"many/%03d" % number for number in order]),
    st.lists(st.sampled_from(_FILES), max_size=60),
    st.just(sorted(_FILES)),
)
_CALLS = st.one_of(
    st.tuples(st.sampled_from(["stat", "lstat", "listdir", "readlink", "whole", "forget"]), _PATHS),
    st.tuples(st.sampled_from(sorted(_WRITES)), _PATHS),
    _READS,
    _READS,
    st.tuples(st.just("hint"), st.sampled_from("abc"), _ORDERS),
    st.tuples(st.just("run"), st.integers(0, 190), st.integers(1, 60)),
)


@dataclass
class World:
    """The same tree mounted, and its `Files`."""

    root: bytes
    files: Files
    agent: Agent
    reader: FileReader

    def __post_init__(self) -> None:
        self._orders: dict[str, int] = {}

    def do(self, model: Model, name: str, *given: Any) -> None:
        """Do one call on all three, and compare."""
        if name == "hint":
            owner, order = given
            numbers = np.array([self.files.tree.lookup(path) for path in order], np.int64)
            last = self._orders.pop(owner, 0)
            if len(numbers):
                self._orders[owner] = self.agent.hint(numbers, instead_of=[last])
            else:
                self.agent.forget(last)
        elif name == "run":
            for number in range(given[0], min(sum(given), 200)):
                self._compare(name, b"many/%03d" % number, lambda path: model.read(path, 0, 1 << 40), self._all)
        elif name in _WRITES:
            self._refused(model, name, *given)
        elif name == "read":
            way, path, offset, size = given
            self._compare(
                name,
                path,
                lambda path: model.read(path, offset, size),
                lambda path: self.reader.read(way, path, offset, max(size, 1))[:size],
                lambda path: self.files.read(path, offset, size),
            )
        else:
            getattr(self, f"_{name}")(model, *given)

    def _compare(self, name: str, path: bytes, *calls: Callable[[bytes], object]) -> None:
        """Call the model, the mount and perhaps Files."""
        places = [path, self.root + b"/" + path, path]
        wanted, *found = [_result(call, place) for call, place in zip(calls, places, strict=False)]
        for one in found:
            assert one == wanted, (name, path)

    def _refused(self, model: Model, name: str, path: bytes) -> None:
        if path.rpartition(b"/")[2] in (b"", b".", b"..") or (name == "rename" and len(path) > 200):
            return
        wanted = model.refusal(name, path)
        assert _result(_WRITES[name], self.root + b"/" + path) == wanted, (name, path)

    def _all(self, path: bytes) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def _whole(self, model: Model, path: bytes) -> None:
        self._compare("whole", path, lambda path: model.read(path, 0, 1 << 40), self._all, self.files.read)

    def _stat(self, model: Model, path: bytes, *, follow: bool = True) -> None:
        def mounted(path: bytes) -> tuple[str, int]:
            found = os.stat(path, follow_symlinks=follow)
            kind = {stat.S_IFDIR: "folder", stat.S_IFLNK: "link", stat.S_IFREG: "file"}[stat.S_IFMT(found.st_mode)]
            return kind, len(os.listdir(path)) if kind == "folder" else found.st_size

        def listed(path: bytes) -> tuple[str, int]:
            found = self.files.tree.stat(path, follow=follow)
            return {Kind.FILE: "file", Kind.FOLDER: "folder", Kind.LINK: "link"}[found.kind], found.size_bytes

        self._compare("stat", path, lambda path: model.stat(path, follow=follow), mounted, listed)

    def _lstat(self, model: Model, path: bytes) -> None:
        self._stat(model, path, follow=False)

    def _listdir(self, model: Model, path: bytes) -> None:
        def listed(path: bytes) -> list[bytes]:
            return sorted(map(os.fsencode, self.files.tree.listdir(path)))

        self._compare("listdir", path, model.listdir, lambda path: sorted(os.listdir(path)), listed)

    def _readlink(self, model: Model, path: bytes) -> None:
        self._compare("readlink", path, model.readlink, os.readlink)

    def _forget(self, model: Model, path: bytes) -> None:
        """Free a file's pages, whatever the mount thinks of them."""
        try:
            descriptor = os.open(self.root + b"/" + path, os.O_RDONLY)
        except OSError:
            return
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def _result(call: Callable[[bytes], object], path: bytes) -> object:
    """Return what a call returns, or the number of its error."""
    try:
        return call(path)
    except OSError as error:
        return error.errno


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Files]:
    """The tree on a disk, and at a daemon."""
    folder = os.fsencode(tmp_path / "x")
    for path, held in sorted(Model(CONTENT).content.items()):
        place = os.path.join(folder, path) if path else folder
        if held is None:
            os.mkdir(place)
        elif isinstance(held, Link):
            os.symlink(held.target, place)
        else:
            Path(os.fsdecode(place)).write_bytes(held)
    with served(os.fsdecode(folder), "x") as address, Files(address) as found:
        yield found


@pytest.fixture(scope="module")
def reader() -> Iterator[FileReader]:
    with FileReader() as made:
        yield made


@contextmanager
def _world(files: Files, reader: FileReader, folder: Path) -> Iterator[World]:
    folder.mkdir(exist_ok=True)
    with Agent(files.tree, folder, files, window_bytes=8 << 20, limit_s=30) as agent:
        yield World(os.fsencode(folder), files, agent, reader)


def _run(world: World, model: Model, calls: list[tuple[Any, ...]]) -> None:
    for call in calls:
        try:
            world.do(model, *call)
        except EscapeError:
            continue


_QUICKLY: Final = settings(suppress_health_check=list(HealthCheck), deadline=None)


@pytest.mark.parametrize("examples", [25, pytest.param(1500, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])])
def test_every_call_returns_what_the_model_says(
    examples: int, files: Files, reader: FileReader, tmp_path: Path
) -> None:
    @settings(_QUICKLY, max_examples=examples)
    @given(st.lists(_CALLS, min_size=10, max_size=60))
    def compare(calls: list[tuple[Any, ...]]) -> None:
        with _world(files, reader, tmp_path / "mounted") as world:
            _run(world, Model(CONTENT), calls)

    compare()


class _Lexical(Model):
    """A mutant: `..` takes the name before it away, without following it."""

    def find(self, path: bytes, *, follow: bool = True) -> bytes:
        return super().find(os.path.normpath(b"/" + path).strip(b"/"), follow=follow)


class _LastByte(Model):
    """A mutant: the last byte of a file of whole pages and one byte is another one."""

    def read(self, path: bytes, offset: int, size: int) -> bytes:
        found = super().read(path, offset, size)
        is_last = self.find(path) == b"size-4097" and offset + len(found) == 4097
        return found[:-1] + bytes([found[-1] ^ 1]) if is_last and found else found


class _OneLinkMore(Model):
    """A mutant: the kernel's limit of links is another one."""

    def find(self, path: bytes, *, follow: bool = True) -> bytes:
        try:
            return super().find(path, follow=follow)
        except OSError as error:
            if error.errno == errno.ELOOP and path.startswith(b"chain/"):
                return b"chain/%02d" % (_LINKS + 3)
            raise


class _Permits(Model):
    """A mutant: what writes is refused for another reason."""

    def refusal(self, call: str, path: bytes) -> int:
        found = super().refusal(call, path)
        return errno.EACCES if found == errno.EROFS and call == "truncate" else found


@pytest.mark.parametrize("mutant", [_Lexical, pytest.param(_LastByte, marks=pytest.mark.slow), _OneLinkMore, _Permits])
def test_mutants_are_found(mutant: type[Model], files: Files, reader: FileReader, tmp_path: Path) -> None:
    with _world(files, reader, tmp_path / "mounted") as world:

        @settings(_QUICKLY, max_examples=400, phases=[Phase.generate], database=None, derandomize=True)
        @given(st.lists(_CALLS, min_size=10, max_size=60))
        def compare(calls: list[tuple[Any, ...]]) -> None:
            _run(world, mutant(CONTENT), calls)

        with pytest.raises(AssertionError):
            compare()
