"""The loader's arguments `subset=`, `repeat=`, `weights=` and `samples=`: which records, and how often.

Covers: each form that a user may give, files of ids and weights. Does not cover: the subsets themselves (emlio.planner.choice).
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, SupportsFloat, cast

import numpy as np
import numpy.typing as npt

from emlio.arguments import as_whole, whole
from emlio.errors import ConfigError
from emlio.planner.choice.choice import MOST_REPEATS, Choice
from emlio.planner.choice.fraction import Fraction
from emlio.planner.choice.record_set import RecordSet
from emlio.planner.choice.record_weights import RecordWeights
from emlio.planner.choice.selection import Subset
from emlio.planner.choice.wanted import ClassWeights, GivenWeights, Wanted, set_of_ids
from emlio.planner.choice.weighted import MOST_DRAWS
from emlio.planner.choice.where import Where
from emlio.planner.sampling import EVERYTHING, Sampling
from emlio.units import counted

__all__ = ["Ids", "Weights", "find_sampling"]

_FILE_ENDINGS: Final = (".npy", ".txt", ".ids", ".csv")
_MOST_FILE_BYTES: Final = 64 << 30
_COLUMN: Final = "label"
_SHOWN: Final = 60


class Weights:
    """Relative frequencies of records: for each class, or for each record. Immutable.

    Args:
        weights: a dictionary of weights by class, its number or its name, in which "*" stands for all others; or numbers, one
            for each record by its id: a list, a NumPy array, or a `.npy` file.
        column: the column that holds the classes.
    """

    __slots__ = ("wanted",)

    def __init__(
        self,
        weights: "Mapping[int | str, float] | Sequence[float] | npt.NDArray[Any] | str | os.PathLike[str]",
        *,
        column: str = _COLUMN,
    ) -> None:
        self.wanted: Final = _weights(weights, column)

    def __repr__(self) -> str:
        return f"<{'Weights of classes' if isinstance(self.wanted, ClassWeights) else 'Weights of records'}>"


class Ids:
    """Records by their ids, as `ids=True` and `emlio plan --step` show them. Immutable.

    Args:
        ids: whole numbers in any order, each once: a list, a NumPy array or another iterable; or a file, `.npy` or a text
            with one number a line.
    """

    __slots__ = ("records",)

    def __init__(self, ids: "Iterable[int] | npt.NDArray[Any] | str | os.PathLike[str]") -> None:
        self.records: Final = (
            _read(Path(ids)) if isinstance(ids, str | os.PathLike) else set_of_ids(_array(cast("Any", ids)))
        )

    def __eq__(self, other: object) -> bool:
        """Compare the sets of ids."""
        return isinstance(other, Ids) and self.records == other.records

    def __hash__(self) -> int:
        return hash(self.records)

    def __repr__(self) -> str:
        return f"<Ids of {counted(self.records.count, 'record')}>"


def find_sampling(subset: object, repeat: object, weights: object = None, samples: object = None) -> Sampling:
    """Return the sampling that the arguments mean, or what it follows from once the dataset is known.

    Raises:
        ConfigError: one is wrong; the error names it.
    """
    times = whole("repeat", repeat, least=1, most=MOST_REPEATS)
    found = None if subset is None else _subset(subset)
    drawn = None if samples is None else whole("samples", samples, least=1, most=MOST_DRAWS, otherwise=", or None")
    if weights is not None or drawn is not None or isinstance(found, Where):
        wanted = None if weights is None else _weights_given(weights)
        return Wanted(subset=found, repeat=times, weights=wanted, samples=drawn)
    return EVERYTHING if found is None and times == 1 else Choice(subset=found, repeat=times)


def _weights_given(given: object) -> ClassWeights | GivenWeights:
    if isinstance(given, Weights):
        return given.wanted
    if isinstance(given, bytes) or not isinstance(given, Iterable | os.PathLike):
        raise ConfigError(
            f"weights must be weights by class as in {{0: 1.0, 1: 3.0}}, a number for each record, or Weights(...), got {given!r}"
        )
    return Weights(cast("Any", given)).wanted


def _weights(given: Any, column: str) -> ClassWeights | GivenWeights:
    if not isinstance(cast("object", column), str) or not column or "`" in column:
        raise ConfigError(f"the column of weights must be the name of a column, got {column!r}")
    if isinstance(given, Mapping):
        by_class = dict[int | str, float]()
        for name, weight in cast("Mapping[object, object]", given).items():
            key = name if isinstance(name, str) else as_whole(name)
            if key is None or isinstance(weight, bool | str | bytes) or not isinstance(weight, SupportsFloat):
                raise ConfigError(f"weights must be numbers by class, by its number or name, got {name!r}: {weight!r}")
            by_class[key] = float(weight)
        return ClassWeights(by_class, column)
    if column != _COLUMN:
        raise ConfigError(
            f"column must be given with weights by class only, got {column!r} with a weight for each record"
        )
    is_file = isinstance(given, str | os.PathLike)
    try:
        values: Any = np.load(cast("Any", given), allow_pickle=False) if is_file else np.asarray(given)
    except (OSError, ValueError, TypeError, OverflowError, EOFError) as error:
        got = f"{os.fspath(given)!r}: {_why(error)}" if is_file else f"{given!r}: {error}"
        raise ConfigError(f"weights must be numbers or a .npy file of numbers, got {got}") from None
    if values.ndim != 1 or values.dtype.kind not in "iuf":
        raise ConfigError(f"weights must be a list of numbers, got {values.dtype} of shape {values.shape}")
    return GivenWeights(RecordWeights.of(values.astype(np.float64)))


def _subset(given: object) -> Subset:
    if isinstance(given, Fraction | RecordSet | Where):
        return given
    if isinstance(given, Ids):
        return given.records
    if isinstance(given, str):
        if given.endswith(_FILE_ENDINGS) or os.path.isfile(given):
            return Ids(given).records
        try:
            return Where(given)
        except ConfigError as error:
            raise ConfigError(
                f"subset must be a predicate or a file of ids if it is a text, got {_short(given)}: {error}"
            ) from None
    if isinstance(given, os.PathLike):
        return Ids(cast("os.PathLike[str]", given)).records
    if isinstance(given, bool | int | float | bytes | dict) or not isinstance(given, Iterable):
        raise ConfigError(
            "subset must be Fraction(...), Ids(...), Where(...), ids as a list or an array, a file of ids or a predicate, "
            f"got {given!r}. train_test_split(0.1, seed=0) returns two fractions"
        )
    listed = cast("Sequence[object]", given) if isinstance(given, list | tuple) else ()
    if any(isinstance(one, Fraction | Where | Ids | str) for one in listed):
        raise ConfigError(
            f"subset must be one choice of records, got {_short(listed)}. Where(PREDICATE, FRACTION) chooses those of a "
            "fraction for which a predicate holds"
        )
    return Ids(cast("Iterable[int]", given)).records


def _short(given: object) -> str:
    text = repr(given)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _why(error: Exception) -> str:
    """Return why a file could not be read. NumPy takes what is no .npy file for a pickle."""
    if isinstance(error, OSError):
        return f"it cannot be read ({error.strerror or error})"
    return "it is no .npy file of numbers"


def _array(ids: Any) -> npt.NDArray[Any]:
    """Return an array of numbers from anything that holds some."""
    values: Any = ids
    if not hasattr(ids, "__array__") and not isinstance(ids, Sequence):
        values = list(ids)
    try:
        array: npt.NDArray[Any] = np.asarray(values)
    except (ValueError, TypeError, OverflowError) as error:
        raise ConfigError(f"the ids of a subset must be whole numbers: {error}") from None
    if array.dtype.kind == "O":  # numbers beyond 64 bits
        raise ConfigError("the ids of a subset must be whole numbers below 2**40, got others")
    return array


def _read(path: Path) -> RecordSet:
    words = f"the ids in {path}"
    try:
        if path.suffix == ".npy":
            return set_of_ids(np.load(path, allow_pickle=False), words)
        size = path.stat().st_size
        if size > _MOST_FILE_BYTES:
            raise ConfigError(f"{words} must be at most {_MOST_FILE_BYTES >> 30} GiB, got {size >> 30} GiB")
        text = path.read_bytes()
    except (OSError, ValueError, EOFError) as error:
        raise ConfigError(f"subset must be ids or a file of them, got {str(path)!r}: {_why(error)}") from None
    return set_of_ids(_numbers(text, path), words)


def _numbers(text: bytes, path: Path) -> npt.NDArray[np.int64]:
    """Return the numbers of a text, one a line. Empty lines are allowed."""
    lines = text.split(b"\n")
    try:
        return np.array([int(line) for line in lines if line and not line.isspace()], np.int64)
    except (ValueError, OverflowError):
        pass
    for number, line in enumerate(lines, 1):
        stripped = line.strip()
        if stripped and not (stripped.isdigit() and len(stripped) < 19):
            shown = stripped[:40].decode(errors="replace")
            raise ConfigError(f"a file of ids must have one whole number a line, line {number} of {path} is {shown!r}")
    raise ConfigError(f"a file of ids must have one whole number a line, {path} has not")
