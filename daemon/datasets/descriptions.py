"""A folder of descriptions of datasets, NAME.toml or NAME@GENERATION.toml, and the state of each.

    path = "/data/imagenet-2"
    id = "9f2c..."            # optional, told back in the state
    [options]                 # optional
    format = "parquet"

Beside a description the daemon writes NAME.state.json, which says whether it serves the dataset.

Covers: the names and the text of both files, noticing changes. Does not cover: when to look
(emlio.daemon.datasets.wanted), writing descriptions for a running daemon (emlio.cli.publish).
"""

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import cast

import msgspec

from emlio.daemon.config import DatasetSource
from emlio.errors import ConfigError
from emlio.settings import read_toml
from emlio.store.atomic_file import write_atomically
from emlio.store.bucket.address import ObjectAddress

__all__ = ["Description", "DescriptionFolder", "State", "description_path", "read_state", "state_path"]

_ENDING = ".toml"
_STATE_ENDING = ".state.json"
_KNOWN = {"path", "id", "options"}
_MOST_BYTES = 1 << 20

Stamp = tuple[int, int, int, int]


class Description(msgspec.Struct, frozen=True, kw_only=True):
    """One description.

    Attributes:
        path: its file.
        stamp: changes when the file is replaced or written to.
        source: the dataset; None if the file has a mistake.
        request: its id, which the state repeats.
        error: the mistake.
    """

    path: Path
    stamp: Stamp
    source: DatasetSource | None = None
    request: str = ""
    error: str = ""


class State(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a description at a daemon.

    Attributes:
        dataset: NAME or NAME@GENERATION.
        state: "opening", "serving" or "failed".
        request: the id of the description.
        error: why it failed; a former generation of the same number is still served then.
        records, shards: of the dataset, while it is served.
        directory: its folder.
        pid: of the daemon.
        time: when this was written, in ISO 8601.
    """

    dataset: str
    state: str
    request: str = ""
    error: str = ""
    records: int = 0
    shards: int = 0
    directory: str = ""
    pid: int = 0
    time: str = ""


def description_path(folder: Path, full_name: str) -> Path:
    """Return the file that describes a dataset."""
    return folder / f"{full_name}{_ENDING}"


def state_path(description: Path) -> Path:
    """Return the file in which a daemon tells what it does with a description."""
    return description.with_name(description.name.removesuffix(_ENDING) + _STATE_ENDING)


def read_state(description: Path) -> State | None:
    """Return what a daemon tells of a description; None if there is nothing that can be read."""
    try:
        with state_path(description).open("rb") as file:
            return msgspec.json.decode(file.read(_MOST_BYTES), type=State)
    except (OSError, msgspec.MsgspecError):
        return None


class DescriptionFolder:
    """The descriptions in a folder. Used by one thread."""

    def __init__(self, path: Path) -> None:
        """See the class; the folder is not read yet."""
        self.path = path
        self.problem = ""
        self._known: dict[str, Description] = {}

    def look(self) -> list[Description]:
        """Return all descriptions, in the order of their names. Unchanged ones are not read again.

        A folder that cannot be read has the descriptions that it had before; `problem` says why.
        """
        try:
            with os.scandir(self.path) as entries:
                names = [entry.name for entry in entries]
        except OSError as error:
            self.problem = f"the folder of descriptions {self.path} cannot be read: {error.strerror or error}"
            return list(self._known.values())
        self.problem = ""
        now: dict[str, Description] = {}
        for name in sorted(names):
            if name.startswith(".") or not name.endswith(_ENDING):
                continue
            path = self.path / name
            try:
                status = path.stat()
            except OSError:
                continue  # removed meanwhile
            stamp = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
            before = self._known.get(name)
            now[name] = before if before is not None and before.stamp == stamp else _read(path, stamp)
        self._known = now
        return list(now.values())

    def tell(self, description: Path, state: State) -> str:
        """Write the state of a description; return what is wrong if it cannot be written."""
        try:
            write_atomically(state_path(description), (msgspec.json.format(msgspec.json.encode(state)), b"\n"))
        except OSError as error:
            return f"the state of {description} cannot be written beside it: {error.strerror or error}"
        return ""

    def forget(self, description: Path) -> None:
        """Remove the state of a description that is no longer there, or no longer watched."""
        with suppress(OSError):
            state_path(description).unlink(missing_ok=True)


def _read(path: Path, stamp: Stamp) -> Description:
    request = ""
    try:
        document = read_toml(path)
        request = str(document.get("id", ""))
        source = _source(path, document)
    except ConfigError as error:
        return Description(path=path, stamp=stamp, request=request, error=str(error))
    except Exception as error:  # noqa: BLE001  # other descriptions must be looked at in any case
        return Description(path=path, stamp=stamp, request=request, error=f"{path}: cannot be used: {error!r}")
    return Description(path=path, stamp=stamp, source=source, request=request)


def _source(path: Path, document: Mapping[str, object]) -> DatasetSource:
    unknown = sorted(set(document) - _KNOWN)
    if unknown:
        raise ConfigError(f"{path}: unknown keys {', '.join(unknown)}; known: {', '.join(sorted(_KNOWN))}")
    place, options = document.get("path"), document.get("options", {})
    if not isinstance(place, str) or not place:
        raise ConfigError(
            f'{path}: path must be the dataset\'s folder or address, such as path = "/data/imagenet", got {place!r}'
        )
    if not isinstance(options, Mapping):
        raise ConfigError(f"{path}: options must be a table, like [options], got {options!r}")
    try:
        source = DatasetSource.named(path.name.removesuffix(_ENDING), place)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
    if not re.match("[/~]", place) and not isinstance(source.directory, ObjectAddress):
        raise ConfigError(f"{path}: path must be absolute, got {place!r}")
    more = {name: _text(value) for name, value in cast("Mapping[str, object]", options).items()}
    return DatasetSource(
        name=source.name,
        directory=source.directory,
        options={**source.options, **more},
        generation=source.generation,
    )


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
