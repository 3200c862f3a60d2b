"""`emlio energy compare`: compare two jobs.

Covers: the command's arguments, refusing jobs that must not be compared. Does not cover: comparing
(emlio.energy.report.comparison), tables (emlio.energy.report.comparison_report).
"""

import argparse
import sys
from pathlib import Path

from emlio.cli.energy.reported import document_text
from emlio.cli.key_folder import add_example
from emlio.energy.job.job_energy import read_job
from emlio.energy.report.comparison import compare_jobs
from emlio.energy.report.comparison_report import comparison_text
from emlio.energy.report.job_summary import JobSummary, read_summary, summary_of
from emlio.errors import ConfigError

__all__ = ["add_arguments", "run"]

_EXAMPLE = """\
example:
  emlio energy compare run-race run-energy
  emlio energy compare old/report.json new/report.json --force

exit status: 2 if the two jobs are not comparable and --force is not given
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("a", metavar="A", type=Path, help="folder of a job, or its report.json")
    parser.add_argument("b", metavar="B", type=Path, help="the same for the other job")
    parser.add_argument("--force", action="store_true", help="print the figures even if the jobs are not comparable")
    add_example(parser, _EXAMPLE)


def run(arguments: argparse.Namespace) -> int:
    """Compare and print."""
    a, b = _read(arguments.a), _read(arguments.b)
    found = compare_jobs(a, b)
    if found.differences:
        said = "\n".join(f"  {one}" for one in found.differences)
        if not arguments.force:
            raise ConfigError(
                f"{arguments.a} and {arguments.b} are not comparable (--force compares them anyway):\n{said}"
            )
        print(f"emlio energy compare: warning: these jobs are not comparable:\n{said}", file=sys.stderr)
    print(comparison_text(found, _name(arguments.a, a), _name(arguments.b, b)))
    return 0


def _read(path: Path) -> JobSummary:
    if path.is_dir():
        return summary_of(document_text(read_job([path])).encode(), str(path))
    return read_summary(path)


def _name(path: Path, job: JobSummary) -> str:
    return f"{path}: {job.command}" if job.command else str(path)
