"""A wall clock that jumps, for processes of our own.

Covers: a shared library (wall_clock.c) that adds an offset to what the system says the time of day is; the file that holds the
offset. Does not cover: the monotonic clock, which never jumps.
"""

import struct
from collections.abc import Mapping
from pathlib import Path

from emlio_testing.preloads import build_preload

__all__ = ["WallClock"]


class WallClock:
    """The wall clock of those processes that are started with its environment."""

    def __init__(self, folder: Path, file: Path) -> None:
        """See the class. The library is compiled into the folder."""
        self._library = build_preload(Path(__file__).with_suffix(".c"), folder)
        self._file = file
        self.jump(0)

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables for a process that shall have this clock."""
        return {"LD_PRELOAD": str(self._library), "CHAOS_WALL_CLOCK": str(self._file)}

    def jump(self, offset_s: float) -> None:
        """From now on it is so much ahead of the machine's."""
        with self._file.open("r+b" if self._file.exists() else "wb", buffering=0) as file:
            file.write(struct.pack("<q", round(offset_s * 1e9)))
