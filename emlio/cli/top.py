"""`emlio top`: the stage, the host and the rank that hold up running jobs, again and again."""

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from emlio.cli.key_folder import add_example, add_folder_flag
from emlio.cli.status import CLEAR, Asking, daemons_of_this_host, duration_of, peers_of
from emlio.errors import EmlioError
from emlio.logs import printable
from emlio.status.blame import JobView, RankView, blame_document, jobs_of
from emlio.status.document import Found
from emlio.units import counted, format_size

__all__ = ["HELP", "add_arguments", "run"]

HELP = (
    "Show for each running job which stage, host and rank holds it up, with the evidence and the next step. All its daemons "
    "should be named: what one of them does not tell, it cannot blame."
)

_EXAMPLE = """\
example:
  emlio top store1 store2:5555      # until interrupted
  emlio top --once --json           # the daemons of this host, once

Exit status with --once: 1 if a daemon does not answer.
"""
_SHOWN = 12


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "daemons", metavar="HOST[:PORT]", nargs="*", help="daemons to ask (default: those of this host)"
    )
    parser.add_argument("--every", metavar="TIME", default="2s", help="how often, and over which time (default: 2s)")
    parser.add_argument("--once", action="store_true", help="end after the first time")
    parser.add_argument("--json", action="store_true", help="print a line of JSON each time")
    parser.add_argument("--timeout", metavar="TIME", default="5s", help="how long to wait for a daemon (default: 5s)")
    add_folder_flag(parser)
    add_example(parser, _EXAMPLE)


def run(arguments: argparse.Namespace) -> int:
    """Ask daemons again and again, and print who holds up which job."""
    every_ns, timeout_ns = duration_of(arguments.every, "--every"), duration_of(arguments.timeout, "--timeout")
    daemons = arguments.daemons or daemons_of_this_host() or ["localhost"]
    asking = Asking(peers_of(daemons), arguments.folder, timeout_ns)
    asking.ask()
    while True:
        time.sleep(every_ns / 1e9)
        found = asking.ask()
        jobs = jobs_of(found)
        if arguments.json:
            text = json.dumps(_document(found, jobs)) + "\n"
        else:
            clear = CLEAR if sys.stdout.isatty() and not arguments.once else ""
            text = clear + "\n".join(_page(found, jobs)) + "\n"
        sys.stdout.write(text)
        sys.stdout.flush()
        if arguments.once:
            return 1 if any(isinstance(figures, EmlioError) for _, figures in found) else 0


def _document(found: Sequence[Found], jobs: Sequence[JobView]) -> dict[str, Any]:
    daemons = [
        {"address": address, "answered": False, "error": str(figures)}
        if isinstance(figures, EmlioError)
        else {"address": address, "answered": True}
        for address, figures in found
    ]
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    return {"time": now, "daemons": daemons, "jobs": [blame_document(job) for job in jobs]}


def _page(found: Sequence[Found], jobs: Sequence[JobView]) -> Iterator[str]:
    for address, figures in found:
        if isinstance(figures, EmlioError):
            yield f"{address}: {printable(str(figures))}"
    if not jobs:
        silent = sum(isinstance(figures, EmlioError) for _, figures in found)
        heard = (
            "no daemon answers: nothing is known of jobs"
            if silent == len(found)
            else "no job runs at those that answer"
        )
        yield heard if silent else "no job runs"
    for job in jobs:
        blame = job.blame
        rate = sum(one.bytes_per_s for one in job.ranks)
        yield (
            f"job {printable(job.name)} on {printable(job.dataset)}: {counted(len(job.ranks), 'rank')} of {job.world_size} at "
            f"{counted(len(job.daemons), 'daemon')}, {format_size(rate)}/s"
        )
        host = f" ({printable(blame.host)})" if blame.host else ""
        yield f"  held up by {blame.stage}{host}"
        yield f"    seen: {printable(blame.evidence)}"
        yield f"    next: {blame.next_step}"
        for one in sorted(job.ranks, key=lambda one: -one.wait)[:_SHOWN]:
            yield _rank(one)


def _rank(one: RankView) -> str:
    place, told = printable(one.place), "waits not told"
    if one.user is not None:
        total = max(one.user.records_ns + one.user.making_ns + one.user.busy_ns, 1)
        told = f"waits for records {one.user.records_ns / total:4.0%}, for batches being made {one.user.making_ns / total:4.0%}"
    return f"    rank {one.rank:4}  {place:24}  {told}  {format_size(one.bytes_per_s)}/s"
