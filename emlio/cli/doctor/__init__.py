"""`emlio doctor`: check this host, the path to daemons, and what they serve, and say what mends what is wrong."""

import argparse
import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from uuid import uuid4

from emlio.cli.doctor.delivery import check_delivery
from emlio.cli.doctor.finding import Finding, Verdict, finding_document, finding_lines
from emlio.cli.doctor.host import check_host
from emlio.cli.doctor.path import PathTo, buffer_finding, check_path
from emlio.cli.doctor.served import check_daemon
from emlio.cli.key_folder import add_example, add_folder_flag
from emlio.cli.status import duration_of
from emlio.dataset_name import DatasetName
from emlio.errors import ConfigError, EmlioError
from emlio.receiver.addresses.address import Address, Target
from emlio.receiver.addresses.host_names import daemons_at
from emlio.receiver.addresses.security import Security
from emlio.receiver.addresses.trust import Trust, find_trust
from emlio.receiver.connection.status_request import ask_status
from emlio.units import counted, parse_duration_ns
from emlio.wire.control import StatusReply

__all__ = ["HELP", "add_arguments", "run"]

HELP = (
    "Check this host, the path to daemons and what they serve: names, ports, keys, versions, round trip, buffers, bandwidth, "
    "and what bounds it. Each line has a verdict and the evidence; where something is wrong, the next one says what mends it."
)

_EXAMPLE = """\
example:
  emlio doctor                                # this host alone
  emlio doctor emlio://store1:5555/imagenet   # also the way to the daemon, and what it serves
  emlio doctor /data/imagenet                 # a folder of this host, read as a loader would
  emlio doctor store1 --over 0s               # nothing is read

With a dataset, records are read for three times --over: the daemon and the network have work meanwhile.
Exit status: 1 if something does not work.
"""

_SCHEME = "emlio://"
_THIS_HOST = "this host"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "address",
        metavar="ADDRESS",
        nargs="?",
        help="a dataset's address as for a loader, or HOST[:PORT] of a daemon (default: nothing but this host)",
    )
    parser.add_argument("--local", action="store_true", help="check this host alone, the same as without an address")
    parser.add_argument("--json", action="store_true", help="print a JSON document at the end")
    parser.add_argument(
        "--over", metavar="TIME", default="2s", help="how long to read, three times (default: 2s; 0s: not)"
    )
    parser.add_argument("--timeout", metavar="TIME", default="5s", help="how long to wait for an answer (default: 5s)")
    add_folder_flag(parser)
    add_example(parser, _EXAMPLE)


def run(arguments: argparse.Namespace) -> int:
    """Check everything, and print each finding as soon as it is known; return 1 if something does not work."""
    if arguments.local and arguments.address is not None:
        raise ConfigError(
            f"--local checks this host alone, and cannot be used with an address, got {arguments.address!r}"
        )
    # The doctor is a job of its own, also where it is started with the variables of one.
    os.environ["EMLIO_JOB"] = f"doctor-{uuid4().hex[:12]}"
    over_ns, timeout_ns = parse_duration_ns(arguments.over), duration_of(arguments.timeout, "--timeout")
    checks = check_host()
    found: list[Finding] = []
    about = ""
    for finding in _all(arguments.address, arguments.folder, checks, over_ns, timeout_ns):
        found.append(finding)
        if arguments.json:
            continue
        if finding.about != about:
            about = finding.about
            print(f"{about}:")
        print("\n".join(finding_lines(finding)), flush=True)
    failed = sum(one.verdict is Verdict.FAIL for one in found)
    warned = sum(one.verdict is Verdict.WARN for one in found)
    if arguments.json:
        time = datetime.now(UTC).isoformat(timespec="milliseconds")
        print(json.dumps({"time": time, "failed": failed, "findings": [finding_document(one) for one in found]}))
    else:
        print(f"{counted(len(found), 'check')}: {failed} failed, {counted(warned, 'warning')}")
    return 1 if failed else 0


def _all(
    text: str | None, folder: object, checks: Iterator[Finding], over_ns: int, timeout_ns: int
) -> Iterator[Finding]:
    yield from checks
    if text is None:
        yield buffer_finding(0)
        return
    address = _address(text)
    security = Security(keys=str(folder) if folder is not None else None)
    if not address.peers:
        if over_ns:
            yield from check_delivery(
                text, security, remote=False, record_bytes=0, over_ns=over_ns, timeout_ns=timeout_ns, about=text
            )
        return
    try:
        trust, keyed = find_trust(address, security, os.environ)
    except EmlioError as error:
        yield Finding(check="keys", about=_THIS_HOST, verdict=Verdict.FAIL, evidence=str(error))
        return
    trips: list[int] = []
    records = size = 0
    reached = False
    for target in daemons_at(keyed.peers):
        for one in _daemon(target, trust, address.dataset, timeout_ns):
            if isinstance(one, Finding):
                yield one
            elif isinstance(one, PathTo):
                trips.append(one.trip_ns)
            else:
                reached = True
                records += one[0]
                size += one[1]
    yield buffer_finding(max(trips, default=0))
    if reached and address.dataset and over_ns:
        yield from check_delivery(
            text,
            security,
            remote=True,
            record_bytes=size // max(records, 1),
            over_ns=over_ns,
            timeout_ns=timeout_ns,
            about=f"dataset {address.dataset}",
        )


def _daemon(
    target: Target, trust: Trust, dataset: str, timeout_ns: int
) -> Iterator[Finding | PathTo | tuple[int, int]]:
    """Yield findings on a daemon, the path to it, and records and bytes of the dataset if it serves that."""
    path: PathTo | None = None
    for one in check_path(target, timeout_ns):
        path = one if isinstance(one, PathTo) else path
        yield one
    if path is None:
        return
    (answer,) = ask_status([target], trust, timeout_ns)
    if not isinstance(answer, StatusReply):
        yield Finding(check="answer", about=str(target.peer), verdict=Verdict.FAIL, evidence=str(answer))
        return
    wanted = DatasetName.parse(dataset)
    failed = False
    for finding in check_daemon(target, answer, wanted.name, wanted.generation):
        failed = failed or finding.verdict is Verdict.FAIL
        yield finding
    served = [one for one in answer.datasets if one.name == wanted.name]
    untold = bool(wanted.name) and len(answer.datasets) < answer.dataset_count
    if (served or untold) and not failed:
        yield sum(one.records for one in served), sum(one.size_bytes for one in served)


def _address(text: str) -> Address:
    """Return the address of a dataset, or of a daemon, whose dataset is ""."""
    if "/" in text.removeprefix(_SCHEME) or os.path.isdir(text):
        return Address.parse(text)
    hosts = text.removeprefix(_SCHEME)
    return Address(peers=Address.parse(f"{_SCHEME}{hosts}/any").peers, dataset="")
