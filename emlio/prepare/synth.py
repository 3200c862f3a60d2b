"""Synthetic datasets for trials and benchmarks: the same options give the same bytes.

    images   JPEGs like ImageNet's in size and decoding cost, with its feature names. Some hundred
             pictures are drawn and repeated; each record has its own label, file name, and number
             in a JPEG comment, so no two are equal. The pixels depend on the releases of NumPy and
             Pillow, everything else does not.
    example  Examples with image/class/label and an image/encoded that is not an image: the record's
             number in 8 bytes little-endian, then random bytes.
    opaque   not Examples: the record's number in 8 bytes little-endian, then random bytes.

Random bytes come from one pool of 16 MiB, from a different place for each record: they do not
compress, but they repeat.
"""

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

from emlio.draws import draw, random_bytes
from emlio.errors import ConfigError, DatasetError
from emlio.example import encode_example
from emlio.formats.tfrecord.mapping import Feature
from emlio.prepare.synthetic import PicturePool, numbered_picture, pool_size
from emlio.prepare.targets.shard_set import Recipe, cut, write_shards
from emlio.prepare.targets.tally import Record
from emlio.prepare.targets.target import sole_writer
from emlio.progress import Progress
from emlio.tfrecord import FRAME_BYTES
from emlio.units import format_size

__all__ = ["SYNTH_FORMS", "SYNTH_KINDS", "SynthOptions", "synthesise"]

PlainRecord = tuple[int, int, tuple[Buffer, ...]]
"""A record's number, its label, its bytes in parts."""

_MARK: Final = ".emlio-synth"
"""Lies in a folder that was written here: hidden, so that it is no record."""

_AT_ONCE: Final = 4096


def write_files(
    out: Path,
    count: int,
    records: Callable[[int, int], Iterator[PlainRecord]],
    extension: str,
    *,
    workers: int,
    force: bool,
    progress: bool,
) -> None:
    """Write a file for each record.

    Args:
        out: the folder; made if it does not exist.
        count: how many records.
        records: returns records by number, from the first to before the last.
        extension: of the files' names.
        workers: how many threads write.
        force: replace what an earlier call wrote.
        progress: show a line.

    Raises:
        ConfigError: the folder holds anything else.
        DatasetError: the disk is full or broken.
    """
    _prepare(out, force=force)
    made: set[int] = set()
    line = Progress(f"writing {out.name}", count) if progress else None

    def write(first: int) -> int:
        after = min(first + _AT_ONCE, count)
        for number, label, parts in records(first, after):
            folder = out / f"{label:04d}"
            if label not in made:
                folder.mkdir(exist_ok=True)
                made.add(label)
            descriptor = os.open(
                f"{folder}/{number:09d}.{extension}", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666
            )
            try:
                os.writev(descriptor, parts)
            finally:
                os.close(descriptor)
        return after - first

    try:
        with ThreadPoolExecutor(workers, thread_name_prefix="emlio-synth") as pool:
            for done in pool.map(write, range(0, count, _AT_ONCE)):
                if line is not None:
                    line.add(done)
    except OSError as error:
        raise DatasetError(f"{out}: a file cannot be written: {error.strerror or error}") from error
    finally:
        if line is not None:
            line.close()


def _prepare(out: Path, *, force: bool) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
        there = [entry.name for entry in os.scandir(out)]
        if there and (_MARK not in there or not force):
            ours = "a dataset that emlio synth made; --force replaces it" if _MARK in there else f"{sorted(there)[0]}"
            raise ConfigError(f"{out}: must be a new or empty folder, holds {ours}")
        for name in there:
            if name != _MARK:
                shutil.rmtree(out / name)
        (out / _MARK).touch()
    except OSError as error:
        raise DatasetError(f"{out}: cannot be used: {error.strerror or error}") from error


SYNTH_KINDS: Final = ("example", "images", "opaque")
SYNTH_FORMS: Final = ("files", "tfrecord")

_VERSION = 1
_POOL_BYTES = 16 << 20
_ID_BYTES = 8
_DEFAULT_RECORD_BYTES = {"opaque": 100_000, "example": 3000}
_MOST_RECORD_BYTES = 1 << 30
_MOST_RECORDS = 1_000_000_000
_MOST_PIXELS = 65_000
"""The sides of a JPEG are stored in 16 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SynthOptions:
    """The options of a synthetic dataset.

    Attributes:
        kind: one of SYNTH_KINDS.
        records: how many records; None where `size_bytes` is given.
        size_bytes: the approximate total size; None where `records` is given.
        record_bytes: the mean size of a record's payload (number and random bytes), for "opaque"
            (100 kB) and "example" (3 kB).
        spread: sizes are uniform in record_bytes * [1 - spread, 1 + spread].
        image_size: width and height, for "images".
        classes: how many labels, for "images" and "example".
        shard_bytes: the approximate size of a shard.
        seed: of all random choices.
        workers: how many threads draw and write; None for one per core. The bytes do not depend on
            it.
        force: replace an earlier dataset of these commands in the directory.
        form: one of SYNTH_FORMS.
    """

    kind: Literal["images", "opaque", "example"] = "images"
    records: int | None = None
    size_bytes: int | None = None
    record_bytes: int | None = None
    spread: float = 0.0
    image_size: tuple[int, int] = (500, 375)
    classes: int = 1000
    shard_bytes: int = 256 << 20
    seed: int = 0
    workers: int | None = None
    force: bool = False
    form: Literal["files", "tfrecord"] = "tfrecord"

    def __post_init__(self) -> None:
        if self.kind not in SYNTH_KINDS:
            raise ConfigError(f"--kind must be one of {', '.join(SYNTH_KINDS)}, got {self.kind!r}")
        if self.form == "files" and self.kind == "example":
            raise ConfigError(
                "--as files must be given for --kind images or opaque: examples are records of TFRecord files"
            )
        if (self.records is None) == (self.size_bytes is None):
            raise ConfigError("give either --records or --size")
        if self.records is not None and not 1 <= self.records <= _MOST_RECORDS:
            raise ConfigError(f"--records must be from 1 to {_MOST_RECORDS:,}, got {self.records:,}")
        if self.kind == "images" and (self.record_bytes is not None or self.spread):
            raise ConfigError(
                "--record-size and --spread are for --kind opaque and example; the size of images follows from JPEG"
            )
        if self.record_bytes is not None and not _ID_BYTES <= self.record_bytes <= _MOST_RECORD_BYTES:
            raise ConfigError(f"--record-size must be from {_ID_BYTES} B to 1 GiB, got {self.record_bytes:,} B")
        if not 0.0 <= self.spread <= 1.0:
            raise ConfigError(f"--spread must be in [0, 1], got {self.spread}")
        if not all(8 <= side <= _MOST_PIXELS for side in self.image_size):
            raise ConfigError(
                f"--image-size must be from 8x8 to {_MOST_PIXELS}x{_MOST_PIXELS} pixels, got "
                f"{'x'.join(map(str, self.image_size))}"
            )
        if not 1 <= self.classes <= 1_000_000:
            raise ConfigError(f"--classes must be from 1 to 1,000,000, got {self.classes:,}")
        if self.workers is not None and self.workers < 1:
            raise ConfigError(f"--workers must be at least 1, got {self.workers}")


def synthesise(options: SynthOptions, out: Path, progress: bool = False) -> None:
    """Make a dataset; shards that an earlier run with the same options finished are kept.

    Raises:
        ConfigError: the options contradict the directory's content, or Pillow is missing.
        DatasetError: the disk is full or broken.
    """
    workers = options.workers if options.workers is not None else len(os.sched_getaffinity(0))
    if options.form == "files":
        plain = _Images(options, workers, progress) if options.kind == "images" else _Opaque(options)
        extension = "jpg" if options.kind == "images" else "bin"
        count = len(plain.sizes_bytes)
        write_files(out, count, plain.plain, extension, workers=workers, force=options.force, progress=progress)
        return
    with sole_writer(out):
        made = _Images(options, workers, progress) if options.kind == "images" else _Opaque(options)
        write_shards(out, _recipe(options, made), workers=workers, verify=False, force=options.force, progress=progress)


def _recipe(options: SynthOptions, made: "_Images | _Opaque") -> Recipe:
    sizes = made.sizes_bytes
    bounds = cut(sizes, shard_bytes=options.shard_bytes, shards=None)
    description: dict[str, str | int | bool | None] = {
        "made_by": "emlio synth",
        "version": _VERSION,
        "kind": options.kind,
        "records": len(sizes),
        "classes": options.classes if options.kind != "opaque" else None,
        "image_size": "x".join(map(str, options.image_size)) if options.kind == "images" else None,
        "mean_record_bytes": round(float(sizes.mean())) - FRAME_BYTES,
        "spread": str(options.spread),
        "seed": options.seed,
    }
    digest = hashlib.blake2b(repr(sorted(description.items())).encode(), digest_size=16)
    digest.update(bounds.astype("<i8").tobytes())
    digest.update(sizes.astype("<i8").tobytes())

    def records(shard: int) -> Iterator[Record]:
        return made.records(int(bounds[shard]), int(bounds[shard + 1]))

    return Recipe(
        digest=digest.hexdigest(),
        description=description,
        bounds=bounds,
        shard_bytes=np.add.reduceat(sizes, bounds[:-1]),
        records=records,
        label_names={} if options.kind == "opaque" else {label: _class_text(label) for label in range(options.classes)},
        features=made.features,
    )


def _class_text(label: int) -> str:
    return f"class {label}"


def _labels(options: SynthOptions, records: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return (draw("label", options.seed, records) % np.uint64(options.classes)).astype(np.int64)


class _Images:
    """Records of kind "images"."""

    def __init__(self, options: SynthOptions, workers: int, progress: bool) -> None:
        self._options = options
        width, height = options.image_size
        # Sizes are estimated before the pictures are drawn: 100 kB for 500x375.
        about = max(width * height * 100_000 // (500 * 375), 1000)
        expected = options.records if options.records is not None else max((options.size_bytes or 0) // about, 1)
        self._pool = PicturePool(
            pictures=pool_size(expected),
            width=width,
            height=height,
            seed=options.seed,
            workers=workers,
            progress=progress,
        )
        self._sizes = np.array(
            [self._pool.encoded_size_bytes(number) for number in range(len(self._pool.pictures))], dtype=np.int64
        )
        # The bytes around the picture differ slightly from record to record; shard sizes need not
        # be that exact.
        around = len(encode_example(self._features(b"", 0, options.classes - 1))) + FRAME_BYTES
        count = options.records
        if count is None:
            count = max(round((options.size_bytes or 0) / (float(self._sizes.mean()) + around)), 1)
        self.sizes_bytes = self._sizes[self._pictures(_numbers(count))[1]] + around
        self.features = {
            name: Feature(kind="int64" if isinstance(value, int) else "bytes", shape=(1,))
            for name, value in sorted(self._features(b"", 0, 0).items())
        }

    def records(self, first: int, after: int) -> Iterator[Record]:
        for number, label, (encoded,) in self.plain(first, after):
            yield Record(parts=(encode_example(self._features(bytes(encoded), number, label)),), label=label)

    def plain(self, first: int, after: int) -> Iterator[PlainRecord]:
        numbers = np.arange(first, after, dtype=np.int64)
        labels, pictures = self._pictures(numbers)
        for number, label, picture in zip(range(first, after), labels.tolist(), pictures.tolist(), strict=True):
            yield number, label, (numbered_picture(self._pool.pictures[int(picture)], number),)

    def _pictures(self, numbers: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return labels and pictures.

        As far as there are enough pictures, each shows one class only, so that a model can learn
        the classes.
        """
        labels = _labels(self._options, numbers)
        pool, classes = len(self._pool.pictures), self._options.classes
        each = max(pool // classes, 1)
        which = (draw("picture", self._options.seed, numbers) % np.uint64(each)).astype(np.int64)
        return labels, (labels + classes * which) % pool

    def _features(self, encoded: bytes, number: int, label: int) -> dict[str, bytes | str | int]:
        width, height = self._options.image_size
        return {
            "image/channels": 3,
            "image/class/label": label,
            "image/class/text": _class_text(label),
            "image/colorspace": "RGB",
            "image/encoded": encoded,
            "image/filename": f"synthetic_{number:012d}.JPEG",
            "image/format": "JPEG",
            "image/height": height,
            "image/width": width,
        }


class _Opaque:
    """Records of the kinds "opaque" and "example": a head, the record's number, random bytes."""

    def __init__(self, options: SynthOptions) -> None:
        self._options = options
        self._example = options.kind == "example"
        self._mean = options.record_bytes or _DEFAULT_RECORD_BYTES[options.kind]
        largest = int(self._mean * (1 + options.spread)) + 1
        pool = random_bytes("opaque", options.seed, _POOL_BYTES)
        # A record that begins near the pool's end continues at its beginning.
        self._pool = memoryview(pool * (1 + -(-largest // _POOL_BYTES)))
        around = (FRAME_BYTES if options.form == "tfrecord" else 0) + (
            len(self._head(self._mean, 0)) if self._example else 0
        )
        count = options.records
        if count is None:
            count = max(round((options.size_bytes or 0) / (self._mean + around)), 1)
            if count > _MOST_RECORDS:
                raise ConfigError(
                    f"a dataset must have at most {_MOST_RECORDS} records, {format_size(options.size_bytes or 0)} "
                    f"would be {count}"
                )
        self.sizes_bytes = self._payload_sizes(_numbers(count)) + around
        self.features: dict[str, Feature] = {}
        if self._example:
            self.features = {
                "image/class/label": Feature(kind="int64", shape=(1,)),
                "image/encoded": Feature(kind="bytes", shape=(1,)),
            }

    def plain(self, first: int, after: int) -> Iterator[PlainRecord]:
        labels = _labels(self._options, np.arange(first, after, dtype=np.int64)).tolist()
        for number, label, record in zip(range(first, after), labels, self.records(first, after), strict=True):
            yield number, label, record.parts

    def records(self, first: int, after: int) -> Iterator[Record]:
        numbers = np.arange(first, after, dtype=np.int64)
        sizes = self._payload_sizes(numbers).tolist()
        places = (draw("place", self._options.seed, numbers) % np.uint64(_POOL_BYTES)).tolist()
        ids = numbers.astype("<u8").tobytes()
        pool = self._pool
        if not self._example:
            for at, place, size in zip(range(0, len(ids), _ID_BYTES), places, sizes, strict=True):
                yield Record(parts=(ids[at : at + _ID_BYTES], pool[place : place + size - _ID_BYTES]))
            return
        heads: dict[tuple[int, int], bytes] = {}
        labels = _labels(self._options, numbers).tolist()
        for at, place, size, label in zip(range(0, len(ids), _ID_BYTES), places, sizes, labels, strict=True):
            head = heads.get((size, label))
            if head is None:
                head = self._head(size, label)
                if len(heads) < 100_000:
                    heads[size, label] = head
            number = ids[at : at + _ID_BYTES]
            yield Record(parts=(head, number, pool[place : place + size - _ID_BYTES]), label=label)

    def _head(self, size: int, label: int) -> bytes:
        """Return the bytes before the payload.

        image/encoded is the last feature, so its content is at the end of the record.
        """
        whole = encode_example({"image/class/label": label, "image/encoded": bytes(size)})
        return whole[: len(whole) - size]

    def _payload_sizes(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        low = max(int(self._mean * (1 - self._options.spread)), _ID_BYTES)
        high = max(int(self._mean * (1 + self._options.spread)), low)
        return low + (draw("size", self._options.seed, numbers) % np.uint64(high - low + 1)).astype(np.int64)


def _numbers(count: int) -> npt.NDArray[np.int64]:
    return np.arange(count, dtype=np.int64)
