"""Conversion from any source to shuffled, verified shards."""

import hashlib
import os
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from emlio.errors import ConfigError, DatasetError
from emlio.extras import how_to_install
from emlio.images.decoding import as_png, can_decode, decoding_fault
from emlio.images.header import NOT_DECODED, picture_extension
from emlio.planner.permutation import Permutation
from emlio.prepare.disk import disk_error
from emlio.prepare.sample import Sample
from emlio.prepare.sources.choice import guess_kind, open_source, source_kinds, split_source, usual_name
from emlio.prepare.sources.record_source import Ignored, RecordSource
from emlio.prepare.sources.settings import SourceSettings
from emlio.prepare.targets.example_form import example_record, sample_of_example
from emlio.prepare.targets.shard_set import Recipe, cut, write_shards
from emlio.prepare.targets.tally import Record
from emlio.prepare.targets.tar_record import TarRecords, picture_columns
from emlio.prepare.targets.tar_set import SampleKeys, write_tars
from emlio.prepare.targets.target import TARGETS, UNPACKED_NAME, sole_writer
from emlio.reading.pictures import Value, picture_features, values_of_record
from emlio.reading.random_reader import spread
from emlio.store.atomic_file import write_atomically

__all__ = ["DEFAULT_SHARD_BYTES", "ConvertOptions", "ConvertReport", "convert"]

_SAMPLED_RECORDS: Final = 30


DEFAULT_SHARD_BYTES = 256 << 20
"""Large enough that opening a shard costs little, small enough to balance a few hundred of them
over daemons.
"""

_VERSION = 1
"""Incremented when the same options would make other bytes."""

_TAR_VERSION = 2
"""Likewise, for tars."""

_SAMPLED = 64
"""Items that are written to no file to learn how much longer they are in a tar, and what its columns are."""

_LEAST_WORKERS = 4
"""With a source on another machine, workers mostly wait."""


def default_workers() -> int:
    """Return the number of cores, but at least 4."""
    return max(_LEAST_WORKERS, len(os.sched_getaffinity(0)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertOptions:
    """The options of a conversion.

    Attributes:
        source: a directory or a file.
        out: the directory of the new dataset.
        source_kind: one of `source_kinds`, or None to guess it.
        to: the form of the new dataset: TFRecord files, or WebDataset tars.
        keys: the keys of the samples of a WebDataset: "source" takes paths, or the keys of tars,
            where the source has any; "numbers" takes the numbers of the items.
        source_options: those of a format that is served in place.
        settings: what else is said of the source, such as a tokenizer.
        shard_bytes: the approximate size of a shard; None where `shards` is given.
        shards: how many shards to make, or None.
        workers: how many shards are written at once; None for `default_workers()`.
        seed: of the order of the records.
        shuffle: whether to change the source's order. A source is often sorted by class, and a
            reader of the dataset in order, for example to validate on its first part, should see
            all classes.
        force: replace an earlier dataset of these commands in `out`.
        labels: a file that lists the classes in the order of their numbers, or None.
        on_error: handling of an unreadable item: "raise" ends the conversion, "skip" leaves the
            item out and lists it.
        check: "decode" decodes each picture, if Pillow is installed, so that none is packed that
            training cannot read, also in the records of TFRecord files; "header" reads headers only.
        transcode: whether pictures of kinds that decoders of training do not read, such as GIF,
            become PNG; otherwise they are unreadable items.
    """

    source: Path
    out: Path
    source_kind: str | None = None
    to: Literal["tfrecord", "wds"] = "tfrecord"
    keys: Literal["source", "numbers"] = "source"
    source_options: Mapping[str, str] = field(default_factory=dict[str, str], hash=False)
    settings: SourceSettings = field(default_factory=SourceSettings)
    shard_bytes: int | None = None
    shards: int | None = None
    workers: int | None = None
    seed: int = 0
    shuffle: bool = True
    force: bool = False
    labels: Path | None = None
    on_error: Literal["raise", "skip"] = "raise"
    check: Literal["decode", "header"] = "decode"
    transcode: bool = False

    def __post_init__(self) -> None:
        if self.source_kind is not None and self.source_kind not in source_kinds():
            raise ConfigError(f"source_kind must be one of {', '.join(source_kinds())}, got {self.source_kind!r}")
        if self.to not in TARGETS:
            raise ConfigError(f"--to must be one of {', '.join(TARGETS)}, got {self.to!r}")
        if self.keys != "source" and self.to != "wds":
            raise ConfigError(f"--keys {self.keys} must be given with --to wds: only samples of a WebDataset have keys")
        if self.shard_bytes is not None and self.shards is not None:
            raise ConfigError("give either the size of a shard or the number of shards, not both")
        if self.check not in ("decode", "header"):
            raise ConfigError(f"--check must be decode or header, got {self.check!r}")
        if self.transcode and not can_decode():
            raise ConfigError(f"--transcode requires Pillow: {how_to_install('images')}")
        if self.workers is not None and self.workers < 1:
            raise ConfigError(f"--workers must be at least 1, got {self.workers}")
        source, out = self.source.resolve(), self.out.resolve()
        if source == out or out in source.parents:
            raise ConfigError(
                f"out must not be the source or a folder that contains it, got {self.out} for {self.source}"
            )
        if source in out.parents and source.is_dir():
            raise ConfigError(f"out must not be inside the source, got {self.out} in {self.source}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertReport:
    """The result of a conversion.

    Attributes:
        source_kind: the source's given or guessed format.
        records: in the dataset.
        size_bytes: of its shards.
        shards: how many there are.
        shards_found: how many of them an earlier run had finished.
        classes: how many different labels occur.
        ignored: the files of the source that are not of its format.
        skipped: items that were left out, each with the reason.
    """

    source_kind: str
    records: int
    size_bytes: int
    shards: int
    shards_found: int
    classes: int
    ignored: Ignored
    skipped: tuple[str, ...]


def convert(options: ConvertOptions, progress: bool = False) -> ConvertReport:
    """Make a dataset; shards that an earlier run of the same conversion finished are kept.

    An interrupt takes effect within one record and leaves only complete shards.

    Raises:
        ConfigError: the options contradict each other or the target's content.
        DatasetError: the source cannot be read, or the target cannot be written.
    """
    of_text = options.settings.tokenizer is not None
    path, given = split_source(options.source, options.source_options)
    kind = usual_name(options.source_kind or guess_kind(path, of_text=of_text))
    write = write_tars if options.to == "wds" else write_shards
    with (
        sole_writer(options.out),
        closing(
            open_source(
                path,
                kind,
                options.labels,
                options.out / UNPACKED_NAME,
                given,
                options.settings,
            )
        ) as source,
    ):
        listing = source.listing
        shards, found = write(
            options.out,
            _recipe(options, kind, source),
            workers=options.workers if options.workers is not None else default_workers(),
            verify=True,
            force=options.force,
            progress=progress,
        )
    labels = {label for shard in shards for label in shard.label_counts or ()}
    return ConvertReport(
        source_kind=kind,
        records=sum(shard.records for shard in shards),
        size_bytes=sum(shard.size_bytes for shard in shards),
        shards=len(shards),
        shards_found=found,
        classes=len(labels),
        ignored=listing.ignored,
        skipped=_skipped(options, len(shards)),
    )


def _recipe(options: ConvertOptions, kind: str, source: RecordSource) -> Recipe:
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
    keys = None
    if options.to == "wds" and options.keys == "source":
        keys = SampleKeys(options.out, len(bounds) - 1)

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
    keys: SampleKeys | None,
    pictures: ExamplePictures | None,
    columns: Mapping[str, str],
) -> Iterator[Record]:
    """Yield the records of one shard; before it is finished, compare its keys and list skipped items."""
    skips: list[str] = []
    tars = TarRecords(numbered=options.keys == "numbers", pictures=columns) if options.to == "wds" else None
    for place in places:
        try:
            sample = _checked(options, source.record(place), pictures)
            record = example_record(sample) if tars is None else tars.record(sample, place)
        except (DatasetError, ConfigError) as error:
            key = source.key(place)
            reason = str(error) if str(error).startswith(key) else f"{key}: {error}"
            if options.on_error == "raise":
                stop = "" if reason.endswith("?") else "."
                raise DatasetError(
                    f"{reason}{stop} To skip such items, run the same command again with --on-error skip"
                ) from error
            skips.append(reason)
            continue
        yield record
    if keys is not None and tars is not None:
        keys.add(tars.keys)
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


def _skipped(options: ConvertOptions, shards: int) -> tuple[str, ...]:
    lines: list[str] = []
    for shard in range(shards):
        path = options.out / TARGETS[options.to].skips_name(shard)
        if path.is_file():
            lines += path.read_text(encoding="utf-8", errors="replace").splitlines()
    return tuple(lines)
