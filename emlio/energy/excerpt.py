"""The part of a node's recording that tells of a stretch of time.

Covers: which recording of a file it is, how much of it at once. Does not cover: the file (emlio.energy.store), who asks.
"""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from emlio.energy.reading import Reading
from emlio.energy.store import Recording, Store
from emlio.errors import ConfigError

__all__ = ["Excerpt", "Stretch", "take_excerpt"]

_OTHER_VALUES = 12
"""Of a reading, besides its totals."""

_PATIENCE_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """What is wanted.

    Attributes:
        boot: which start of the machine the times belong to.
        from_ns: by its CLOCK_MONOTONIC.
        to_ns: likewise.
        number: of the recording; 0 for the one that was begun last before the end.
        first: readings with lower numbers are not wanted.
    """

    boot: str
    from_ns: int
    to_ns: int
    number: int = 0
    first: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Excerpt:
    """What there is.

    Attributes:
        recording: the one it is of.
        readings: of the stretch, with one before and one after it where there are such.
        more: whether there was no room for all.
    """

    recording: Recording
    readings: tuple[Reading, ...]
    more: bool


def take_excerpt(path: Path, stretch: Stretch, *, most_readings: int, most_values: int) -> Excerpt:
    """Open the file, read, and close it again.

    Args:
        path: the recorder's file.
        stretch: what is wanted.
        most_readings: at once.
        most_values: numbers in them; one reading is taken however many it has.

    Raises:
        ConfigError: the file cannot be read, or has nothing of this start of the machine.
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
            f"{path} must hold a recording of this node that was begun since it started and before the time asked for; "
            f"it holds {len(begun)} such of {len(recordings)}"
        )
    return max(chosen, key=lambda one: one.run.begun_mono_ns)
