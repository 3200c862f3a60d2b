"""The part of a node's recording that covers a time range."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from emlio.energy.recording.store import Recording, Store
from emlio.energy.values.reading import Reading
from emlio.errors import ConfigError

__all__ = ["Excerpt", "Stretch", "take_excerpt"]

_OTHER_VALUES = 12
"""The number of values in a reading besides its totals."""

_PATIENCE_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """The requested time range.

    Attributes:
        boot: the id of the boot that the times belong to.
        from_ns: by CLOCK_MONOTONIC of that boot.
        to_ns: by the same clock.
        number: of the recording; 0 for the last one that began before `to_ns`.
        first: readings with lower numbers are left out.
    """

    boot: str
    from_ns: int
    to_ns: int
    number: int = 0
    first: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Excerpt:
    """The readings that were found.

    Attributes:
        recording: the recording they belong to.
        readings: those of the range, and one before and one after it where they exist.
        more: whether a limit cut off further readings.
    """

    recording: Recording
    readings: tuple[Reading, ...]
    more: bool


def take_excerpt(path: Path, stretch: Stretch, *, most_readings: int, most_values: int) -> Excerpt:
    """Open the file, read the range and close the file.

    Args:
        path: the recorder's file.
        stretch: the requested range.
        most_readings: limit on readings.
        most_values: limit on numbers in them; at least one reading is returned regardless.

    Raises:
        ConfigError: the file cannot be read, or holds no matching recording of this boot.
    """
    with Store(path, patience_s=_PATIENCE_S) as store:
        recording = _choose(path, store.recordings(), stretch)
        most = max(min(most_readings, most_values // (_OTHER_VALUES + len(recording.run.devices))), 1)
        found = store.readings(recording.number, from_ns=stretch.from_ns, to_ns=stretch.to_ns, from_seq=stretch.first)
        with closing(found):
            readings = tuple(islice(found, most + 1))
        return Excerpt(recording=recording, readings=readings[:most], more=len(readings) > most)


def _choose(path: Path, recordings: Sequence[Recording], stretch: Stretch) -> Recording:
    begun = [
        one for one in recordings if one.run.boot == stretch.boot and one.run.begun_mono_ns <= max(stretch.to_ns, 0)
    ]
    chosen = [one for one in begun if stretch.number in (0, one.number)]
    if not chosen:
        raise ConfigError(
            f"{path} must hold one recording of this node since its last boot and from before the requested time, "
            f"{len(begun)} of its {len(recordings)} recordings are"
        )
    return max(chosen, key=lambda one: one.run.begun_mono_ns)
