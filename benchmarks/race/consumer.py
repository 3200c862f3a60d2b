"""Programs in other environments: consumers, and makers of others' forms of the data.

Covers: their command lines, carrying out a conversion. Does not cover: what they do (emlio.benchmarks.race.consumers).
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from emlio.benchmarks.data import shard_paths
from emlio.benchmarks.processes import Child
from emlio.benchmarks.race.corpus import Corpus, made_once, make_records
from emlio.benchmarks.race.order import RaceOrder

__all__ = ["consumer_command", "converted"]

_CONSUME: Final = Path(__file__).parent / "consumers" / "consume.py"
_CONVERT_S: Final = 3600.0


def consumer_command(python: Path | None, reader: str, order: RaceOrder) -> list[str]:
    """How a consumer is run.

    Args:
        python: of its environment; None for this process's.
        reader: its module in emlio.benchmarks.race.consumers.
        order: what it reads.
    """
    return [str(python or sys.executable), str(_CONSUME), reader, msgspec.json.encode(order).decode()]


def converted(
    python: Path | None, reader: str, corpus: Corpus, folder: Path, *, form: str, options: Mapping[str, str | int]
) -> Path:
    """A system's own form of the records, made once by its own writer.

    Args:
        python: of its environment.
        reader: its module, which has `convert`.
        corpus: which records.
        folder: where all forms lie.
        form: the name of this one: other options, another name.
        options: for the writer.
    """

    def make(target: Path) -> None:
        shards = [str(path) for path in shard_paths(make_records(corpus, folder))]
        order = {"shards": shards, "out": str(target), **options}
        command = [str(python or sys.executable), str(_CONSUME), "convert", reader, msgspec.json.encode(order).decode()]
        with Child(f"the writer of {form}", command) as writer:
            writer.rest(_CONVERT_S)

    return made_once(folder / form / corpus.name, make)
