"""Datasets of numbered records that emlio.Writer writes."""

from contextlib import suppress
from pathlib import Path
from typing import Any

from emlio import EmlioLoader, Writer

__all__ = ["RECORDS", "files_of", "fill", "ids", "interrupt", "numbered"]

RECORDS = 60
"""The records of a whole dataset, in about ten shards."""


def numbered(number: int) -> dict[str, Any]:
    """Return a record."""
    return {"id": number, "data": bytes([number]) * 500}


def fill(folder: Path, begin: int = 0, end: int = RECORDS, **options: Any) -> None:
    """Write records, those that an earlier run did not finish.

    Args:
        folder: of the dataset.
        begin: the number of the first record.
        end: the number after the last one.
        options: of the writer.
    """
    given: dict[str, Any] = {"shard_size": "5kB", **options}
    with Writer(folder, **given) as writer:
        for number in range(begin + writer.written, end):
            writer.write(numbered(number))


def interrupt(folder: Path, records: int, begin: int = 0, **options: Any) -> int:
    """Write some records of an unfinished dataset; return how many are in finished shards.

    Args:
        folder: of the dataset.
        records: how many are written.
        begin: the number of the first record.
        options: of the writer.
    """
    given: dict[str, Any] = {"shard_size": "5kB", **options}
    with suppress(KeyboardInterrupt), Writer(folder, **given) as writer:
        for number in range(writer.written, records):
            writer.write(numbered(begin + number))
        raise KeyboardInterrupt
    return writer.written


def ids(folder: Path) -> list[int]:
    """Return the numbers of all records, in order."""
    with EmlioLoader(str(folder), batch_size=7, epochs=1, to="numpy", shuffle=False, fields=["id"]) as loader:
        return [int(number) for batch in loader for number in batch["id"].ravel()]


def files_of(folder: Path) -> dict[str, bytes]:
    """Return the content of each file by its name."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
