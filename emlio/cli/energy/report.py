"""`emlio energy report`: report a job's energy from its folders.

Covers: the command's arguments. Does not cover: the report's content
(emlio.energy.report.job_report), its files (emlio.cli.energy.reported).
"""

import argparse
from pathlib import Path

from emlio.cli.energy.reported import document_text, page_text, write_picture, write_text
from emlio.cli.key_folder import add_example
from emlio.energy.job.job_energy import read_job
from emlio.energy.report.job_report import job_markdown, job_text

__all__ = ["add_arguments", "run"]

_EXAMPLE = """\
example:
  emlio energy report emlio-energy-20260102-030405
  emlio energy report node1/energy node2/energy               # one job on two nodes, with a folder from each
  emlio energy report run-7 --html run-7.html --plot run-7.svg
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "folders", metavar="FOLDER", nargs="+", type=Path, help="folder of the job, one per compute node"
    )
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument("--json", action="store_true", help="print one JSON object instead of the tables")
    forms.add_argument("--markdown", action="store_true", help="print the tables in Markdown")
    parser.add_argument("--html", metavar="FILE", type=Path, help="write a self-contained HTML page")
    parser.add_argument("--plot", metavar="FILE", type=Path, help="plot power over time (.png, .svg, .pdf)")
    parser.add_argument("--all", action="store_true", help="print the tables of all epochs")
    add_example(parser, _EXAMPLE)


def run(arguments: argparse.Namespace) -> int:
    """Print the report, or write it into the requested files instead."""
    job = read_job(arguments.folders)
    if arguments.html is not None:
        write_text(arguments.html, page_text(job))
    if arguments.plot is not None:
        write_picture(job, arguments.plot)
    if arguments.json:
        print(document_text(job), end="")
    elif arguments.markdown:
        print(job_markdown(job))
    elif arguments.html is None and arguments.plot is None:
        print(job_text(job, in_full=arguments.all))
    return 0
