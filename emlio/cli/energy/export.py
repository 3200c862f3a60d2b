"""`emlio energy export`: export a recording for other programs.

Covers: the command's arguments, the output's destination. Does not cover: the formats
(emlio.energy.export, emlio.energy.recording.prometheus).
"""

import argparse
import os
import sys
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from emlio.cli.key_folder import add_example
from emlio.energy.export.csv_table import write_csv
from emlio.energy.export.influx import InfluxTarget, influx_lines, send_lines
from emlio.energy.export.parquet import write_parquet
from emlio.energy.recording.prometheus import metrics_text
from emlio.energy.recording.store import Recording, Store
from emlio.energy.recording.tally import Tally
from emlio.energy.values.reading import Reading
from emlio.errors import ConfigError

__all__ = ["add_arguments", "run"]

_EXAMPLE = """\
example:
  emlio energy export run.sqlite --csv --out run.csv
  emlio energy export run.sqlite --parquet                  # to run.parquet; needs pyarrow
  emlio energy export run.sqlite --influx "http://localhost:8086/write?db=energy"
  emlio energy export run.sqlite --prometheus --out /var/lib/node_exporter/energy.prom

The token of InfluxDB 2 is read from the environment variable INFLUX_TOKEN.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "file", metavar="FILE", type=Path, help="recording made by `emlio energy record`, finished or not"
    )
    form = parser.add_mutually_exclusive_group(required=True)
    form.add_argument("--influx", metavar="URL", help="send each reading to InfluxDB; sending it again changes nothing")
    form.add_argument("--csv", action="store_true", help="write CSV: one row per device and reading")
    form.add_argument("--parquet", action="store_true", help="write the same rows as a Parquet file")
    form.add_argument(
        "--prometheus", action="store_true", help="write the totals up to the last reading as Prometheus text"
    )
    parser.add_argument(
        "--out",
        metavar="FILE",
        type=Path,
        dest="target",
        help="output file (default: standard output; with --parquet, FILE with the ending .parquet)",
    )
    parser.add_argument(
        "--run", metavar="N", type=int, dest="number", help="number of the recording (default: the last)"
    )
    add_example(parser, _EXAMPLE)


def run(arguments: argparse.Namespace) -> int:
    """Export a recording."""
    if arguments.influx is not None and arguments.target is not None:
        raise ConfigError("--out cannot be used with --influx, which writes no file")
    with Store(arguments.file) as store:
        recording = store.recording(arguments.number)
        with closing(store.readings(recording.number)) as readings:
            told = _export(recording, readings, arguments)
    print(f"emlio energy export: {told} of {recording.run.node}", file=sys.stderr)
    return 0


def _export(recording: Recording, readings: Iterable[Reading], arguments: argparse.Namespace) -> str:
    """Export, and return a description of the result."""
    target: Path | None = arguments.target
    if arguments.influx is not None:
        where = InfluxTarget.parse(arguments.influx, token=os.environ.get("INFLUX_TOKEN"))
        return f"{send_lines(where, influx_lines(recording.run, recording.number, readings)):,} lines sent"
    if arguments.parquet:
        table: Path = arguments.file.with_suffix(".parquet") if target is None else target
        return f"{write_parquet(table, recording.run, recording.number, readings):,} rows written to {table}"
    if arguments.csv:
        if target is None:
            return f"{write_csv(sys.stdout, recording.run, recording.number, readings):,} rows"
        try:
            with target.open("w", encoding="utf-8", newline="") as file:
                return f"{write_csv(file, recording.run, recording.number, readings):,} rows written to {target}"
        except OSError as error:
            raise ConfigError(f"{target}: cannot be written: {error.strerror}") from error
    tally = Tally(recording.run.devices)
    for reading in readings:
        tally.add(reading)
    text = metrics_text(recording.run.node, tally)
    if target is None:
        print(text, end="")
        return f"{tally.readings:,} readings"
    _replace(target, text)
    return f"{tally.readings:,} readings, written to {target}"


def _replace(path: Path, text: str) -> None:
    """Replace a file atomically: readers see either the old or the new content."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from error
