"""A disk whose transfers fail, come short, or are denied, for processes of our own (disk_faults.c)."""

import os
import platform
import struct
from collections.abc import Mapping
from pathlib import Path

from emlio_testing.preloads import build_preload, why_no_preload

__all__ = ["DENY_AIO", "DENY_URING", "DiskFaults", "why_no_disk_faults"]

DENY_URING, DENY_AIO = 1, 2

_WRITTEN = ("error", "error_every", "short_every", "unit", "denied", "locked_bytes")
_COUNTED = ("transfers", "failed", "shortened", "refused")
_FIELDS = (*_WRITTEN, *_COUNTED)
_FIRST_LINUX = (6, 10)
"""io_uring ends a transfer with any error that is asked for."""


def why_no_disk_faults() -> str | None:
    """Return why transfers cannot be made to fail here, or None where they can."""
    found = platform.release().split("-")[0].split(".")
    if platform.system() != "Linux" or tuple(map(int, found[:2])) < _FIRST_LINUX:
        return f"it needs Linux 6.10, this is {platform.system()} {platform.release()}"
    return why_no_preload()


class DiskFaults:
    """The transfers of processes that are started with its environment: which fail, come short, or are denied.

    Fields that are written, all 0 at first:
        error: the error of every `error_every`th transfer.
        short_every: every such transfer is asked for in part, in multiples of `unit`.
        denied: which queues a process cannot open, `DENY_URING` and `DENY_AIO`.
        locked_bytes: the memory that a process may lock which starts from now on, as if it were no root's.

    Fields that count: transfers, failed, shortened, refused.
    """

    def __init__(self, folder: Path, file: Path) -> None:
        """See the class. The library is compiled into the folder."""
        self._library = build_preload(Path(__file__).with_suffix(".c"), folder)
        self._file = file
        file.write_bytes(bytes(4 * len(_FIELDS)))

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables for a process that shall have this disk."""
        return {"LD_PRELOAD": str(self._library), "DISK_FAULTS": str(self._file)}

    def set(self, **fields: int) -> None:
        """Write fields in this order."""
        with self._file.open("r+b", buffering=0) as file:
            for name, value in fields.items():
                os.pwrite(file.fileno(), struct.pack("=i", value), 4 * _FIELDS.index(name))

    def mend(self) -> None:
        """End all faults: of processes that run, and of those that start from now on."""
        self.set(error_every=0, short_every=0, denied=0, locked_bytes=0)

    def __getitem__(self, field: str) -> int:
        """Return a field."""
        return int(struct.unpack_from("=i", self._file.read_bytes(), 4 * _FIELDS.index(field))[0])
