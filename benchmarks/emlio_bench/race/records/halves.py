"""A dataset in two halves, one of them on the training host (the paper's figure 10)."""

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["Halves", "in_halves"]

_NUMBER: Final = re.compile(r"[0-9]+")
_FOLDER: Final = "halves"


@dataclass(frozen=True, slots=True, kw_only=True)
class Halves:
    """The folders of both halves.

    Attributes:
        storage: folder of the shards with even numbers.
        training: folder of the shards with odd numbers.
    """

    storage: Path
    training: Path


def in_halves(whole: Path) -> Halves:
    """Make both halves, once.

    A file belongs to the shard whose number is in its name. A file without a number belongs to both
    halves.

    Args:
        whole: folder of shards.
    """
    folder = whole.with_name(f"{whole.name}.{_FOLDER}")
    halves = Halves(storage=folder / "storage", training=folder / "training")
    if folder.is_dir():
        return halves
    making = folder.with_name(f"{folder.name}.making")
    shutil.rmtree(making, ignore_errors=True)
    for half in (halves.storage, halves.training):
        (making / half.name).mkdir(parents=True)
    for file in sorted(path for path in whole.iterdir() if path.is_file()):
        number = _NUMBER.search(file.name)
        for parity, half in enumerate((halves.storage, halves.training)):
            if number is None or int(number.group()) % 2 == parity:
                os.link(file, making / half.name / file.name)
    making.rename(folder)
    return halves
