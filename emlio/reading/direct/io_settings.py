"""Settings of direct reading: `emlio-bench disk --sweep` finds them for a disk and writes them to a file."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emlio.errors import ConfigError
from emlio.native.disk import ALIGNMENT
from emlio.settings import option, read_settings, read_toml
from emlio.units import parse_size

__all__ = ["IoSettings", "parse_depth", "parse_piece"]

_MOST_DEPTH = 4096
_MOST_PIECE_BYTES = 64 << 20


def parse_depth(value: Any) -> int:
    """Return a number of transfers at the disk at once.

    Raises:
        ConfigError: it cannot be one.
    """
    if type(value) is not int or not 1 <= value <= _MOST_DEPTH:
        raise ConfigError(f"must be a whole number in [1, {_MOST_DEPTH}], got {value!r}")
    return value


def parse_piece(value: Any) -> int:
    """Return the size of a transfer.

    Raises:
        ConfigError: it cannot be one.
    """
    size_bytes = parse_size(value)
    if not 0 < size_bytes <= _MOST_PIECE_BYTES or size_bytes % ALIGNMENT:
        raise ConfigError(f"must be a multiple of {ALIGNMENT} bytes and at most 64 MiB, got {value!r}")
    return size_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class IoSettings:
    """Settings of direct reading.

    Attributes:
        queue_depth: transfers at the disk at once. A single disk gives its best from 32 of 128 KiB
            on; the more there are, the longer a thread may do other things before it is idle.
        piece_bytes: the size of the largest.
    """

    queue_depth: int = option(256, "transfers at the disk at once", parse=parse_depth)
    piece_bytes: int = option(1 << 20, "the size of the largest", parse=parse_piece)

    @staticmethod
    def read(path: Any) -> "IoSettings":
        """Read a file that `text` made.

        Raises:
            ConfigError: it cannot be read, or a value cannot be used.
        """
        if not path or not isinstance(path, str | Path):
            raise ConfigError(f"must be the path of a file, got {path!r}")
        place = Path(path).expanduser()
        table = read_toml(place)
        return read_settings(
            IoSettings, flags={}, environment={}, prefix="", table=table, table_name=str(place), others={}
        )

    def text(self) -> str:
        """Return the settings as TOML."""
        return f"queue-depth = {self.queue_depth}\npiece-bytes = {self.piece_bytes}\n"
