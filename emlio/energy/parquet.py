"""A recording as a file of Parquet.

Covers: the file, by pyarrow (extra `parquet`). Does not cover: columns and rows (emlio.energy.table).
"""

from collections.abc import Iterable
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

from emlio.energy.reading import Reading
from emlio.energy.run import Run
from emlio.energy.table import COLUMNS, rows
from emlio.errors import ConfigError

__all__ = ["write_parquet"]

_ROWS_A_GROUP = 100_000


def write_parquet(path: Path, run: Run, number: int, readings: Iterable[Reading]) -> int:
    """Write the table, some rows at a time. Returns how many.

    Raises:
        ConfigError: pyarrow is not installed, or the file cannot be written.
    """
    try:
        arrow: Any = import_module("pyarrow")
        parquet: Any = import_module("pyarrow.parquet")
    except ImportError as error:
        raise ConfigError('Parquet is written with pyarrow: pip install "emlio[parquet]"') from error
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
        raise ConfigError(f"a file of Parquet must be written to {path}: {error}") from error
    return count
