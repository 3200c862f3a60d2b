"""A recording as a Parquet file.

The file is written by pyarrow (extra `parquet`). Columns and rows are those of
emlio.energy.export.csv_table.
"""

from collections.abc import Iterable
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

from emlio.energy.export.csv_table import COLUMNS, rows
from emlio.energy.values.reading import Reading
from emlio.energy.values.run import Run
from emlio.errors import ConfigError
from emlio.extras import how_to_install

__all__ = ["write_parquet"]

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
