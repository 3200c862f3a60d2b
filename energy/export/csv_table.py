"""A recording as one long table, for spreadsheets and data frames."""

import csv
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from emlio.energy.values.reading import Reading
from emlio.energy.values.run import Run
from emlio.errors import ConfigError

__all__ = ["COLUMNS", "rows", "write_csv"]

COLUMNS: dict[str, type] = {
    "node": str,
    "run": int,
    "seq": int,
    "mono_ns": int,
    "real_ns": int,
    "spread_ns": int,
    "missed": int,
    "edge": bool,
    "cpu_busy_ns": int,
    "cpu_steal_ns": int,
    "cpu_total_ns": int,
    "net_rx_bytes": int,
    "net_tx_bytes": int,
    "memory_bytes": int,
    "device": str,
    "domain": str,
    "source": str,
    "method": str,
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
    for one in readings:
        moment = (run.node, number, one.seq, one.mono_ns, one.real_ns, one.spread_ns, one.missed, one.edge)
        use = (
            one.cpu_busy_ns,
            one.cpu_steal_ns,
            one.cpu_total_ns,
            one.net_rx_bytes,
            one.net_tx_bytes,
            one.memory_bytes,
        )
        for place, device in enumerate(run.devices):
            what = (device.name, str(device.domain), device.source, str(device.method), device.error, device.adds)
            yield (*moment, *use, *what, one.totals[place], str(one.event(place)))


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
