"""Programs in other environments: consumers, and converters to other data formats."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from emlio_bench.harness.contest import Corpus
from emlio_bench.harness.data import shard_paths
from emlio_bench.processes.child import Child
from emlio_bench.race.records.corpus import made_once, make_records
from emlio_bench.race.records.order import RaceOrder

__all__ = ["consumer_command", "converted"]

_CONSUME: Final = Path(__file__).resolve().parents[1] / "consumers" / "consume.py"
_CONVERT_S: Final = 3600.0


def consumer_command(python: Path | None, reader: str, order: RaceOrder) -> list[str]:
    """Return the command line of a consumer.

    Args:
        python: interpreter of the consumer's environment; None for this process's interpreter.
        reader: name of its module in emlio_bench.race.consumers.
        order: configuration of the run.
    """
    return [str(python or sys.executable), str(_CONSUME), reader, msgspec.json.encode(order).decode()]


def converted(
    python: Path | None, reader: str, corpus: Corpus, folder: Path, *, form: str, options: Mapping[str, str | int]
) -> Path:
    """Convert the records to a system's own format, once, with that system's own writer.

    Args:
        python: interpreter of the system's environment; None for this process's interpreter.
        reader: module of the system, which has `convert`.
        corpus: the records.
        folder: folder of all formats.
        form: name of this format; different options need a different name.
        options: options of the writer.
    """

    def make(target: Path) -> None:
        shards = [str(path) for path in shard_paths(make_records(corpus, folder))]
        order = {"shards": shards, "out": str(target), **options}
        command = [str(python or sys.executable), str(_CONSUME), "convert", reader, msgspec.json.encode(order).decode()]
        with Child(f"the writer of {form}", command) as writer:
            writer.rest(_CONVERT_S)

    return made_once(folder / form / corpus.name, make)
