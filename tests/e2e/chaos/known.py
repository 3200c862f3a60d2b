"""The dataset of all runs: made once, its content known without reading it again.

Covers: making it, the copy each daemon serves, what every record must be. Does not cover: which rank gets which record
(tests.e2e.chaos.judge).
"""

import os
import shutil
import zlib
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from emlio.index.opening import open_dataset
from emlio.planner.catalog import Catalog
from emlio_testing.datasets import make_dataset, numbered_payload

__all__ = ["RECORDS", "Known", "copy_for", "make_known"]

RECORDS = 20_000
_SHARDS = 8
_LEAST_BYTES, _MOST_BYTES = 64, 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """The dataset.

    Attributes:
        folder: where it lies; nobody writes to it.
        catalog: its shards as the plan sees them.
        checksums: CRC-32 of each record.
    """

    folder: Path
    catalog: Catalog
    checksums: tuple[int, ...]

    @property
    def shards(self) -> tuple[str, ...]:
        """The names of its files."""
        return tuple(entry.name for entry in self.catalog.shards)


def _payload(record: int) -> bytes:
    spread = record * 2_654_435_761 % (_MOST_BYTES - _LEAST_BYTES + 1)
    return numbered_payload(record, _LEAST_BYTES + spread)


def make_known(folder: Path) -> Known:
    """Make it in a folder that is not there yet, or take what an earlier call left there."""
    whole = folder.with_suffix(".whole")
    if not whole.exists():
        made = make_dataset(folder, records=RECORDS, shards=_SHARDS, payload=_payload)
        whole.touch()
    else:
        made = [_payload(record) for record in range(RECORDS)]
    with open_dataset("known", folder) as dataset:
        catalog = Catalog(shards=tuple(dataset.entries))
    return Known(folder=folder, catalog=catalog, checksums=tuple(zlib.crc32(record) for record in made))


def copy_for(known: Known, folder: Path, damaged: Collection[str]) -> None:
    """A copy of the dataset whose files named in `damaged` may be written to; the others are links and must not be."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in known.folder.iterdir():
        (folder / path.name).unlink(missing_ok=True)
        if path.name in damaged:
            shutil.copy2(path, folder / path.name)
        else:
            os.link(path, folder / path.name)
