"""The data of the convergence experiment: scikit-learn's 1,797 handwritten digits.

A digit has 8 x 8 pixels. The data are a part of the scikit-learn package.

Covers: the split, the training part as TFRecord shards, both parts as arrays. scikit-learn is
imported in this module only. Does not cover: training (emlio_bench.convergence.training).
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from emlio.errors import ConfigError, DatasetError
from emlio.example import encode_example
from emlio.formats.tfrecord.mapping import Feature
from emlio.planner.permutation import Permutation
from emlio.prepare.targets.record import Record
from emlio.prepare.targets.shard_set import Recipe, write_shards
from emlio.prepare.targets.target import sole_writer
from emlio.store.atomic_file import write_atomically
from emlio.tfrecord import FRAME_BYTES

__all__ = [
    "LABEL",
    "PIXELS",
    "SIDE",
    "DigitFiles",
    "Digits",
    "check_scikit_learn",
    "make_digits",
    "read_arrays",
    "read_digits",
    "split_digits",
]

PIXELS: Final = "pixels"
LABEL: Final = "label"
SIDE: Final = 8

_TEST_DIGITS: Final = 360
_SHARDS: Final = 4
_SPLIT_KEY: Final = b"emlio.convergence/1"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Digits:
    """A set of digits.

    Attributes:
        pixels: a row of SIDE * SIDE for each digit, from 0 (paper) to 16 (ink).
        labels: the digits' values.
    """

    pixels: npt.NDArray[np.float32]
    labels: npt.NDArray[np.int64]

    def __post_init__(self) -> None:
        if self.pixels.shape != (len(self.labels), SIDE * SIDE):
            raise DatasetError(
                f"pixels must be {SIDE * SIDE} for each of {len(self.labels)} labels, got shape {self.pixels.shape}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class DigitFiles:
    """The files of both parts.

    Attributes:
        shards: directory of the training part's dataset; record i is row i of the training part.
        arrays: file with both parts as arrays.
        records: number of records in the training part.
        record_bytes: size of all these records, without their frames.
    """

    shards: Path
    arrays: Path
    records: int
    record_bytes: int


def check_scikit_learn() -> None:
    """Raise if scikit-learn is not installed."""
    if find_spec("sklearn") is None:
        raise ConfigError("the digits come with scikit-learn, which is not installed: pip install scikit-learn")


def read_digits() -> Digits:
    """Return all digits, in scikit-learn's order."""
    check_scikit_learn()
    datasets: Any = import_module("sklearn.datasets")
    pixels, labels = datasets.load_digits(return_X_y=True)
    return Digits(pixels=np.ascontiguousarray(pixels, np.float32), labels=np.ascontiguousarray(labels, np.int64))


def split_digits(digits: Digits) -> tuple[Digits, Digits]:
    """Return the training part and the test part; the split is always the same."""
    order = Permutation(len(digits.labels), _SPLIT_KEY).forward(np.arange(len(digits.labels), dtype=np.int64))
    training, test = (
        Digits(pixels=digits.pixels[chosen], labels=digits.labels[chosen])
        for chosen in (order[:-_TEST_DIGITS], order[-_TEST_DIGITS:])
    )
    return training, test


def make_digits(root: Path) -> DigitFiles:
    """Write both parts below `root`, and keep existing shards."""
    training, test = split_digits(read_digits())
    records = [
        encode_example({PIXELS: pixels, LABEL: label})
        for pixels, label in zip(training.pixels, training.labels.tolist(), strict=True)
    ]
    shards, arrays = root / "digits", root / "digits.npz"
    with sole_writer(shards):
        write_shards(shards, _recipe(records, training.labels), workers=1, verify=True, force=False, progress=False)
    content = BytesIO()
    np.savez(
        content,
        training_pixels=training.pixels,
        training_labels=training.labels,
        test_pixels=test.pixels,
        test_labels=test.labels,
    )
    try:
        write_atomically(arrays, (content.getbuffer(),))
    except OSError as error:
        raise DatasetError(f"{arrays}: cannot be written: {error.strerror or error}") from error
    return DigitFiles(shards=shards, arrays=arrays, records=len(records), record_bytes=sum(map(len, records)))


def read_arrays(path: Path) -> tuple[Digits, Digits]:
    """Read the training part and the test part from the file of `make_digits`."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            training, test = (
                Digits(pixels=arrays[f"{part}_pixels"], labels=arrays[f"{part}_labels"])
                for part in ("training", "test")
            )
    except (OSError, KeyError, ValueError) as error:
        raise DatasetError(f"{path}: must hold the digits as arrays: {error}") from error
    return training, test


def _recipe(records: list[bytes], labels: npt.NDArray[np.int64]) -> Recipe:
    sizes = np.array([len(record) + FRAME_BYTES for record in records], dtype=np.int64)
    bounds = np.arange(_SHARDS + 1, dtype=np.int64) * len(records) // _SHARDS
    digest = hashlib.blake2b(digest_size=16)
    digest.update(bounds.astype("<i8").tobytes() + sizes.astype("<i8").tobytes() + b"".join(records))

    def of_shard(shard: int) -> Iterator[Record]:
        for number in range(int(bounds[shard]), int(bounds[shard + 1])):
            yield Record(parts=(records[number],), label=int(labels[number]))

    return Recipe(
        digest=digest.hexdigest(),
        description={"made_by": "emlio-bench convergence", "records": len(records)},
        bounds=bounds,
        shard_bytes=np.add.reduceat(sizes, bounds[:-1]),
        records=of_shard,
        features={
            LABEL: Feature(kind="int64", shape=(1,)),
            PIXELS: Feature(kind="float", shape=(SIDE * SIDE,)),
        },
    )
