"""Detection of a dataset's shards in a directory.

Covers: by mappings if there are any, else by file names in TensorFlow's style; which shards must be
on other hosts. Does not cover: opening them (emlio.shards.dataset).
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from emlio.errors import DatasetError
from emlio.formats.folders.names import chosen_files, chosen_names, require_one_split
from emlio.shards.files.folder import Folder, Kind, must_be_file
from emlio.shards.tfrecord.mapping import ShardMapping, mapping_name, read_mapping

__all__ = [
    "Discovery",
    "discover",
    "discover_objects",
    "has_shards",
    "has_shards_named",
    "numbered_family",
    "numbered_names",
    "numbered_shard",
    "open_folder",
    "rival_families",
]

_EXTENSION = re.compile(r"\.(?:tfrecords?|tfrec|tfr)$", re.IGNORECASE)
_COMPRESSED = re.compile(r"\.(?:tfrecords?|tfrec|tfr)(?:-\d+-of-\d+)?\.(?:gz|gzip|zlib|zst)$", re.IGNORECASE)
_NUMBERED = re.compile(r"(?P<stem>.+)-(?P<index>\d{5,6})-of-(?P<count>\d{5,6})(?P<extension>(?:\.\w+)?)", re.ASCII)
_DIGITS = (5, 6)
_MAPPING = re.compile(r"mapping_shard_\d+\.json")
# Files of other formats that are also numbered, such as "model.ckpt.data-00000-of-00001".
_OTHERS = re.compile(
    r"\.(?:data|index|parquet|array_?record|riegeli|csv|jsonl?|txt|zip|tar|gz|npy|npz|idx|sstable|recordio)$",
    re.IGNORECASE,
)
_LOOKED_FOR = "mapping_shard_*.json, *.tfrecord, *.tfrecords, *.tfrec, *.tfr or *-00000-of-NNNNN"


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovery:
    """The shards of a directory.

    Attributes:
        present: names of the files in the directory, sorted.
        missing: names of the dataset's other shards, sorted; a shard whose file name is unknown is
            listed under its mapping's name.
        mappings: by file name, of present shards; empty where there are none.
    """

    present: tuple[str, ...]
    missing: tuple[str, ...]
    mappings: dict[str, ShardMapping]


def open_folder(directory: Path) -> Folder:
    """Open a dataset's directory.

    Raises:
        DatasetError: there is no such directory, or it cannot be read.
    """
    try:
        return Folder(directory)
    except FileNotFoundError as error:
        raise DatasetError(f"dataset directory {directory}: no such directory") from error
    except NotADirectoryError as error:
        raise DatasetError(f"dataset directory {directory}: must be a directory, is a file") from error
    except OSError as error:
        raise _unreadable(directory, error) from error


def discover(folder: Folder, *, use_mappings: bool = True, options: Mapping[str, str] | None = None) -> Discovery:
    """Find the shards in a directory.

    Args:
        folder: the dataset's; sub-folders are ignored.
        use_mappings: if False, use file names even where there are mappings.
        options: the user's choice of files; see `chosen_files`.

    Raises:
        DatasetError: there are no shards; the mappings contradict each other or the files; or a
            shard or mapping is not a regular file, or is a link that leaves the folder.
    """
    directory = folder.path
    try:
        files = _Files(folder)
        mapped = [name for name in files.names if use_mappings and _MAPPING.fullmatch(name) and name in files]
        mappings = [read_mapping(directory / name, folder.opener) for name in mapped]
        found = _by_mappings(str(directory), mapped, mappings, files) if mapped else _by_names(files)
    except OSError as error:
        raise _unreadable(directory, error) from error
    return _checked(str(directory), found, files, options or {})


def discover_objects(
    where: str, names: Sequence[str], read: Callable[[str], ShardMapping], options: Mapping[str, str]
) -> Discovery:
    """Find the shards among the objects of a dataset, like `discover`.

    Args:
        where: the dataset's address, for errors.
        names: of the objects; those with a slash are ignored.
        read: returns the mapping that an object of this name holds.
        options: see `discover`.
    """
    files = _Names(sorted(name for name in names if "/" not in name))
    mapped = [name for name in files.names if _MAPPING.fullmatch(name)]
    mappings = [read(name) for name in mapped]
    found = _by_mappings(where, mapped, mappings, files) if mapped else _by_names(files)
    return _checked(where, found, files, options)


def _checked(where: str, found: Discovery, files: "_Named", options: Mapping[str, str]) -> Discovery:
    if not found.present:
        raise DatasetError(f"dataset directory {where}: {_nothing(files.names, found.missing)}")
    # Mappings, and numbers in names, tell of shards that are not chosen, too.
    numbers = chosen_files(found.present, options, where)
    if numbers is not None:
        present = tuple(found.present[number] for number in numbers)
        found = Discovery(
            present=present,
            missing=tuple(chosen_names(found.missing, options)),
            mappings={name: found.mappings[name] for name in present if name in found.mappings},
        )
    for name in found.present:
        if not name.isprintable():
            raise DatasetError(f"dataset directory {where}: a shard's name must be printable text, got {name!r}")
    require_one_split(found.present, options, where)
    return found


def has_shards(folder: Folder, options: Mapping[str, str]) -> bool:
    """Return whether a folder must hold TFRecord files: they, their mappings or compressed ones are among those chosen.

    Raises:
        DatasetError: it cannot be read.
    """
    try:
        names = [name for name, kind in folder.kinds().items() if kind is not Kind.FOLDER]
    except OSError as error:
        raise _unreadable(folder.path, error) from error
    return has_shards_named(chosen_names(names, options))


def has_shards_named(names: Iterable[str]) -> bool:
    """Return whether a place with files of these names must hold TFRecord files; see `has_shards`."""
    return any(_MAPPING.fullmatch(name) or _is_shard(name) or _COMPRESSED.search(name) for name in names)


def numbered_shard(name: str) -> tuple[int, int] | None:
    """Return index and count of a name like "train-00003-of-01024.tfrecord".

    None for other names.
    """
    match = _NUMBERED.fullmatch(name)
    if match is None or int(match["index"]) >= int(match["count"]):
        return None
    return int(match["index"]), int(match["count"])


def numbered_family(name: str) -> str | None:
    """Return the pattern common to all shards of the name's dataset, else None.

    An example is "train-*-of-01024.tfrecord".
    """
    match = _NUMBERED.fullmatch(name)
    if match is None or numbered_shard(name) is None:
        return None
    return f"{match['stem']}-*-of-{match['count']}{match['extension']}"


def rival_families(names: Iterable[str]) -> list[tuple[str, ...]]:
    """Return families of these names that differ only in their number of shards.

    Two copies of one dataset may differ so. ("train-*-of-00016.tfrecord",
    "train-*-of-00017.tfrecord") is one item; the items and their members are sorted.
    """
    counts: dict[tuple[str, str], set[str]] = {}
    for name in names:
        match = _NUMBERED.fullmatch(name)
        if match is not None and numbered_shard(name) is not None:
            counts.setdefault((match["stem"], match["extension"]), set()).add(match["count"])
    return [
        tuple(f"{stem}-*-of-{count}{extension}" for count in sorted(found))
        for (stem, extension), found in sorted(counts.items())
        if len(found) > 1
    ]


def numbered_names(name: str) -> tuple[str, ...]:
    """Return all names with this name's family and index, padded to 5 and 6 digits.

    None for other names.
    """
    match = _NUMBERED.fullmatch(name)
    if match is None or numbered_shard(name) is None:
        return ()
    family = match["stem"], match["count"], match["extension"]
    return tuple(dict.fromkeys(_member(family, int(match["index"]), digits) for digits in _DIGITS))


def _unreadable(directory: Path, error: OSError) -> DatasetError:
    return DatasetError(f"dataset directory {directory}: cannot be read: {error.strerror or error}")


class _Named(Protocol):
    """The files of a place, by name."""

    @property
    def names(self) -> Sequence[str]:
        """All names, sorted."""
        ...

    def __contains__(self, name: str) -> bool:
        """Return whether the name is a file."""
        ...


class _Names:
    """See `_Named`: objects have no links and no folders."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        self._known = frozenset(names)

    def __contains__(self, name: str) -> bool:
        return name in self._known


class _Files:
    """The files of a folder, see `_Named`.

    Links are resolved only on request, since links with other names do no harm.
    """

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._kinds: Mapping[str, Kind] = folder.kinds()
        self.names = [name for name, kind in self._kinds.items() if kind is not Kind.FOLDER]

    def __contains__(self, name: str) -> bool:
        """Return whether the name is a file.

        A link to a folder or to nothing is not. Anything that cannot be a shard raises an error.
        """
        kind = self._kinds.get(name, Kind.FOLDER)
        if kind is Kind.FILE or kind is Kind.FOLDER:
            return kind is Kind.FILE
        try:
            must_be_file(self._folder.path / name, self._folder.stat(name))
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return False
        return True


def _nothing(files: Sequence[str], missing: tuple[str, ...]) -> str:
    compressed = next((name for name in files if _COMPRESSED.search(name)), None)
    if compressed is not None:
        return (
            f"holds only compressed TFRecord files such as {compressed}, which cannot be served in place. "
            "Convert them once: emlio convert SOURCE TARGET"
        )
    if missing:
        return f"has mappings, but all {len(missing)} shards that they describe are missing, for example {missing[0]}"
    return f"holds no shards, found no {_LOOKED_FOR} among {len(files)} files"


def _is_shard(name: str) -> bool:
    if _EXTENSION.search(name):
        return True
    match = _NUMBERED.fullmatch(name)
    if match is None or numbered_shard(name) is None:
        return False
    return not match["extension"] and not _OTHERS.search(match["stem"])


def _by_names(files: _Named) -> Discovery:
    present = tuple(name for name in files.names if _is_shard(name) and name in files)
    return Discovery(present=present, missing=tuple(sorted(_implied(present) - set(present))), mappings={})


def _implied(names: Iterable[str]) -> set[str]:
    """Return the names of all shards of the numbered families that these names belong to."""
    indexes: dict[tuple[str, str, str], list[str]] = {}
    for name in names:
        match = _NUMBERED.fullmatch(name)
        if match is not None and numbered_shard(name) is not None:
            indexes.setdefault((match["stem"], match["count"], match["extension"]), []).append(match["index"])
    implied: set[str] = set()
    for family, texts in indexes.items():
        digits = _digits(texts)
        implied.update(_member(family, index, digits) for index in range(int(family[1])))
    return implied


def _digits(indexes: Iterable[str]) -> int:
    """Return the number of digits to which a family pads its indexes.

    TensorFlow pads to five, even for 100,000 shards and more; other tools pad to the length of the
    count.
    """
    return min((len(index) for index in indexes if index.startswith("0")), default=min(_DIGITS))


def _member(family: tuple[str, str, str], index: int, digits: int) -> str:
    stem, count, extension = family
    return f"{stem}-{index:0{digits}d}-of-{count}{extension}"


def _by_mappings(where: str, names: Sequence[str], mappings: list[ShardMapping], files: _Named) -> Discovery:
    by_index = {mapping.shard_index: mapping for mapping in mappings}
    by_file = {mapping.file: mapping for mapping in mappings}
    for name, mapping in zip(names, mappings, strict=True):
        for what, other in (("shard_index", by_index[mapping.shard_index]), ("file", by_file[mapping.file])):
            if other is not mapping:
                raise DatasetError(f"mapping {where}/{name}: its {what} must be unique, another mapping has the same")
        if mapping.shard_count != mappings[0].shard_count:
            raise DatasetError(
                f"mapping {where}/{name}: shard_count must be the same in all mappings, got "
                f"{mapping.shard_count}, and {mappings[0].shard_count} in {names[0]}"
            )
    present = tuple(sorted(name for name in by_file if name in files))
    missing = by_file.keys() - set(present)
    unmapped = (index for index in range(mappings[0].shard_count) if index not in by_index)
    missing.update(_unmapped(where, unmapped, mappings, files))
    return Discovery(
        present=present, missing=tuple(sorted(missing)), mappings={name: by_file[name] for name in present}
    )


def _unmapped(where: str, missing: Iterable[int], mappings: list[ShardMapping], files: _Named) -> Iterator[str]:
    """Yield the names of shards without a mapping here.

    They follow the other shards' numbering, or else are the names of the mappings.
    """
    sibling = mappings[0]
    match = _NUMBERED.fullmatch(sibling.file)
    if match is None or numbered_shard(sibling.file) != (sibling.shard_index, sibling.shard_count):
        yield from map(mapping_name, missing)
        return
    siblings = (_NUMBERED.fullmatch(mapping.file) for mapping in mappings)
    digits = _digits(found["index"] for found in siblings if found is not None)
    for index in missing:
        name = _member((match["stem"], match["count"], match["extension"]), index, digits)
        if name in files:
            raise DatasetError(
                f"dataset directory {where}: {name} has no mapping {mapping_name(index)}, but other shards have "
                f"mappings. Write all mappings again: emlio index --force --mapping {where}"
            )
        yield name
