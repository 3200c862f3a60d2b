"""A recording as one long table, in CSV or Parquet, for spreadsheets and data frames.

Parquet is written by pyarrow (extra `parquet`).
"""

import csv
from collections.abc import Iterable, Iterator
from dataclasses import fields
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

from emlio.energy.values.reading import Reading
from emlio.energy.values.run import Run
from emlio.errors import ConfigError
from emlio.extras import how_to_install

__all__ = ["COLUMNS", "rows", "write_csv", "write_parquet"]

_READING = tuple(field.name for field in fields(Reading) if field.name not in ("totals", "events"))
_DEVICE = ("domain", "source", "method")
COLUMNS: dict[str, type] = {
    "node": str,
    "run": int,
    **{name: bool if name == "edge" else int for name in _READING},
    "device": str,
    **dict.fromkeys(_DEVICE, str),
    "error": float,
    "adds": bool,
    "total_uj": int,
    "event": str,
}
"""Column names and types. The node's own values (CPU, network, memory) repeat in every row of a
reading.
"""


def rows(run: Run, number: int, readings: Iterable[Reading]) -> Iterator[tuple[Any, ...]]:
    """Yield a row for each device and reading, in the order of `COLUMNS`; a missing value is None.

    Args:
        run: the recording that the readings belong to.
        number: of the recording in its file.
        readings: in order.
    """
    devices = [(one.name, *(str(getattr(one, name)) for name in _DEVICE), one.error, one.adds) for one in run.devices]
    for one in readings:
        moment = (run.node, number, *(getattr(one, name) for name in _READING))
        for place, device in enumerate(devices):
            yield (*moment, *device, one.totals[place], str(one.event(place)))


def write_csv(path: Path, run: Run, number: int, readings: Iterable[Reading]) -> int:
    """Write a header and the rows, and return the number of rows.

    A missing value is an empty field.
    """
    count = 0
    try:
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(COLUMNS)
            for row in rows(run, number, readings):
                writer.writerow(int(value) if isinstance(value, bool) else value for value in row)
                count += 1
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from error
    return count


_ROWS_A_GROUP = 100_000


def write_parquet(path: Path, run: Run, number: int, readings: Iterable[Reading]) -> int:
    """Write the table in row groups and return the number of rows."""
    try:
        arrow: Any = import_module("pyarrow")
        parquet: Any = import_module("pyarrow.parquet")
    except ImportError as error:
        raise ConfigError(f"writing Parquet requires pyarrow: {how_to_install('parquet')}") from error
    kinds = {str: arrow.string(), int: arrow.int64(), float: arrow.float64(), bool: arrow.bool_()}
    schema = arrow.schema([(name, kinds[kind]) for name, kind in COLUMNS.items()])
    left, count = rows(run, number, readings), 0
    try:
        with parquet.ParquetWriter(path, schema) as writer:
            while group := list(islice(left, _ROWS_A_GROUP)):
                columns = [
                    arrow.array(column, kind.type)
                    for column, kind in zip(zip(*group, strict=True), schema, strict=True)
                ]
                writer.write_table(arrow.table(columns, schema=schema))
                count += len(group)
    except OSError as error:
        raise ConfigError(f"{path}: the Parquet file cannot be written: {error}") from error
    return count
