"""Notes that a file was found changed, so that the next start looks at all files again.

    INDEX.changed          a note, written while the dataset is served
    INDEX.changed-NUMBER   a note that a rebuild of the index has taken up

A rebuild may fail, and files may change while it runs. So it takes up the notes that it finds under
names of their own, and removes exactly those when the new index is stored.

Covers: writing, taking up and removing notes. Does not cover: looking at the files
(emlio.index.building).
"""

import os
import secrets
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

__all__ = ["ChangeNotes"]


class ChangeNotes:
    """The notes beside one index. Thread-safe; several processes may use the same notes."""

    def __init__(self, place: Path) -> None:
        """See the class.

        Args:
            place: the file of the index.
        """
        self._note = place.with_suffix(".changed")

    def add(self) -> None:
        """Note a change. Where the folder cannot be written, it is not noted."""
        with suppress(OSError):
            self._note.touch()

    def take_up(self) -> list[Path]:
        """Return the notes that there are; a change from here on is noted anew."""
        with suppress(OSError):
            os.rename(self._note, f"{self._note}-{secrets.token_hex(6)}")
        try:
            return sorted(self._note.parent.glob(f"{self._note.name}*"))
        except OSError:
            return []

    def remove(self, taken_up: Iterable[Path]) -> None:
        """Remove notes: an index was made since they were taken up."""
        for note in taken_up:
            with suppress(OSError):
                note.unlink()
