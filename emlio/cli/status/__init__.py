"""`emlio status`: show what running daemons and mounts do, for whom, and what holds them up."""

import argparse
import ipaddress
import json
import os
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime

from emlio.cli.key_folder import add_example, add_folder_flag
from emlio.cli.status.mounts import MountRates, Mounts, mount_document, mount_lines
from emlio.cli.status.page import status_page
from emlio.errors import ConfigError, EmlioError
from emlio.files.hints import ask_mounts
from emlio.keys.key import holds_secret
from emlio.receiver.addresses.address import Address, Peer
from emlio.receiver.addresses.host_names import daemons_at
from emlio.receiver.addresses.security import Security
from emlio.receiver.addresses.trust import Trust, find_trust
from emlio.receiver.connection.status_request import ask_status, local_daemons
from emlio.status.document import Found, status_document
from emlio.status.figures import DaemonFigures, figures_between
from emlio.units import format_duration, parse_duration_ns
from emlio.wire.control import StatusReply

__all__ = ["CLEAR", "HELP", "Asking", "add_arguments", "daemons_of_this_host", "duration_of", "peers_of", "run"]

HELP = (
    "Show what running daemons serve, to which jobs and ranks, how fast, who waits for whom, and what failed lately. "
    "Only datasets that this host may read are shown. Of mounts, how far they are ahead of their readers."
)

_EXAMPLE = """\
example:
  emlio status                      # on the daemon's own host, as root or its user: no keys are needed
  emlio status store1 store2:5555
  emlio status emlio://store1/imagenet --watch
  emlio status /mnt/imagenet        # what emlio mount does there

A daemon is asked twice, --over apart, for the rates between. Exit status: 1 if a daemon does not answer.
"""

_SCHEME = "emlio://"
_ANY_DATASET = "any"
_LEAST_NS = 100_000_000
CLEAR = "\x1b[H\x1b[2J"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "daemons",
        metavar="HOST[:PORT]|DIR",
        nargs="*",
        help="daemon to ask, by its control port (default: 5555), or an address as a loader uses it, whose dataset "
        "does not matter; or where a dataset is mounted (default: the daemons of this host, and what this user mounted)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON; with --watch one line for each interval")
    parser.add_argument(
        "--watch",
        metavar="SECONDS",
        nargs="?",
        const="2",
        help="repeat until interrupted, by default each 2 seconds; on a terminal the page is redrawn",
    )
    parser.add_argument("--over", metavar="TIME", default="1s", help="time over which rates are measured (default: 1s)")
    parser.add_argument("--timeout", metavar="TIME", default="5s", help="how long to wait for a daemon (default: 5s)")
    add_folder_flag(parser)
    add_example(parser, _EXAMPLE)


def run(arguments: argparse.Namespace) -> int:
    """Ask, and print what was answered; return 1 if a daemon did not answer."""
    timeout_ns = duration_of(arguments.timeout, "--timeout")
    over_ns = duration_of(arguments.over, "--over")
    every_ns = duration_of(arguments.watch, "--watch") if arguments.watch is not None else None
    directories = [word for word in arguments.daemons if "://" not in word and ("/" in word or ask_mounts(word))]
    mounts = Mounts(directories) if directories or not arguments.daemons else None
    mounted = mounts.ask() if mounts is not None else []
    daemons = [word for word in arguments.daemons if word not in directories]
    if not arguments.daemons:
        daemons = daemons_of_this_host() or ([] if mounted else ["localhost"])
    asking = Asking(peers_of(daemons), arguments.folder, timeout_ns) if daemons else None
    if asking is not None:
        asking.ask()
    time.sleep((every_ns or over_ns) / 1e9)
    while True:
        began_ns = time.monotonic_ns()
        found = asking.ask() if asking is not None else []
        mounted = mounts.ask() if mounts is not None else []
        _show(found, mounted, as_json=arguments.json, redraw=every_ns is not None and sys.stdout.isatty())
        if every_ns is None:
            return 1 if any(isinstance(figures, EmlioError) for _, figures in found) else 0
        time.sleep(max(began_ns + every_ns - time.monotonic_ns(), 0) / 1e9)


class Asking:
    """Asks daemons again and again, and compares each reply with the one before."""

    def __init__(self, peers: Sequence[Peer], folder: object, timeout_ns: int) -> None:
        address = Address(peers=tuple(peers), dataset=_ANY_DATASET)
        if folder is not None and not os.path.isdir(str(folder)):
            what = "is no folder" if os.path.lexists(str(folder)) else "does not exist"
            raise ConfigError(
                f"--folder must be a folder with keys, got {str(folder)!r}, which {what}. Make keys in it: emlio keygen "
                f"--folder {folder}"
            )
        security = Security(keys=str(folder) if folder is not None else None)
        self._trust: Trust
        self._trust, keyed = find_trust(address, security, os.environ)
        self._peers = keyed.peers
        self._local = folder is None
        self._timeout_ns = timeout_ns
        self._before: dict[Peer, StatusReply] = {}

    def ask(self) -> list[Found]:
        """Return the daemons with the figures since the last call, or why there are none."""
        targets = daemons_at(self._peers)
        found: list[Found] = []
        answers = ask_status(targets, self._trust, self._timeout_ns, local=self._local)
        for target, answer in zip(targets, answers, strict=True):
            figures: DaemonFigures | EmlioError
            if isinstance(answer, StatusReply):
                figures = figures_between(self._before.get(target.peer), answer)
                self._before[target.peer] = answer
            else:
                figures = answer
            found.append((str(target.peer), figures))
        return found


def _show(found: Sequence[Found], mounted: Sequence[MountRates], *, as_json: bool, redraw: bool) -> None:
    if as_json:
        document = {**status_document(found, datetime.now(UTC)), "mounts": [mount_document(one) for one in mounted]}
        text = json.dumps(document, ensure_ascii=True) + "\n"
    else:
        pages = [status_page(found)] if found else []
        pages += ["\n".join(mount_lines(one)) + "\n" for one in mounted]
        text = (CLEAR if redraw else "") + "\n".join(pages)
    sys.stdout.write(text)
    sys.stdout.flush()


def daemons_of_this_host() -> list[str]:
    """Return the daemons that run here, if any; those that are bound to all addresses, or to an interface, by localhost."""
    found: list[str] = []
    for place in local_daemons():
        host, _, port = place.rpartition(":")
        try:
            is_one = not ipaddress.ip_address(host.strip("[]")).is_unspecified
        except ValueError:
            is_one = False
        found.append(place if is_one else f"localhost:{port}")
    return found


def peers_of(texts: Sequence[str]) -> list[Peer]:
    """Return the daemons that the arguments name, each once."""
    found: dict[Peer, None] = {}
    for text in texts:
        hosts = text.removeprefix(_SCHEME).partition("/")[0]
        if not hosts or ("://" in text and not text.startswith(_SCHEME)):
            raise _no_daemon(text)
        try:
            peers = Address.parse(f"{_SCHEME}{hosts}/{_ANY_DATASET}").peers
        except ConfigError:
            if hosts.rpartition(":")[2].isdecimal():
                raise  # what is wrong with the port is told already
            raise _no_daemon(text) from None
        found.update(dict.fromkeys(peers))
    return list(found)


def _no_daemon(text: str) -> ConfigError:
    shown = "what may hold a secret key" if holds_secret(text) else repr(text)
    return ConfigError(f"a daemon must be HOST, HOST:PORT or emlio://HOST:PORT/DATASET, got {shown}")


def duration_of(text: str, flag: str) -> int:
    """Return the nanoseconds of a flag's duration."""
    try:
        duration_ns = parse_duration_ns(text)
    except ValueError as error:
        raise ConfigError(f"{flag}: {error}") from error
    if duration_ns < _LEAST_NS:
        raise ConfigError(f"{flag} must be at least {format_duration(_LEAST_NS)}, got {text!r}")
    return duration_ns
