"""`emlio energy run`: run a command and report its energy."""

import argparse
import os
import shutil
import sys
import time
from pathlib import Path

from emlio import __version__
from emlio.arguments import parsed
from emlio.cli.energy.sources import add_source_flags, choices_of
from emlio.cli.key_folder import add_example
from emlio.energy.job.job_energy import read_job
from emlio.energy.job.measured_command import JobOrder, run_job
from emlio.energy.recording.record import RecordSettings
from emlio.energy.report.page import page_of
from emlio.energy.report.text import job_text
from emlio.errors import EmlioError
from emlio.units import parse_duration_ns

__all__ = ["add_arguments", "run"]

_NOT_FOUND = 127
"""The exit status that shells use."""

_EXAMPLE = """\
example:
  emlio energy run -- python train.py --epochs 2
  emlio energy run --out energy/run-7 -- torchrun --nproc-per-node 4 train.py
  emlio energy run --cpu-watts 60:180 -- python train.py     # if nothing can be measured

The report is by epoch if the command uses EmlioLoader, else for the whole command. The folder gets the recording,
report.txt, report.json and report.html, with a plot. The report is also printed to standard error, so the command's
output does not change.

exit status: that of the command; 128 plus the signal's number if a signal ended it; 2 or 127 if it was not started
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "--out",
        metavar="FOLDER",
        type=Path,
        help="new folder for the recording and reports (default: ./emlio-energy-DATE-TIME)",
    )
    parser.add_argument("--interval", metavar="TIME", default="100ms", help="time between readings (default: 100ms)")
    parser.add_argument(
        "--baseline",
        metavar="TIME",
        default="5s",
        help="time to measure the idle power before the command starts, at least 5s, or 0 to skip it. Estimates take "
        "the idle power from their model instead (default: 5s)",
    )
    parser.add_argument("--node", metavar="NAME", help="name of this node (default: its host name)")
    parser.add_argument("--quiet", action="store_true", help="print only the first line of the report")
    add_source_flags(parser)
    parser.add_argument(
        "words", metavar="COMMAND", nargs=argparse.REMAINDER, help="command and arguments to run, after --"
    )
    add_example(parser, _EXAMPLE)


def run(arguments: argparse.Namespace) -> int:
    """Run the command, then report."""
    words: list[str] = arguments.words[1:] if arguments.words[:1] == ["--"] else arguments.words
    order = JobOrder(
        words=tuple(words),
        folder=arguments.out or Path(time.strftime("emlio-energy-%Y%m%d-%H%M%S")),
        rest_ns=parsed("--baseline", parse_duration_ns, arguments.baseline),
        recorder=_recorder_words(arguments),
        version=__version__,
    )
    if shutil.which(words[0]) is None:
        _say(f"error: the command is not an executable program: {words[0]}")
        return _NOT_FOUND
    status = run_job(order, os.environ, warn=lambda text: _say(f"warning: {text}"))
    try:
        _report(order.folder, quiet=arguments.quiet)
    except (EmlioError, OSError) as error:
        _say(f"warning: no report was made: {error}")
    return 128 - status if status < 0 else status


def _recorder_words(arguments: argparse.Namespace) -> tuple[str, ...]:
    """Return the recorder's arguments, after checking that it will accept them."""
    choices_of(arguments)
    interval_ns = parsed("--interval", parse_duration_ns, arguments.interval)
    RecordSettings(file=Path("unused"), node="unused", interval_ns=interval_ns)
    words = ["--interval", arguments.interval]
    for flag, value in (
        ("--node", arguments.node),
        ("--powercap-root", arguments.powercap_root),
        ("--cpu-watts", arguments.cpu_watts),
        ("--calibration", arguments.calibration),
    ):
        words += [] if value is None else [flag, str(value.absolute() if isinstance(value, Path) else value)]
    return tuple(words)


def _report(folder: Path, *, quiet: bool) -> None:
    job = read_job([folder])
    (folder / "report.txt").write_text(job_text(job.report, in_full=True) + "\n", encoding="utf-8")
    (folder / "report.json").write_bytes(job.report.json())
    (folder / "report.html").write_text(page_of(job), encoding="utf-8")
    text = job_text(job.report)
    print("", text.splitlines()[0] if quiet else text, sep="\n", file=sys.stderr)
    _say(f"report.txt, report.json and report.html are in {folder}")


def _say(text: str) -> None:
    print(f"emlio energy run: {text}", file=sys.stderr, flush=True)
