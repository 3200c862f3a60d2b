"""The shards that a conversion makes of a source: which items each has, and how they become records."""

import hashlib
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt

from emlio.errors import ConfigError, DatasetError
from emlio.images.decoding import as_png, can_decode, decoding_fault
from emlio.images.header import NOT_DECODED, picture_extension
from emlio.index.parallel import Adds
from emlio.planner.permutation import Permutation
from emlio.prepare.convert_options import DEFAULT_SHARD_BYTES, ConvertOptions
from emlio.prepare.disk import disk_error
from emlio.prepare.sample import Sample
from emlio.prepare.sources.record_source import RecordSource, SourceChangedError
from emlio.prepare.targets.example_form import example_record, sample_of_example
from emlio.prepare.targets.shard_set import Recipe, cut
from emlio.prepare.targets.tally import Record
from emlio.prepare.targets.tar_record import TarRecords, picture_columns
from emlio.prepare.targets.target import TARGETS
from emlio.reading.pictures import Value, picture_features, values_of_record
from emlio.reading.random_reader import spread
from emlio.store.atomic_file import write_atomically

__all__ = ["has_keys", "recipe_of"]

_SAMPLED_RECORDS: Final = 30
_VERSION = 1
"""Incremented when the same options would make other bytes."""

_TAR_VERSION = 2
"""Likewise, for tars."""

_SAMPLED = 64
"""Items that are written to no file to learn how much longer they are in a tar, and what its columns are."""


def has_keys(options: ConvertOptions) -> bool:
    """Return whether the records of a conversion have keys, each of which must be there once."""
    return options.to == "wds" and options.keys == "source"


def recipe_of(
    options: ConvertOptions, kind: str, source: RecordSource, keys_of: Callable[[int], Adds | None]
) -> Recipe:
    """Return what is made of a source.

    Args:
        options: of the conversion.
        kind: of the source.
        source: its items.
        keys_of: returns to what the keys of so many shards are added.

    Raises:
        ConfigError: it cannot be cut as the options say.
        DatasetError: it holds nothing.
    """
    sizes = source.listing.sizes_bytes
    if len(sizes) == 0:
        raise DatasetError(f"source {options.source}: must hold at least one item, holds none")
    columns: dict[str, str] = {}
    if options.to == "wds":
        sizes, columns = _tar_sizes(source)
    order = _order(len(sizes), options.seed, shuffle=options.shuffle)
    shard_bytes = options.shard_bytes
    if shard_bytes is None and options.shards is None:
        shard_bytes = DEFAULT_SHARD_BYTES
    bounds = cut(sizes[order], shard_bytes=shard_bytes, shards=options.shards)
    description: dict[str, str | int | bool | None] = {
        "made_by": "emlio convert",
        "version": _VERSION,
        "source_kind": kind,
        "source": source.listing.fingerprint,
        "records": len(sizes),
        "shuffle": options.shuffle,
        "seed": options.seed if options.shuffle else None,
    }
    if options.transcode:
        description["transcode"] = True
    if options.check != "decode" or not can_decode():
        # Shards whose pictures were not decoded differ from those of a run that decodes.
        description["check"] = "header"
    if options.to != "tfrecord":
        description |= {"to": options.to, "keys": options.keys, "columns": _TAR_VERSION}
    if source.listing.tokens:
        description["tokens"] = source.listing.tokens
    digest = hashlib.blake2b(repr(sorted(description.items())).encode(), digest_size=16)
    digest.update(bounds.astype("<i8").tobytes())

    pictures = ExamplePictures(source) if options.check == "decode" and can_decode() else None
    keys = keys_of(len(bounds) - 1)

    def records(shard: int) -> Iterator[Record]:
        places = order[int(bounds[shard]) : int(bounds[shard + 1])].tolist()
        return _records(options, source, shard, places, keys, pictures, columns)

    return Recipe(
        digest=digest.hexdigest(),
        description={**description, "source_path": str(options.source), **_tokenizer(options)},
        bounds=bounds,
        shard_bytes=np.add.reduceat(sizes[order], bounds[:-1]),
        records=records,
        label_names=source.listing.label_names,
        tokens=source.listing.tokens,
        sampled=repr((sorted(columns.items()), pictures.names if pictures is not None else ())),
    )


def _tokenizer(options: ConvertOptions) -> dict[str, str]:
    """Return the tokenizer's name for the description; its content, not its name, determines the bytes."""
    tokenizer = options.settings.tokenizer
    return {} if tokenizer is None else {"tokenizer": tokenizer.name}


def _tar_sizes(source: RecordSource) -> tuple[npt.NDArray[np.int64], dict[str, str]]:
    """Return the approximate sizes of the items in tars, and which columns of bytes are pictures.

    Headers and padding are added to each member; see `members_of` for the columns.
    """
    sizes = source.listing.sizes_bytes
    places = np.unique(np.linspace(0, len(sizes) - 1, _SAMPLED).astype(np.int64)).tolist()
    added: list[int] = []
    kinds: dict[str, set[str]] = {}
    for place in places:
        try:
            sample = source.record(place)
            sample = sample if sample.record is None else sample_of_example(sample.record)
            record = TarRecords(numbered=True).record(sample, place)
        except (DatasetError, ConfigError):
            continue  # the error is raised, or listed, when the item is written
        added.append(sum(len(memoryview(part)) for part in record.parts) - int(sizes[place]))
        for column, extension in picture_columns(sample).items():
            kinds.setdefault(column, set()).add(extension)
    least = 2 * tarfile.BLOCKSIZE
    pictures = {column: next(iter(found)) for column, found in kinds.items() if len(found) == 1}
    return np.maximum(sizes + (round(sum(added) / len(added)) if added else least), least), pictures


def _order(records: int, seed: int, *, shuffle: bool) -> npt.NDArray[np.int64]:
    places = np.arange(records, dtype=np.int64)
    if not shuffle:
        return places
    key = hashlib.blake2b(f"emlio.convert/{_VERSION}/{seed}".encode(), digest_size=32).digest()
    return Permutation(records, key).forward(places)


class ExamplePictures:
    """The pictures in the records of one source. Thread-safe."""

    def __init__(self, source: RecordSource) -> None:
        """Read a few records to learn which features hold pictures; no feature, if records are not copied."""
        self._features = picture_features(_sampled_values(source))

    @property
    def names(self) -> list[str]:
        """The names of these features."""
        return sorted(self._features)

    def check(self, sample: Sample) -> None:
        """Decode the pictures of a record.

        Raises:
            DatasetError: one cannot be decoded.
        """
        if sample.record is None or not self._features:
            return
        for name, value in values_of_record(memoryview(sample.record)):
            if name not in self._features or picture_extension(value) in NOT_DECODED:
                continue
            fault = decoding_fault(value)
            if fault is not None:
                raise DatasetError(f"{name}: {fault}; --check header takes it all the same")


def _sampled_values(source: RecordSource) -> Iterator[Sequence[Value]]:
    for place in spread(len(source.listing.sizes_bytes), _SAMPLED_RECORDS):
        with suppress(DatasetError):  # raised, or listed, when the record is copied
            record = source.record(place).record
            if record is None:
                return
            yield values_of_record(memoryview(record))


def _records(
    options: ConvertOptions,
    source: RecordSource,
    shard: int,
    places: list[int],
    keys: Adds | None,
    pictures: ExamplePictures | None,
    columns: Mapping[str, str],
) -> Iterator[Record]:
    """Yield the records of one shard; before it is finished, compare its keys and list skipped items."""
    skips: list[str] = []

    def new_tars() -> TarRecords | None:
        return TarRecords(numbered=options.keys == "numbers", pictures=columns) if options.to == "wds" else None

    def made(place: int, tars: TarRecords | None) -> Record:
        sample = _checked(options, source.record(place), pictures)
        return example_record(sample) if tars is None else tars.record(sample, place)

    def any_is_readable() -> bool:
        for place in spread(len(source.listing.sizes_bytes), _SAMPLED_RECORDS):
            with suppress(DatasetError, ConfigError):
                return bool(made(place, new_tars()))
        return False

    tars = new_tars()
    for place in places:
        try:
            record = made(place, tars)
        except (DatasetError, ConfigError) as error:
            if not _is_of_item(error):
                raise
            key = source.key(place)
            reason = str(error) if str(error).startswith(key) else f"{key}: {error}"
            if options.on_error == "raise":
                if any_is_readable():  # else to skip them is no way out
                    stop = "" if reason.endswith("?") else "."
                    reason += f"{stop} To skip such items, run the same command again with --on-error skip"
                raise DatasetError(reason) from error
            skips.append(reason)
            continue
        yield record
    if keys is not None:
        keys.add(shard, list(tars.keys) if has_keys(options) and tars is not None else [])
    path = options.out / TARGETS[options.to].skips_name(shard)
    try:
        if skips:
            write_atomically(
                path, ("\n".join(" ".join(skip.split()) for skip in skips).encode(errors="replace"), b"\n")
            )
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise disk_error(path, 0, error) from error


def _is_of_item(error: BaseException | None) -> bool:
    """Return whether an error is the item's own, and not of a source that changed, the system or a missing library."""
    while error is not None:
        # Libraries raise an OSError without a number for bytes that they cannot decode.
        if isinstance(error, SourceChangedError | ImportError) or getattr(error, "errno", None) is not None:
            return False
        error = error.__cause__
    return True


def _checked(options: ConvertOptions, sample: Sample, pictures: ExamplePictures | None) -> Sample:
    """Return an item whose pictures, if it has any, can be decoded in training.

    Raises:
        DatasetError: it cannot.
    """
    if sample.picture is None:
        if pictures is not None:
            pictures.check(sample)
        return sample
    extension = picture_extension(sample.picture)
    if extension in NOT_DECODED:
        if not options.transcode:
            raise DatasetError(
                f"pictures must be of a kind that decoders of training read, this one is a {extension.upper()}; "
                "--transcode makes PNG of it"
            )
        name = sample.filename.rpartition(".")[0] or sample.filename
        return replace(sample, picture=as_png(sample.picture), filename=f"{name}.png" if name else "")
    if options.check == "decode" and can_decode():
        fault = decoding_fault(sample.picture)
        if fault is not None:
            raise DatasetError(fault)
    return sample
