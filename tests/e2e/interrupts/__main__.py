"""The command: each way, local and from a daemon, in a process of its own.

Covers: arguments, processes, the summary, the exit status. Does not cover: a walk (tests.e2e.interrupts.walk).
"""

import argparse
import faulthandler
import json
import subprocess
import sys
import tempfile
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from emlio_testing.processes import DaemonProcess
from tests.e2e.interrupts.walk import Walk
from tests.e2e.interrupts.ways import WAYS, expect, make_data, make_loader

_ONE_S = 900.0
_WRONG = ("shifted", "states", "stale", "hangs")


def _one(way: str, root: str, notes: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """A walk, in this process."""

    def make() -> Any:
        return make_loader(way, root, notes)

    walk = Walk(make, expect(make))
    if arguments.places:
        walk.at_places(arguments.places, arguments.first)
    if arguments.interrupts:
        places = walk.counts["strikes"]
        walk.at_moments(arguments.interrupts, arguments.seed, arguments.longest_us / 1e6)
        walk.counts["strikes"] += places
    faulthandler.cancel_dump_traceback_later()
    threads = sorted(thread.name for thread in threading.enumerate() if thread.name.startswith("emlio-"))
    return {"counts": dict(walk.counts), "details": walk.details + [f"left: {name}" for name in threads]}


def _begin(way: str, root: str, arguments: argparse.Namespace, interrupts: int) -> dict[str, Any]:
    """The same in a process of its own, which may hang."""
    words = [sys.executable, "-m", "tests.e2e.interrupts", "--one", root, "--ways", way]
    words += ["--interrupts", interrupts, "--seed", arguments.seed, "--longest-us", arguments.longest_us]
    words += ["--places", arguments.places, "--first", arguments.first]
    try:
        ended = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=_ONE_S, check=False)
    except subprocess.TimeoutExpired as late:
        return {"counts": {"hangs": 1}, "details": [f"no end within {_ONE_S:g} s: {late.stderr!r}"]}
    if ended.returncode:
        return {"counts": {"hangs": 1}, "details": [f"status {ended.returncode}: {ended.stderr[-4000:]}"]}
    said: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    if ended.stderr:
        said["details"].append(f"on standard error: {ended.stderr[-2000:]}")
    return said


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.interrupts", description=__doc__)
    parser.add_argument("--interrupts", type=int, default=200, help="at random moments, over all ways")
    parser.add_argument(
        "--places", type=int, default=0, help="besides, at every such place of each operation; 0: at none"
    )
    parser.add_argument("--first", type=int, default=1, help="the first of those places")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--longest-us", type=float, default=1500.0, help="the longest time before a strike")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--roots", nargs="+", choices=("local", "remote"), default=("local", "remote"))
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        if arguments.one:
            print(json.dumps(_one(arguments.ways[0], arguments.one, folder / "notes", arguments)))  # noqa: T201
            return 0
        data = make_data(folder)
        daemon = stack.enter_context(DaemonProcess(data, folder=folder))
        roots = {"local": str(folder), "remote": f"emlio://{daemon.peer}"}
        cases = [(way, root) for way in arguments.ways for root in arguments.roots]
        wrong = 0
        for way, root in cases:
            said = _begin(way, roots[root], arguments, -(-arguments.interrupts // len(cases)))
            counts: dict[str, int] = dict.fromkeys(("strikes", *_WRONG), 0) | said["counts"]
            bad = sum(counts[kind] for kind in _WRONG)
            wrong += bad
            print(f"{root:6} {way:9}", " ".join(f"{name} {count}" for name, count in counts.items()), flush=True)  # noqa: T201
            for detail in said["details"] if bad or arguments.ways != WAYS else ():
                print(f"    {detail}", flush=True)  # noqa: T201
        print(f"{wrong} wrong" if wrong else "all good")  # noqa: T201
        return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
