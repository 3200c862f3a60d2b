"""Files of tokens: documents of Megatron-LM's .bin and .idx, rows of .npy files, flat files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from emlio.errors import ConfigError, DatasetError
from emlio.formats.array_rows import check_numbers, header_of
from emlio.formats.contents import Contents
from emlio.formats.folders.names import CHOOSING, format_options, needed_files, require_one_split
from emlio.formats.format import Files
from emlio.formats.token_files import indexed_tokens
from emlio.formats.token_form import TOKENS, stored_tokens
from emlio.prepare.sample import Sample
from emlio.prepare.sources.record_source import Fingerprint, Ignored, Listing, read_listed, source_folder
from emlio.prepare.sources.settings import SourceSettings
from emlio.store.folder_store import walk, walk_files
from emlio.tokens import TOKEN_TYPES

__all__ = ["TokenFiles", "as_tokens", "has_index"]

_FLAT_TOKENS: Final = 2048
"""The most tokens of a record of a flat file, which does not say where documents end."""

_OPTIONS: Final = ("dtype", "window")
_ENDINGS: Final = (".bin", ".npy")
_Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Runs:
    """The records of one file.

    Attributes:
        file: its number.
        dtype: of its tokens.
        starts: (n,) the byte at which each record begins.
        counts: (n,) its tokens.
        flat: whether the file is one run of tokens without an end of documents.
    """

    file: int
    dtype: "np.dtype[Any]"
    starts: _Numbers
    counts: _Numbers
    flat: bool = False

    def cut(self, length: int) -> "_Runs":
        """Return records of at most this many tokens; one without tokens stays."""
        pieces = np.maximum(-(-self.counts // length), 1)
        of = np.repeat(np.arange(len(pieces)), pieces)
        before = (np.arange(len(of), dtype=np.int64) - np.repeat(np.cumsum(pieces) - pieces, pieces)) * length
        return _Runs(
            file=self.file,
            dtype=self.dtype,
            starts=self.starts[of] + before * self.dtype.itemsize,
            counts=np.minimum(self.counts[of] - before, length),
        )

    def windows(self, length: int) -> "_Runs":
        """Return records of one token more than `length`, one every `length` tokens."""
        count = max((int(self.counts.sum()) - 1) // length, 0)
        starts = int(self.starts.sum()) + np.arange(count, dtype=np.int64) * (length * self.dtype.itemsize)
        return _Runs(file=self.file, dtype=self.dtype, starts=starts, counts=np.full(count, length + 1, np.int64))


class TokenFiles:
    """Tokens in the order of the files. The constructor reads headers and indexes."""

    def __init__(self, path: Path, kind: str, settings: SourceSettings, options: Mapping[str, str]) -> None:
        """List the records.

        Args:
            path: a file, or a folder of files.
            kind: "tokens" for any files of tokens, "megatron" for those with an index.
            settings: the type of the tokens, and the length of records.
            options: "window" for records that overlap by one token, "dtype" as in the settings.

        Raises:
            ConfigError: a type must be given, or an option is not known.
            DatasetError: a file is no file of tokens.
        """
        given, window = _chosen(path, settings, options)
        place = path if path.is_dir() else path.parent
        folder = source_folder(place)
        try:
            files = walk(folder) if path.is_dir() else walk_files(folder, _beside(path))
            numbers = needed_files(files.names, options, str(path)) if path.is_dir() else None
            self._files = files if numbers is None else files.only(numbers)
            self._list(path, kind, settings, options, given, window)
        except BaseException:
            folder.close()
            raise

    def _list(
        self,
        path: Path,
        kind: str,
        settings: SourceSettings,
        options: Mapping[str, str],
        given: str | None,
        window: int | None,
    ) -> None:
        files = self._files
        indexed = kind == "megatron" or bool(files.endings.get(".idx"))
        found = _documents(files, str(path)) if indexed else _arrays(files, str(path), given)
        require_one_split((files.names[runs.file] for runs in found), options, str(path))
        if window is not None and indexed:
            raise ConfigError(f"{path}: window must be given for flat files, these have documents")
        self._runs = [_divided(runs, settings.sequence_length, window) for runs in found]
        self._dtype = _common([(files.names[runs.file], runs.dtype) for runs in found], given)
        self._firsts = np.cumsum([0, *(len(runs.starts) for runs in self._runs)])
        counts = np.concatenate([runs.counts for runs in self._runs])
        fingerprint = Fingerprint(kind)
        fingerprint.add(self._dtype.name, str(settings.sequence_length), str(window))
        for number, name in enumerate(files.names):
            fingerprint.add_file(files, number, name)
        used = {files.names[runs.file] for runs in found}
        if indexed:
            used |= {f"{name.removesuffix('.bin')}.idx" for name in used}
        self.listing = Listing(
            sizes_bytes=counts * self._dtype.itemsize,
            fingerprint=fingerprint.hexdigest(),
            label_names={},
            ignored=Ignored.of(name for name in files.names if name not in used),
            tokens=self._dtype.name,
        )

    def key(self, place: int) -> str:
        """Return the file, and the bytes of the record in it."""
        runs, row = self._where(place)
        begin = int(runs.starts[row])
        return f"{self._files.path(runs.file)}: bytes {begin} to {begin + int(runs.counts[row]) * runs.dtype.itemsize}"

    def record(self, place: int) -> Sample:
        """Read the tokens of one record."""
        runs, row = self._where(place)
        size = int(runs.counts[row]) * runs.dtype.itemsize
        data = read_listed(self._files, runs.file, int(runs.starts[row]), size)
        tokens = as_tokens(np.frombuffer(data, runs.dtype), self._dtype)
        return Sample(columns={TOKENS: tokens}, main=TOKENS, bare=True)

    def close(self) -> None:
        """Close the folder. Closing again does nothing."""
        self._files.close()

    def _where(self, place: int) -> tuple[_Runs, int]:
        number = int(np.searchsorted(self._firsts, place, side="right")) - 1
        return self._runs[number], place - int(self._firsts[number])


def as_tokens(tokens: npt.NDArray[Any], dtype: "np.dtype[Any]") -> npt.NDArray[Any]:
    """Return tokens with another type.

    Raises:
        DatasetError: one of them does not fit.
    """
    if not np.can_cast(tokens.dtype, dtype) and len(tokens):
        limits = np.iinfo(dtype)
        for token in (int(tokens.min()), int(tokens.max())):
            if not limits.min <= token <= limits.max:
                raise DatasetError(f"tokens must fit {dtype.name}, got {token}. Choose another type with --dtype")
    return tokens.astype(dtype, copy=False)


def has_index(path: Path) -> bool:
    """Return whether a file is one of a pair of Megatron-LM's."""
    return path.suffix in (".bin", ".idx") and path.with_suffix(".bin").is_file() and path.with_suffix(".idx").is_file()


def _beside(path: Path) -> list[str]:
    """Return the names of the files that belong to the dataset of one file."""
    if has_index(path):
        return [path.with_suffix(".bin").name, path.with_suffix(".idx").name]
    return [path.name]


def _chosen(path: Path, settings: SourceSettings, options: Mapping[str, str]) -> tuple[str | None, int | None]:
    """Return the type of tokens and the window, wherever they were given."""
    strange = sorted(format_options(options).keys() - set(_OPTIONS))
    if strange:
        raise ConfigError(
            f"{path}: tokens must have options they know, {', '.join((*_OPTIONS, *CHOOSING))}; got {strange[0]}"
        )
    dtype, window = options.get("dtype"), options.get("window")
    if dtype is not None and dtype not in TOKEN_TYPES:
        raise ConfigError(f"{path}: dtype must be one of {', '.join(TOKEN_TYPES)}, got {dtype!r}")
    if None not in (dtype, settings.dtype) and dtype != settings.dtype:
        raise ConfigError(f"{path}: dtype must be given once, got {dtype} and --dtype {settings.dtype}")
    if window is None:
        return settings.dtype or dtype, None
    if not window.isdecimal() or not 1 <= int(window) < 1 << 31:
        raise ConfigError(f"{path}: window must be a number of tokens of at least 1, got {window!r}")
    if settings.sequence_length is not None:
        raise ConfigError(f"{path}: give either window or --sequence-length, not both")
    return settings.dtype or dtype, int(window)


def _divided(runs: _Runs, length: int | None, window: int | None) -> _Runs:
    if window is not None:
        return runs.windows(window) if runs.flat else runs
    if length is None and runs.flat:
        length = _FLAT_TOKENS
    return runs if length is None else runs.cut(length)


def _common(types: Sequence[tuple[str, "np.dtype[Any]"]], given: str | None) -> "np.dtype[Any]":
    """Return the type of the tokens in records."""
    if given is not None:
        return np.dtype(given).newbyteorder("<")
    first = types[0][1].newbyteorder("<")
    other = next((one for one in types if one[1].newbyteorder("<") != first), None)
    if other is not None:
        raise DatasetError(
            f"{other[0]}: all files must have tokens of one type, {types[0][0]} has {first.name}, this one "
            f"{other[1].name}. Choose one for the records with --dtype"
        )
    if first.name not in TOKEN_TYPES:
        raise DatasetError(
            f"{types[0][0]}: must have tokens of {', '.join(TOKEN_TYPES)}, has {first.name}: give --dtype"
        )
    return first


def _documents(files: Files, where: str) -> list[_Runs]:
    layout = indexed_tokens.layout(files, {}, where)
    dtype = stored_tokens(Contents(format=indexed_tokens.name, settings=layout.settings))
    assert dtype is not None
    found: list[_Runs] = []
    for shard in layout.shards:
        ranges = indexed_tokens.ranges(files, shard, layout.settings)
        counts = (ranges.ends - ranges.starts) // dtype.itemsize
        found.append(_Runs(file=shard.files[0], dtype=dtype, starts=np.asarray(ranges.starts), counts=counts))
    return found


def _arrays(files: Files, where: str, given: str | None) -> list[_Runs]:
    numbers = [number for number, name in enumerate(files.names) if name.endswith(_ENDINGS)]
    if not numbers:
        other = "; TFRecord files are converted with --from tfrecord" if ".tfrecord" in files.endings else ""
        raise DatasetError(f"source {where}: must hold .npy or .bin files of tokens, holds none{other}")
    return [_array(files, number, given) for number in numbers]


def _array(files: Files, number: int, given: str | None) -> _Runs:
    name, size = files.names[number], int(files.sizes[number])
    if name.endswith(".bin"):
        if given is None:
            raise ConfigError(
                f"{name}: the type of the tokens in a .bin file must be given: --dtype uint16, uint32 or int32. Files of "
                "Megatron-LM have an .idx file beside them"
            )
        dtype = np.dtype(given).newbyteorder("<")
        if size % dtype.itemsize:
            raise DatasetError(f"{name}: must be whole tokens of {dtype.itemsize} bytes ({given}), has {size} bytes")
        return _flat(number, dtype, 0, size // dtype.itemsize)
    header = header_of(files, number)
    check_numbers(header, size, name)
    if header.dtype.kind not in "iu" or len(header.shape) not in (1, 2) or (header.fortran and len(header.shape) > 1):
        raise DatasetError(
            f"{name}: must hold whole numbers in one dimension, or rows of them in C order, is {header.dtype} "
            f"{header.shape}"
        )
    if len(header.shape) == 1:
        return _flat(number, header.dtype, header.begin, header.shape[0])
    rows, width = list(header.shape)
    starts = header.begin + np.arange(rows, dtype=np.int64) * (width * header.dtype.itemsize)
    return _Runs(file=number, dtype=header.dtype, starts=starts, counts=np.full(rows, width, np.int64))


def _flat(file: int, dtype: "np.dtype[Any]", begin: int, count: int) -> _Runs:
    there = count > 0  # a file without tokens has no record
    starts, counts = (np.full(int(there), number, np.int64) for number in (begin, count))
    return _Runs(file=file, dtype=dtype, starts=starts, counts=counts, flat=True)
