"""A trained model as a value, and as a file: which of several changes brings how much, and how likely."""

import hashlib
import io
import os
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import msgspec
import numpy as np
import numpy.typing as npt

from emlio.errors import ConfigError
from emlio.learned.forest import FOREST_ARRAYS, Floats, Forest
from emlio.store.atomic_file import write_atomically

__all__ = ["Model"]

_SHIPPED: Final = Path(__file__).parent / "models"
_FORESTS: Final = ("gain", "chance")
_MOST_BYTES: Final = 16 << 20


class _About(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    names: tuple[str, ...]
    environments: tuple[str, ...]
    epsilon: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Model:
    """A model of changes: each row of its input is a change, and the circumstances in which it is made.

    Attributes:
        names: the columns of a row.
        low, high: of each column, 1 and 99 % of the values that it was trained with.
        gain: the logarithm of the rate after the change over the rate before it.
        chance: a raw score of whether the change brings more than `epsilon`.
        calibration: two rows: raw scores in rising order, and the probability of each.
        epsilon: the gain whose probability `chances` returns.
        environments: the environments in which it was trained, in words.
    """

    names: tuple[str, ...]
    low: Floats
    high: Floats
    gain: Forest
    chance: Forest
    calibration: Floats
    epsilon: float
    environments: tuple[str, ...]

    def __post_init__(self) -> None:
        width = len(self.names)
        if not width or len(set(self.names)) != width:
            raise ConfigError(f"the columns of a model must have different names, got {', '.join(self.names)}")
        for name, bound in (("low", self.low), ("high", self.high)):
            if bound.shape != (width,) or bound.dtype != np.float64 or not np.isfinite(bound).all():
                raise ConfigError(f"{name} of a model must be {width} finite numbers")
        if (self.low > self.high).any():
            raise ConfigError("low of a model must not be above high")
        if max(self.gain.columns, self.chance.columns) > width:
            raise ConfigError(f"the trees of a model must look at its {width} columns only")
        points = self.calibration
        if (
            points.dtype != np.float64
            or points.ndim != 2
            or len(points) != 2
            or not points.size
            or not np.isfinite(points).all()
        ):
            raise ConfigError("the calibration of a model must be two rows of finite numbers")
        if (np.diff(points) < 0).any() or points[1, 0] < 0 or points[1, -1] > 1:
            raise ConfigError("the calibration of a model must rise, with probabilities in [0, 1]")
        if not 0 < self.epsilon < np.inf:
            raise ConfigError(f"epsilon of a model must be a number above 0, got {self.epsilon}")

    def chances(self, rows: Floats) -> Floats:
        """Return the probability that each change brings more than `epsilon`."""
        raw: Floats = self.calibration[0]
        probability: Floats = self.calibration[1]
        return np.interp(self.chance.raw(rows), raw, probability)

    def gains(self, rows: Floats) -> Floats:
        """Return the logarithm of the rate after each change over the rate before it."""
        return self.gain.raw(rows)

    def covers(self, rows: Floats) -> npt.NDArray[np.bool_]:
        """Return which rows lie in the range of the training. A missing value does."""
        return np.asarray(~((rows < self.low) | (rows > self.high)).any(axis=1))

    @property
    def digest(self) -> str:
        """The SHA-256 of all that it holds."""
        found = hashlib.sha256()
        for name, array in sorted(self._arrays().items()):
            found.update(f"{name} {array.dtype.str} {array.shape} ".encode() + array.tobytes())
        return found.hexdigest()

    def save(self, path: Path) -> None:
        """Write a file that `load` reads, as a whole or not at all. The same model gives the same bytes.

        Raises:
            ConfigError: it cannot be written.
        """
        file = io.BytesIO()
        np.savez_compressed(file, allow_pickle=False, **self._arrays())
        try:
            write_atomically(path, [file.getbuffer()])
        except OSError as error:
            raise ConfigError(f"a model must be writable: {path}: {error.strerror}") from error

    @classmethod
    def load(cls, place: Path | str) -> Self:
        """Read a file, or with a name such as "read" a model that comes with EMLIO.

        Raises:
            ConfigError: the file cannot be read, or holds no model.
        """
        path = place if isinstance(place, Path) else _SHIPPED / f"{place}.npz"
        if path is not place and (not isinstance(place, str) or not os.path.isfile(path)):
            raise ConfigError(
                f"a model must be the Path of a file, or the name of one that comes with EMLIO as text, got {place!r}"
            )
        try:
            with path.open("rb") as file:
                data = file.read(_MOST_BYTES + 1)
        except (OSError, ValueError) as error:  # a path with NUL
            told = error.strerror if isinstance(error, OSError) else error
            raise ConfigError(f"a model must be readable: {path}: {told}") from error
        try:
            return cls._of(_read(data))
        except Exception as error:  # NumPy and zipfile raise errors of many kinds for damaged bytes
            told = error if isinstance(error, ConfigError) else f"it is damaged: {type(error).__name__}: {error}"
            raise ConfigError(f"{path} must be a model: {told}") from error

    @classmethod
    def _of(cls, arrays: dict[str, npt.NDArray[np.generic]]) -> Self:
        try:
            about = msgspec.json.decode(arrays["about"].tobytes(), type=_About)
            forests = {
                part: Forest(**{name: arrays[f"{part} {name}"] for name in FOREST_ARRAYS})  # type: ignore[arg-type]
                for part in _FORESTS
            }
            bounds = {name: arrays[name] for name in ("low", "high", "calibration")}
        except KeyError as error:
            raise ConfigError(f"it must hold {error}") from error
        except msgspec.DecodeError as error:
            raise ConfigError(f"what it says of itself must be of this release: {error}") from error
        return cls(**bounds, **forests, **msgspec.structs.asdict(about))  # type: ignore[arg-type]

    def _arrays(self) -> dict[str, npt.NDArray[np.generic]]:
        about = _About(names=self.names, environments=self.environments, epsilon=self.epsilon)
        trees = {"gain": self.gain, "chance": self.chance}
        return {
            "about": np.frombuffer(msgspec.json.encode(about), np.uint8),
            "low": self.low,
            "high": self.high,
            "calibration": self.calibration,
            **{f"{part} {name}": getattr(trees[part], name) for part in _FORESTS for name in FOREST_ARRAYS},
        }


def _read(data: bytes) -> dict[str, npt.NDArray[np.generic]]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        if max(len(data), sum(entry.file_size for entry in archive.infolist())) > _MOST_BYTES:
            raise ConfigError(f"it must hold {_MOST_BYTES >> 20} MiB at most")
        if (damaged := archive.testzip()) is not None:
            raise ConfigError(f"{damaged} is damaged")
    with np.load(io.BytesIO(data), allow_pickle=False) as file:
        return {name: array for name, array in file.items() if isinstance(array, np.ndarray)}
