"""The shards of TFRecord files, by their names and by mappings."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from emlio.errors import DatasetError
from emlio.formats.tfrecord.mapping import ShardMapping, mapping_name

__all__ = [
    "Discovery",
    "discover",
    "is_mapping_name",
    "is_tfrecord_name",
    "numbered_family",
    "numbered_names",
    "numbered_shard",
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


def discover(where: str, names: Collection[str], mappings: Mapping[str, ShardMapping]) -> Discovery:
    """Find the shards among files.

    Args:
        where: their folder or address, for errors.
        names: of the files.
        mappings: those among the files, by the names of their files.

    Raises:
        DatasetError: there are no shards, or the mappings contradict each other or the files.
    """
    found = _by_mappings(where, mappings, names) if mappings else _by_names(names)
    if not found.present:
        raise DatasetError(f"dataset directory {where}: {_nothing(names, found.missing)}")
    for name in found.present:
        if not name.isprintable():
            raise DatasetError(f"dataset directory {where}: a shard's name must be printable text, got {name!r}")
    return found


def is_mapping_name(name: str) -> bool:
    """Return whether a file of this name is the mapping of a shard."""
    return _MAPPING.fullmatch(name) is not None


def is_tfrecord_name(name: str) -> bool:
    """Return whether a file of this name is a TFRecord file, compressed or not."""
    return _is_shard(name) or _COMPRESSED.search(name) is not None


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


def _nothing(files: Collection[str], missing: tuple[str, ...]) -> str:
    compressed = next((name for name in files if _COMPRESSED.search(name)), None)
    if compressed is not None:
        return (
            f"holds only compressed TFRecord files such as {compressed}, which cannot be served in place. "
            "Convert them once: emlio convert SOURCE TARGET"
        )
    if missing:
        return f"has mappings, but all {len(missing)} shards that they describe are missing, for example {missing[0]}"
    return f"holds no shards, found no {_LOOKED_FOR}"


def _is_shard(name: str) -> bool:
    if _EXTENSION.search(name):
        return True
    match = _NUMBERED.fullmatch(name)
    if match is None or numbered_shard(name) is None:
        return False
    return not match["extension"] and not _OTHERS.search(match["stem"])


def _by_names(names: Collection[str]) -> Discovery:
    present = tuple(sorted(name for name in names if _is_shard(name)))
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


def _by_mappings(where: str, mapped: Mapping[str, ShardMapping], files: Collection[str]) -> Discovery:
    mappings = [mapped[name] for name in sorted(mapped)]
    by_index = {mapping.shard_index: mapping for mapping in mappings}
    by_file = {mapping.file: mapping for mapping in mappings}
    for name, mapping in sorted(mapped.items()):
        for what, other in (("shard_index", by_index[mapping.shard_index]), ("file", by_file[mapping.file])):
            if other is not mapping:
                raise DatasetError(f"mapping {where}/{name}: its {what} must be unique, another mapping has the same")
        if mapping.shard_count != mappings[0].shard_count:
            raise DatasetError(
                f"mapping {where}/{name}: shard_count must be the same in all mappings, got "
                f"{mapping.shard_count}, and {mappings[0].shard_count} in {min(mapped)}"
            )
    present = tuple(sorted(name for name in by_file if name in files))
    missing = by_file.keys() - set(present)
    unmapped = (index for index in range(mappings[0].shard_count) if index not in by_index)
    missing.update(_unmapped(where, unmapped, mappings, files))
    return Discovery(
        present=present, missing=tuple(sorted(missing)), mappings={name: by_file[name] for name in present}
    )


def _unmapped(
    where: str, missing: Iterable[int], mappings: Sequence[ShardMapping], files: Collection[str]
) -> Iterator[str]:
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
