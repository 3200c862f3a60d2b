"""The file system `emlio://` of fsspec: pandas, pyarrow and others read a dataset's files by emlio://HOST:PORT/DATASET/PATH.

Read-only. Only this module imports fsspec, which loads it when such a URL is opened.
"""

# fsspec has no types.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
import errno
import os
import stat
from collections.abc import Sequence
from datetime import UTC, datetime
from glob import has_magic
from typing import Any, NoReturn

from fsspec import AbstractFileSystem
from fsspec.spec import AbstractBufferedFile

from emlio.errors import ConfigError, FileError
from emlio.files.files import Files, Request
from emlio.receiver.addresses.security import Security
from emlio.receiver.setup.recovery import Recovery
from emlio.store.folder import Kind

__all__ = ["EmlioFile", "EmlioFileSystem"]

_TYPES = {Kind.FILE: "file", Kind.FOLDER: "directory"}


class EmlioFileSystem(AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types
    """The files of datasets at daemons. A path is HOST:PORT/DATASET/PATH; see `Files` for what reading means."""

    protocol = "emlio"
    root_marker = ""

    def __init__(
        self,
        *,
        keys: "str | os.PathLike[str] | None" = None,
        daemon_key: str | None = None,
        encryption: str = "auto",
        timeout: "str | float" = "60s",
        **options: Any,
    ) -> None:
        """See the class.

        Args:
            keys: see `Security`.
            daemon_key: likewise.
            encryption: likewise.
            timeout: see `Recovery`.
            options: those of every file system.
        """
        super().__init__(**options)
        self._security = Security(keys=keys, daemon_key=daemon_key, encryption=encryption)
        self._recovery = Recovery(timeout=timeout)
        self._files: dict[str, Files] = {}

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [os.fspath(one).removeprefix("emlio://").rstrip("/") for one in path]
        return os.fspath(path).removeprefix("emlio://").rstrip("/")

    def files(self, path: str) -> tuple[Files, str, str]:
        """Return the files of a path's dataset, the path up to them, and the rest of it.

        Raises:
            FileNotFoundError: it names no dataset.
        """
        host, _, rest = self._strip_protocol(path).partition("/")
        dataset, _, inside = rest.partition("/")
        if not host or not dataset:
            raise FileNotFoundError(errno.ENOENT, "a path must be emlio://HOST:PORT/DATASET/PATH", path)
        place = f"{host}/{dataset}"
        found = self._files.get(place)
        if found is None:
            try:
                made = Files(f"emlio://{place}", recovery=self._recovery, security=self._security)
            except ConfigError as error:
                raise FileNotFoundError(errno.ENOENT, str(error), path) from error
            found = self._files.setdefault(place, made)  # without a lock, which a fork could leave held
        return found, place, inside

    def close(self) -> None:
        """End the connections to all daemons; they are made again when they are needed."""
        closed, self._files = self._files, {}
        for files in closed.values():
            files.close()

    # ---- looking --------------------------------------------------------------------------------------------------

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        """See fsspec. A link counts as what it leads to; in a listing one to a folder does not, so that walks end."""
        files, place, inside = self.files(path)
        try:
            number = files.tree.lookup(inside, follow=False)
        except FileError as error:
            raise _own(error, path) from error
        shown = self._info(files, number, f"{place}/{inside}" if inside else place)
        return {**shown, "type": "directory"} if shown["type"] == "link" and "mode" in shown else shown

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        """See fsspec."""
        files, place, inside = self.files(path)
        tree = files.tree
        try:
            number = tree.lookup(inside)
        except FileError as error:
            raise _own(error, path) from error
        name = f"{place}/{inside}" if inside else place
        if tree.kind(number) is not Kind.FOLDER:
            return [self.info(path)] if detail else [name]
        names = [(one, f"{name}/{tree.names[one]}") for one in tree.entries(number)]
        return [self._info(files, one, whole) if detail else whole for one, whole in names]

    @staticmethod
    def _info(files: Files, number: int, name: str) -> dict[str, Any]:
        tree = files.tree
        shown: dict[str, Any] = {"name": name}
        if tree.kind(number) is Kind.LINK:
            shown |= {"islink": True, "destination": os.fsdecode(tree.target(number))}
            try:
                number = tree.lookup(tree.path(number))
            except FileError:
                return {**shown, "size": 0, "type": "link"}  # it leads nowhere
        entry = tree.entry(number)
        is_file = entry.kind is Kind.FILE
        kind = "link" if shown.get("islink") and not is_file else _TYPES[entry.kind]
        mode = entry.mode | (stat.S_IFREG if is_file else stat.S_IFDIR)
        size = entry.size_bytes if is_file else 0
        return {**shown, "size": size, "type": kind, "mode": mode, "mtime": entry.mtime_ns / 1e9}

    def modified(self, path: str) -> Any:
        """See fsspec."""
        return datetime.fromtimestamp(self.info(path)["mtime"], UTC)

    def ukey(self, path: str) -> str:
        """See fsspec: it is another one if the dataset's files are."""
        files, _, inside = self.files(path)
        return f"{files.tree.digest.hex()}/{inside}"

    # ---- reading --------------------------------------------------------------------------------------------------

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: Any = None,
        autocommit: bool = True,
        cache_options: Any = None,
        **options: Any,
    ) -> "EmlioFile":
        if mode != "rb":
            _refuse()
        info = self.info(path)
        if info["type"] == "directory":
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return EmlioFile(
            self, path, mode, block_size or "default", cache_options=cache_options, size=info["size"], **options
        )

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        """See fsspec."""
        found: bytes = self.cat_ranges([path], [start], [end], on_error="raise")[0]
        return found

    def cat(
        self,
        path: Any,
        recursive: bool = False,
        on_error: str = "raise",
        **_: Any,
    ) -> Any:
        """See fsspec. Many files take few requests."""
        paths = self._expanded(path, recursive=recursive)
        found = self._read(paths, on_error == "raise")
        if not isinstance(path, list) and len(paths) == 1 and paths[0] == self._strip_protocol(path):
            return found[0]
        kept = dict(zip(paths, found, strict=True))
        if on_error == "omit":
            return {one: data for one, data in kept.items() if isinstance(data, bytes)}
        return kept

    def cat_ranges(
        self,
        paths: Sequence[str],
        starts: Any,
        ends: Any,
        max_gap: Any = None,
        on_error: str = "return",
        **_: Any,
    ) -> list[Any]:
        """See fsspec. Many ranges take few requests."""
        begins, stops = (one if isinstance(one, list) else [one] * len(paths) for one in (starts, ends))
        bounds = list(zip(begins, stops, strict=True))
        return self._read([self._strip_protocol(path) for path in paths], on_error == "raise", bounds)

    def _expanded(self, path: Any, *, recursive: bool) -> list[str]:
        """Return the paths of files that are meant, each once."""
        if isinstance(path, list) and path and not recursive:
            stripped = self._strip_protocol(path)
            if not has_magic("".join(stripped)):
                return list(dict.fromkeys(stripped))
        paths: list[str] = self.expand_path(path, recursive=recursive)
        return [one for one in paths if not self.isdir(one)] if recursive else paths

    def _read(
        self, paths: Sequence[str], raises: bool, bounds: "Sequence[tuple[int | None, int | None]] | None" = None
    ) -> list[Any]:
        """Return the bytes of each file, or of a range of it, or why there are none."""
        found: list[Any] = [None] * len(paths)
        wanted: dict[str, tuple[Files, list[int], list[Request]]] = {}
        begin, places, requests = "\0", list[int](), list[Request]()
        for place, path in enumerate(paths):
            try:
                if not path.startswith(begin):
                    files, where, _ = self.files(path)
                    _, places, requests = wanted.setdefault(where, (files, [], []))
                    begin = f"{where}/"
                inside = path[len(begin) :]
                requests.append(inside if bounds is None else _request(wanted[begin[:-1]][0], inside, *bounds[place]))
                places.append(place)
            except (FileError, FileNotFoundError) as error:
                found[place] = _own(error, path) if isinstance(error, FileError) else error
        for files, places, requests in wanted.values():
            for place, one in zip(places, files.read_each(requests), strict=True):
                found[place] = one if isinstance(one, bytes) else _own(one, paths[place])
        if raises:
            for one in found:
                if isinstance(one, Exception):
                    raise one
        return found


class EmlioFile(AbstractBufferedFile):  # type: ignore[misc]  # fsspec has no types
    """An open file; fsspec buffers it."""

    def _fetch_range(self, start: int, end: int) -> bytes:
        found: bytes = self.fs.cat_file(self.path, start, end)
        return found


def _request(files: Files, inside: str, begin: int | None, stop: int | None) -> Request:
    """Return what to read for bounds that count from the end if they are negative."""
    if not begin and stop is None:
        return inside
    size = files.tree.stat(inside).size_bytes
    first, last, _ = slice(begin, stop).indices(size)
    return inside, first, max(last - first, 0)


def _own(error: FileError, path: str) -> OSError:
    """Return Python's own error of that kind, such as FileNotFoundError, which programs expect."""
    return OSError(error.errno or errno.EIO, str(error), path)


def _refuse(*_: Any, **__: Any) -> NoReturn:
    raise OSError(errno.EROFS, os.strerror(errno.EROFS))


for _name in (
    *("mkdir", "makedirs", "rmdir", "rm", "rm_file", "_rm", "delete", "mv", "move", "rename", "mv_file", "touch"),
    *("cp_file", "copy", "cp", "put", "put_file", "upload", "pipe", "pipe_file", "write_text", "write_bytes"),
):
    setattr(EmlioFileSystem, _name, _refuse)
