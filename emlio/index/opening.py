"""Opening a dataset, given its place and options."""

import os
import re
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from urllib.parse import parse_qsl

from emlio.arguments import like
from emlio.errors import ConfigError, DatasetError
from emlio.formats.array_rows import array_rows
from emlio.formats.contents import TFRECORD
from emlio.formats.folders.names import CHOOSING, is_junk, split_folder
from emlio.formats.registry import FORMATS
from emlio.index.cache_folder import cache_folder
from emlio.index.dataset import Dataset
from emlio.index.indexed import open_folder, open_objects
from emlio.index.parallel import Engine
from emlio.keys.key import holds_secret
from emlio.progress import Progress
from emlio.store.bucket.address import ObjectAddress
from emlio.store.bucket.block_cache import BlockCache
from emlio.store.bucket.bucket_store import BucketStore
from emlio.store.bucket.library import make_client
from emlio.store.bucket.requests import Requests
from emlio.store.folder import UNFINISHED, Folder, Kind, is_unfinished

__all__ = ["DatasetPath", "advice", "list_objects", "open_dataset", "split_below"]

_KNOWN_SCHEMES = ("emlio", "s3", "gs", "az", "https", "http", "file")
_SCHEMES = {
    "s3a": "s3",
    "s3n": "s3",
    "gcs": "gs",
    "azure": "az",
    "abfs": "az",
    "abfss": "az",
    "wasb": "az",
    "wasbs": "az",
}
"""Names that other tools have for the places of objects."""

_PREDICATES = ("where", "subset", "filter", "select")
"""Options that users expect for a choice of records."""

_BRACES = re.compile(r"\{[^{}]*\}")
_MOST_LIST_BYTES = 1 << 20
"""More than any list of splits has."""


@dataclass(frozen=True, slots=True)
class DatasetPath:
    """A dataset's folder or address, and options that say how to read it.

    Attributes:
        directory: the folder, or the address of its objects.
        options: "format", "split", "files" and those of the format.
    """

    directory: Path | ObjectAddress
    options: Mapping[str, str] = field(default_factory=dict[str, str], hash=False)

    @property
    def name(self) -> str:
        """The folder's name, or the last part of the address."""
        return self.directory.name

    @property
    def folder(self) -> Path:
        """The folder, for what only folders have.

        Raises:
            ConfigError: it is an address.
        """
        if isinstance(self.directory, ObjectAddress):
            raise ConfigError(f"a bucket cannot be used for this: it needs a folder of this host, got {self.directory}")
        return self.directory

    @staticmethod
    def parse(text: str) -> "DatasetPath":
        """Parse DIR, DIR?OPTION=VALUE&OPTION=VALUE or an address; a folder whose name has a ? is a folder.

        Raises:
            ConfigError: the options are not of this form.
        """
        if ObjectAddress.is_one(text):
            address = ObjectAddress.parse(text)
            _check_options(address.options, str(address))
            return DatasetPath(address, address.options)
        directory, question, query = text.partition("?")
        if not directory:  # as of a variable of the shell that is not set; a path would be the current folder
            raise ConfigError(f"a dataset must be a directory of this host or objects in a bucket, got {text!r}")
        if "://" in text and not os.path.exists(directory):
            shown = "what may hold a secret key" if holds_secret(text) else repr(text)
            raise ConfigError(
                f"a dataset must be a directory of this host or objects in a bucket, got {shown}{advice(text)}"
            )
        if not question or os.path.isdir(text):
            return DatasetPath(Path(text))
        try:
            options = parse_qsl(query, strict_parsing=True, keep_blank_values=True)
        except ValueError as error:
            raise ConfigError(f"a dataset's options must be OPTION=VALUE&OPTION=VALUE, got {query!r}") from error
        if len({option for option, _ in options}) != len(options):
            raise ConfigError(f"a dataset's options must be given once each, got {query!r}")
        _check_options(dict(options), directory)
        return DatasetPath(Path(directory), dict(options))


def _check_options(options: Iterable[str], where: str) -> None:
    """Check that each option is one of some format. Whether it is one of the dataset's format is seen when that is known.

    Raises:
        ConfigError: one is not.
    """
    known = ("format", *CHOOSING, *dict.fromkeys(option for one in FORMATS for option in one.options))
    for option in options:
        if option not in known:
            meant = ". Records are chosen by subset= of the loader" if option in _PREDICATES else like(option, known)
            raise ConfigError(f"{where}: an option must be one of {', '.join(known)}, got {option!r}{meant}")


def advice(text: str) -> str:
    """Return what may be meant by a text that is the place of no dataset, as the end of an error; "" for nothing."""
    scheme, separator, rest = text.partition("://")
    scheme, plain = scheme.lower(), text.partition("?")[0]
    if separator:
        if scheme in ("emlio", "tcp"):
            return ", which is the address of a daemon"
        meant = _SCHEMES.get(scheme) or next(iter(get_close_matches(scheme, _KNOWN_SCHEMES, 1)), "")
        if meant not in ("", scheme) and not holds_secret(text):
            return f"; did you mean {f'{meant}://{rest}'!r}?"
        if scheme == "hf":
            return ". Download it first: hf download NAME --repo-type dataset --local-dir DIR"
        return ". If it is a directory of this host, give its path alone: the format is recognised"
    scheme, colon, rest = text.partition(":")
    address = f"{_SCHEMES.get(scheme.lower(), scheme.lower())}://{rest.lstrip('/')}"
    if colon and ObjectAddress.is_one(address) and not holds_secret(text):
        return f"; did you mean {address!r}?"
    folder, file = os.path.dirname(plain) or ".", os.path.basename(plain)
    pattern = _BRACES.sub("*", file)
    if os.path.isfile(plain) or (pattern and set(pattern) & {*"*?["} and os.path.isdir(folder)):
        return f". For some of the files of a directory say {f'{folder}?files={pattern}'!r}"
    return ""


def open_dataset(
    name: str,
    directory: Path | ObjectAddress,
    cache_dir: Path | None = None,
    progress: bool = False,
    *,
    options: Mapping[str, str] | None = None,
    rebuild: bool = False,
    object_cache: BlockCache | None = None,
    engine: Engine | None = None,
) -> Dataset:
    """Open the dataset in a directory or a bucket.

    Args:
        name: its name in sessions.
        directory: its directory, its only file if that is a .npy file, or the address of its objects.
        cache_dir: store new indexes under this folder; by default the user's cache folder.
        progress: show a line while indexing.
        options: "format", "split", "files" and those of the format; by default the format is found.
        rebuild: index everything even where there are indexes.
        object_cache: keeps what was read from a bucket.
        engine: where shards are looked through; by default in this process.

    Raises:
        ConfigError: an option is not known.
        DatasetError: there is no dataset, or a file of it is invalid.
    """
    given = dict(options or {})
    if isinstance(directory, ObjectAddress):
        return _open_address(
            name, directory, cache_dir, given, object_cache, engine, progress=progress, rebuild=rebuild
        )
    only = directory.name if directory.is_file() else None
    if (meant := advice(str(directory))) and not directory.exists():
        raise DatasetError(f"dataset directory {directory}: no such directory{meant}")
    folder = _opened(directory if only is None else directory.parent)
    try:
        if only is not None:
            given.setdefault("format", array_rows.name)
            if not only.lower().endswith(".npy") or given["format"] == TFRECORD.format:
                raise DatasetError(
                    f"{directory}: must be a directory, or one .npy file, whose rows are records; it is a file"
                    f"{advice(str(directory))}"
                )
            cache = cache_folder(os.fsencode(os.path.abspath(directory)), cache_dir)
            return open_folder(name, folder, cache, given, only=only, progress=progress, rebuild=rebuild, engine=engine)
        inside, given = split_below(folder, given)
        if inside:
            folder, above = Folder(directory / inside, parent=folder), folder
            above.close()
            directory = folder.path
        cache = cache_folder(os.fsencode(os.path.abspath(directory)), cache_dir)
        return open_folder(name, folder, cache, given, progress=progress, rebuild=rebuild, engine=engine)
    except BaseException as error:
        folder.close()
        if isinstance(error, DatasetError) and is_unfinished(directory):
            raise DatasetError(f"dataset directory {directory}: {UNFINISHED}") from error
        raise


def _opened(directory: Path) -> Folder:
    try:
        return Folder(directory)
    except FileNotFoundError as error:
        raise DatasetError(f"dataset directory {directory}: no such directory") from error
    except NotADirectoryError as error:
        raise DatasetError(f"dataset directory {directory}: must be a directory, is a file") from error
    except OSError as error:
        raise DatasetError(f"dataset directory {directory}: cannot be read: {error.strerror or error}") from error


def split_below(folder: Folder, options: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Return the folder in an open one that holds the split to serve, and the other options; see `split_folder`."""

    def read(name: str) -> bytes:
        with open(folder.open(name), "rb") as file:
            return file.read(_MOST_LIST_BYTES)

    try:
        kinds = {name: kind for name, kind in folder.kinds().items() if not is_junk(name, folder=kind is Kind.FOLDER)}
        folders = [
            name for name, kind in kinds.items() if kind is Kind.FOLDER or _leads(folder, name, kind, to_folder=True)
        ]
        files = [name for name in kinds if name not in folders]
        return split_folder(
            folders,
            files,
            lambda name: _leads(folder, name, Kind.LINK, to_folder=False),
            read,
            options,
            str(folder.path),
        )
    except OSError as error:
        raise DatasetError(f"dataset directory {folder.path}: cannot be read: {error.strerror or error}") from error


def _leads(folder: Folder, name: str, kind: Kind, *, to_folder: bool) -> bool:
    """Return whether a link leads to a file, or a folder."""
    if kind is not Kind.LINK:
        return False
    try:
        mode = folder.stat(name).st_mode
    except (OSError, DatasetError):
        return False
    return stat.S_ISDIR(mode) if to_folder else stat.S_ISREG(mode)


def _open_address(
    name: str,
    address: ObjectAddress,
    cache_dir: Path | None,
    options: Mapping[str, str],
    object_cache: BlockCache | None,
    engine: Engine | None,
    *,
    progress: bool,
    rebuild: bool,
) -> Dataset:
    requests = Requests(address, make_client(address))
    try:
        store = list_objects(name, requests, object_cache, progress=progress)
        tops = list(dict.fromkeys(one.partition("/")[0] for one in store.names if "/" in one))
        files = {one: number for number, one in enumerate(store.names) if one.count("/") < 2}
        inside, given = split_folder(
            tops,
            [one for one in files if "/" not in one],
            files.__contains__,
            lambda one: store.read(files[one], 0, store.size_bytes(files[one])),
            options,
            str(address),
        )
        if inside:
            if address.listing:
                raise DatasetError(f"{address}: must be the list of one split, for example of {inside} alone")
            requests.close()
            address = replace(address, prefix=f"{address.prefix}/{inside}".strip("/"))
            requests = Requests(address, make_client(address))
            store = list_objects(name, requests, object_cache, progress=progress)
        cache = cache_folder(f"{address}?{address.settings.get('endpoint', '')}".encode(), cache_dir)
        return open_objects(name, store, cache, given, progress=progress, rebuild=rebuild, engine=engine)
    except BaseException:
        requests.close()
        raise


def list_objects(
    name: str, requests: Requests, cache: BlockCache | None = None, *, progress: bool = False
) -> BucketStore:
    """Return all objects of a place; see `BucketStore.list`."""
    line = Progress(f"listing {name}", None) if progress else None
    try:
        return BucketStore.list(requests, cache, line.add if line is not None else lambda _: None)
    finally:
        if line is not None:
            line.close()
