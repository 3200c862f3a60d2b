"""Settings of direct reading: `emlio-bench disk --sweep` finds them for a disk and writes them to a file."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emlio.errors import ConfigError
from emlio.native.disk import ALIGNMENT
from emlio.settings import option, read_settings, read_toml
from emlio.units import parse_size

__all__ = ["IoSettings"]

_MOST_DEPTH = 4096
_MOST_PIECE_BYTES = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class IoSettings:
    """Settings of direct reading.

    Attributes:
        queue_depth: transfers at the disk at once. A single disk gives its best from 32 of 128 KiB on.
        piece_bytes: the size of the largest.
    """

    queue_depth: int = option(64, "transfers at the disk at once", parse=int)
    piece_bytes: int = option(1 << 20, "the size of the largest", parse=parse_size)

    def __post_init__(self) -> None:
        if not 1 <= self.queue_depth <= _MOST_DEPTH:
            raise ConfigError(f"queue-depth must be in [1, {_MOST_DEPTH}], got {self.queue_depth}")
        if not 0 < self.piece_bytes <= _MOST_PIECE_BYTES or self.piece_bytes % ALIGNMENT:
            raise ConfigError(
                f"piece-bytes must be a multiple of {ALIGNMENT} and at most {_MOST_PIECE_BYTES}, got {self.piece_bytes}"
            )

    @staticmethod
    def read(path: Any) -> "IoSettings":
        """Read a file that `text` made.

        Raises:
            ConfigError: it cannot be read, or a value cannot be used.
        """
        place = Path(str(path)).expanduser()
        table = read_toml(place)
        return read_settings(
            IoSettings, flags={}, environment={}, prefix="", table=table, table_name=str(place), others={}
        )

    def text(self) -> str:
        """Return the settings as TOML."""
        return f"queue-depth = {self.queue_depth}\npiece-bytes = {self.piece_bytes}\n"
