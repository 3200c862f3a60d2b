"""`emlio energy report`: report a job, compare two, show or export a recording."""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

from emlio.cli.energy.recorded import recording_document, recording_text
from emlio.cli.key_folder import add_example
from emlio.energy.export.influx import InfluxTarget, influx_lines, send_lines
from emlio.energy.export.table import write_csv, write_parquet
from emlio.energy.job.document import Report, read_report
from emlio.energy.job.job_energy import read_job
from emlio.energy.recording.prometheus import energy_families
from emlio.energy.recording.store import Store
from emlio.energy.recording.tally import Tally
from emlio.energy.report.comparison import compare_jobs, comparison_text
from emlio.energy.report.page import page_of
from emlio.energy.report.text import job_text
from emlio.errors import ConfigError
from emlio.metrics.library import metrics_text

__all__ = ["add_arguments", "run"]

_EXAMPLE = """\
example:
  emlio energy report emlio-energy-20260102-030405
  emlio energy report node1/energy node2/energy --html run-7.html   # one job on two nodes, with a folder from each
  emlio energy report run-8 --against run-7
  emlio energy report energy-node1.sqlite                           # a recording, also while it is recorded
  emlio energy report energy-node1.sqlite --export "http://localhost:8086/write?db=energy"

A recording is exported to a file by its ending: .csv and .parquet (needs pyarrow) have a row for each device and
reading, .prom has the totals up to the last reading as Prometheus text. A http:// or https:// address is that of
InfluxDB, to which each reading is sent; sending it again changes nothing. The token of InfluxDB 2 is read from the
environment variable INFLUX_TOKEN.

exit status: 2 if two jobs are not comparable and --force is not given
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "what",
        metavar="WHAT",
        nargs="+",
        type=Path,
        help="folders of a job, one per compute node; or its report.json; or one recording (.sqlite)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the tables")
    parser.add_argument("--all", action="store_true", help="print the tables of all epochs")
    parser.add_argument("--html", metavar="FILE", type=Path, help="write a self-contained page with a plot instead")
    parser.add_argument(
        "--against",
        metavar="OTHER",
        nargs="+",
        type=Path,
        help="compare with another job: its folders, or its report.json",
    )
    parser.add_argument("--force", action="store_true", help="compare even jobs that are not comparable")
    parser.add_argument(
        "--export", metavar="TARGET", help="export a recording to a .csv, .parquet or .prom file, or to InfluxDB"
    )
    parser.add_argument(
        "--run", metavar="N", type=int, dest="number", help="number of the recording in its file (default: the last)"
    )
    add_example(parser, _EXAMPLE)


def run(arguments: argparse.Namespace) -> int:
    """Print the report, or write it into the requested file instead."""
    what: list[Path] = arguments.what
    if len(what) == 1 and not what[0].is_dir() and what[0].suffix != ".json":
        _recording(what[0], arguments)
        return 0
    if arguments.export is not None or arguments.number is not None:
        raise ConfigError(f"--export and --run require one recording, got {', '.join(map(str, what))}")
    if arguments.against is not None:
        _compare(arguments.against, what, force=arguments.force)
    elif arguments.html is not None:
        _write(arguments.html, page_of(read_job(what)))
    else:
        report = _report(what)
        print(report.json().decode().rstrip() if arguments.json else job_text(report, in_full=arguments.all))
    return 0


def _report(what: Sequence[Path]) -> Report:
    return read_report(what[0]) if what[0].suffix == ".json" else read_job(what).report


def _compare(before: Sequence[Path], after: Sequence[Path], *, force: bool) -> None:
    a, b = _report(before), _report(after)
    found = compare_jobs(a, b)
    names = [" ".join(map(str, paths)) for paths in (before, after)]
    if found.differences:
        said = "\n".join(f"  {one}" for one in found.differences)
        if not force:
            raise ConfigError(f"{' and '.join(names)} are not comparable (--force compares them anyway):\n{said}")
        print(f"emlio energy report: warning: these jobs are not comparable:\n{said}", file=sys.stderr)
    titles = [
        ": ".join([name, *filter(None, [" ".join(one.job.command)])]) for name, one in zip(names, (a, b), strict=True)
    ]
    print(comparison_text(found, *titles))


# ---- a recording ----------------------------------------------------------------------------------------------------


def _recording(path: Path, arguments: argparse.Namespace) -> None:
    if arguments.export is not None:
        _export(path, arguments.number, arguments.export)
        return
    with Store(path) as store:
        recording, count = store.recording(arguments.number), len(store.recordings())
        tally = Tally.of(recording.run.devices, store.readings(recording.number))
    if arguments.json:
        print(json.dumps(recording_document(recording, tally), indent=2))
    else:
        which = f"recording {recording.number} of {count}: " if count > 1 else ""
        print(which + recording_text(recording, tally))


def _export(path: Path, number: int | None, target: str) -> None:
    with Store(path) as store:
        recording = store.recording(number)
        run = recording.run
        with closing(store.readings(recording.number)) as readings:
            if urlsplit(target).scheme in ("http", "https"):
                where = InfluxTarget.parse(target, token=os.environ.get("INFLUX_TOKEN"))
                told = f"{send_lines(where, influx_lines(run, recording.number, readings)):,} lines sent"
            elif target.endswith(".parquet"):
                told = f"{write_parquet(Path(target), run, recording.number, readings):,} rows written to {target}"
            elif target.endswith(".csv"):
                told = f"{write_csv(Path(target), run, recording.number, readings):,} rows written to {target}"
            elif target.endswith(".prom"):
                tally = Tally.of(run.devices, readings)
                _write(Path(target), metrics_text(lambda: energy_families(run.node, tally)))
                told = f"the totals written to {target}"
            else:
                raise ConfigError(
                    f"--export must be a .csv, .parquet or .prom file or the http:// address of InfluxDB, got {target!r}"
                )
    print(f"emlio energy report: {told}, of {run.node}", file=sys.stderr)


def _write(path: Path, text: str) -> None:
    """Replace a file atomically: readers see either the old or the new content."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from error
