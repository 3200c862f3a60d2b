"""The files that are mounted, and others of the same names, as a daemon may have them when it comes back."""

import os
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["KnownFiles", "make_known_files"]

_SMALL: Final = 3000
_MIDDLE: Final = 60
_LARGE: Final = 5
_SIZES: Final = (0, 1, 4095, 4096, 4097, 131_072, (1 << 20) - 1)
"""At the edges of pages, of reads and of pieces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownFiles:
    """Two folders.

    Attributes:
        files: what is mounted.
        others: the same names with other bytes and times.
    """

    files: Path
    others: Path


def make_known_files(folder: Path) -> KnownFiles:
    """Write both, some 50 MB and 5 MB."""
    for name, small in (("files", _SMALL), ("others", _SMALL // 10)):
        chance = random.Random(name)
        sizes = {f"d{number % 7}/{number:05}": chance.randrange(100, 9000) for number in range(small)}
        sizes |= {f"edges/{size}": size for size in _SIZES}
        sizes |= {
            f"middle/{number}": chance.randrange(50_000, 300_000) for number in range(_MIDDLE if small == _SMALL else 3)
        }
        sizes |= {
            f"large/{number}": 3_000_001 + 1_500_000 * number for number in range(_LARGE if small == _SMALL else 1)
        }
        for path, size in sizes.items():
            place = folder / name / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(chance.randbytes(size))
        os.symlink("../large/0", folder / name / "d0" / "link")
    return KnownFiles(files=folder / "files", others=folder / "others")
