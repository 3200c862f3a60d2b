"""Names in a dataset's folder: splits, the files that a user chooses, files that are no data.

A split is a folder at the top, such as train/, or lies in files that have its name as a part of theirs,
such as train-00000-of-00002.parquet. Names are relative, with slashes, in a folder as in a bucket.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, cast

from emlio.errors import ConfigError, DatasetError
from emlio.formats.tfrecord.shard_names import is_mapping_name, is_tfrecord_name

__all__ = [
    "ABOUT",
    "ALL",
    "CHOOSING",
    "chosen_files",
    "chosen_names",
    "format_options",
    "is_junk",
    "needed_files",
    "require_one_split",
    "split_folder",
    "splits_at_top",
]

ALL: Final = "all"
"""The value of split= that serves all splits as one dataset."""

CHOOSING: Final[Mapping[str, str]] = {
    "split": "the split to serve, or all to serve them as one",
    "files": "a pattern of the files to serve, such as en/*.parquet",
}
"""The options that every format takes, with what each means."""

ABOUT: Final = re.compile(
    r"(?:readme|licen[cs]e|checksums?|labels?|classes|.*\.(?:txt|md|jsonl?|ndjson|ya?ml|[ct]sv|html?|pdf|lock))",
    re.IGNORECASE,
)
"""Names of files that are about a tree of files, and no records of it."""

_KIND: Final = re.compile(r"(train(?:ing)?|valid(?:ation)?|val|dev|test(?:ing)?|eval(?:uation)?)\d*", re.IGNORECASE)
_LINES: Final = re.compile(r"\.(?:jsonl|ndjson)(?:\.\w+)?$", re.IGNORECASE)
_DIVIDING: Final = re.compile(r"[-_. ]+")
_SHOWN: Final = 8

_JUNK: Final = frozenset({"thumbs.db", "ehthumbs.db", "desktop.ini", "icon\r"})
_JUNK_FOLDERS: Final = frozenset({"__macosx", "$recycle.bin", "system volume information", "lost+found", "@eadir"})
_CACHED: Final = re.compile(r"cache-[0-9a-f]{16}(?:_\d{5}_of_\d{5})?\.arrow")


def is_junk(name: str, *, folder: bool = False) -> bool:
    """Return whether a file or a folder of this name is what systems and programs leave, and never data."""
    if folder:
        return name.lower() in _JUNK_FOLDERS
    return name.lower() in _JUNK or (name.startswith("cache-") and _CACHED.fullmatch(name) is not None)


def _kind(name: str) -> str:
    """Return the split that a folder's name means; "" if it means none."""
    found = _KIND.fullmatch(name)
    return found[1].lower() if found is not None else ""


def _form(folder: str) -> tuple[str, str]:
    """Return the split that a part of a folder's name means, and the other parts: train_images is (train, images)."""
    parts = [part for part in _DIVIDING.split(folder) if not part.isdigit()]
    place = next((place for place, part in enumerate(parts) if _kind(part)), None)
    return ("", "") if place is None else (_kind(parts.pop(place)), "-".join(parts).lower())


def _split_of(path: str) -> str:
    """Return the split that the path of a file tells, by a folder or by a part of its name; "" if it tells none."""
    *folders, file = path.split("/")
    parts: list[str] = [*folders, *_DIVIDING.split(file)]
    return next((kind for part in parts if (kind := _kind(part))), "")


def split_folder(
    folders: Sequence[str],
    files: Sequence[str],
    holds: Callable[[str], bool],
    read: Callable[[str], bytes],
    options: Mapping[str, str],
    where: str,
) -> tuple[str, dict[str, str]]:
    """Return the folder at the top that holds the split to serve, and the other options; "" if splits are no folders.

    Args:
        folders: those at the top, sorted.
        files: the names of the files at the top.
        holds: returns whether there is a file of this name.
        read: returns what is in a file.
        options: the user's.
        where: the dataset's place, for errors.

    Raises:
        DatasetError: there are several splits, and none is chosen.
        ConfigError: there is no such split.
    """
    given, wanted = dict(options), options.get("split")
    found = _folders(folders, files, holds, read)
    if not found or wanted == ALL:
        return "", given
    head, slash, rest = options.get("files", "").partition("/")
    if wanted is None and slash and head in found:
        wanted, given["files"] = head, f"/{rest}"
    if wanted is None and len(found) > 1:
        raise _refusal(found, where)
    if wanted is not None and wanted not in found:
        raise ConfigError(f"{where}: split must be {_listed(found)}, or {ALL}, got {wanted!r}")
    given.pop("split", None)
    return wanted or found[0], given


def _folders(
    folders: Sequence[str], files: Sequence[str], holds: Callable[[str], bool], read: Callable[[str], bytes]
) -> list[str]:
    """Return the folders that are splits."""
    if "dataset_dict.json" in files:
        try:
            told = cast("dict[str, Any]", json.loads(read("dataset_dict.json")))["splits"]
            return [name for name in folders if name in told]
        except (ValueError, LookupError, TypeError, RecursionError):
            pass
    streams = [] if "index.json" in files else [name for name in folders if holds(f"{name}/index.json")]
    if len(streams) > 1:
        return streams
    # Files with records that lie beside the folders belong to a split, too: then each file tells its own.
    beside = [name for name in files if _LINES.search(name) or not ABOUT.fullmatch(name)]
    named = splits_at_top(folders)
    if named:
        return [] if {_split_of(name) for name in beside} - {"", *(_form(name)[0] for name in named)} else named
    # One folder beside nothing else: then its name is no class.
    alone = len(folders) == 1 and not beside
    return [name for name in folders if _kind(name)] or streams if alone else []


def splits_at_top(folders: Iterable[str]) -> list[str]:
    """Return the folders that are named for splits; none unless for several, as a class may have such a name.

    Names such as train_images and test_images are alike but for the split.
    """
    forms = {name: _form(name) for name in dict.fromkeys(folders)}
    alike: dict[str, set[str]] = {}
    for kind, rest in forms.values():
        if kind:
            alike.setdefault(rest, set()).add(kind)
    return [name for name, (kind, rest) in forms.items() if kind and len(alike[rest]) > 1]


def chosen_files(names: Sequence[str], options: Mapping[str, str], where: str) -> list[int] | None:
    """Return the numbers of the files that `split` and `files` choose; None if they choose all.

    Raises:
        ConfigError: they choose none.
    """
    pattern, split = options.get("files"), options.get("split")
    if pattern is None and split in (None, ALL):
        return None
    numbers: Sequence[int] = range(len(names))
    if pattern is not None:
        wanted = _glob(pattern)
        numbers = [number for number in numbers if wanted.fullmatch(names[number])]
        if not numbers:
            there = f", such as {names[0]}" if len(names) else ""
            raise ConfigError(
                f"{where}: files must be a pattern of its files, {pattern!r} matches none of {len(names):,}{there}"
            )
    if split not in (None, ALL):
        numbers, among = [number for number in numbers if _split_of(names[number]) == split], numbers
        if not numbers:
            known = sorted({_split_of(names[number]) for number in among} - {""})
            there = (
                f"be {_listed(known)}, or {ALL}," if known else "be left out, as no file or folder is named for one,"
            )
            raise ConfigError(f"{where}: split must {there} got {split!r}")
    return list(numbers)


def chosen_names(names: Sequence[str], options: Mapping[str, str]) -> Sequence[str]:
    """Return which of some names `split` and `files` choose; there may be none."""
    try:
        numbers = chosen_files(names, options, "")
    except ConfigError:
        return ()
    return names if numbers is None else [names[number] for number in numbers]


def needed_files(names: Sequence[str], options: Mapping[str, str], where: str) -> list[int] | None:
    """Return the numbers of the chosen files, and of those that tell what is in them; None if all are chosen.

    An index of MDS names all shards of its folder, so these are needed with it. A mapping tells of one TFRecord file.

    Raises:
        ConfigError: none is chosen.
    """
    numbers = chosen_files(names, options, where)
    if numbers is None:
        return None
    chosen = {names[number] for number in numbers}
    needed = {f"{name.removesuffix('.bin')}.idx" for name in chosen if name.endswith(".bin")}
    if any(name.endswith(".mds") for name in chosen):
        needed.update(name for name in names if name.endswith(".mds") or name.rpartition("/")[2] == "index.json")
    if any(is_tfrecord_name(name) for name in chosen):
        needed.update(name for name in names if is_mapping_name(name))
    return [number for number, name in enumerate(names) if name in chosen or name in needed]


def require_one_split(names: Iterable[str], options: Mapping[str, str], where: str) -> None:
    """Check that files with records are all of one split, unless the user chose.

    Raises:
        DatasetError: they are of several.
    """
    found = {} if "split" in options else dict.fromkeys(_split_of(name) for name in names)
    found.pop("", None)
    if len(found) > 1:
        raise _refusal(sorted(found), where)


def format_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a dataset's format: all but its name, the split and the files."""
    return {name: value for name, value in options.items() if name != "format" and name not in CHOOSING}


def _refusal(splits: Sequence[str], where: str) -> DatasetError:
    likely = next((split for split in splits if split.startswith("train")), splits[0])
    return DatasetError(
        f"{where}: holds the splits {_listed(splits)}. Choose one, such as '{where}?split={likely}'; split={ALL} serves "
        "all of them as one dataset"
    )


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(name if name.isprintable() else repr(name) for name in names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN:,} more"


def _glob(pattern: str) -> re.Pattern[str]:
    """Return a pattern of paths: * and ? stay in a name, ** goes through folders; without a slash, in any folder.

    A slash at the begin stands for the top.
    """
    forms = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    made = ["" if "/" in pattern else "(?:.*/)?"]
    for part in re.split(r"(\*\*/|\*\*|\*|\?|\[[^\]/]+\])", pattern.removeprefix("/")):
        if part in forms:
            made.append(forms[part])
        elif part.startswith("[") and part.endswith("]") and len(part) > 2:
            made.append(f"[{part[1:-1].replace(chr(92), chr(92) * 2).replace('!', '^', part[1] == '!')}]")
        else:
            made.append(re.escape(part))
    try:
        return re.compile("".join(made), re.DOTALL)
    except re.error as error:
        raise ConfigError(f"files must be a pattern such as en/*.parquet, got {pattern!r}: {error}") from error
