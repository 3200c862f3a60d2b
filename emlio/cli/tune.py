"""`emlio tune show`: what a tuner did, and why, from its log."""

import argparse
from collections.abc import Iterator
from pathlib import Path

from emlio.errors import ConfigError
from emlio.receiver.tuning.log import Line, read_log, replayed
from emlio.receiver.tuning.snapshot import Interval, Snapshot
from emlio.receiver.tuning.state import Decision
from emlio.units import counted, format_size

__all__ = ["HELP", "add_arguments", "run"]

HELP = (
    "Show what the tuner of a loader saw and decided. A loader writes a log into the folder that EMLIO_TUNE_LOG names."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    text = "show each decision of a log, and decide all of them again"
    show = actions.add_parser("show", help=text, description=text)
    show.add_argument("log", metavar="LOG", type=Path, help="a file tune-JOB-rankN-PID-K.jsonl")
    show.add_argument("--all", action="store_true", help="also show the moments at which nothing changed")


def run(arguments: argparse.Namespace) -> int:
    """Show a log; 1 if its decisions are not those of this release's rule."""
    path: Path = arguments.log
    first: Snapshot | None = None
    before: Snapshot | None = None
    looks = decisions = others = asked = 0
    for line, again, could in replayed(_begun(read_log(path))):
        seen = line.snapshot
        assert seen is not None
        first = first or seen
        looks += 1
        asked += could
        decisions += line.tuning is not None
        differs = (again.tuning if again is not None else None) != line.tuning
        others += differs
        if arguments.all or line.tuning is not None or differs:
            _show(line, again if differs else None, differs=differs, before=before, begun_ns=first.at_ns)
        before = seen
    if not looks:
        raise ConfigError(f"a log of the tuner must hold what was seen, {path} holds nothing")
    told = f"{counted(looks, 'look')}, {counted(decisions, 'decision')}"
    again_told = "all the same" if not others else f"{others} differ, by this release"
    print(f"{told}; {f'decided again: {again_told}' if asked else 'decided by a rule or a model that is not here'}")
    return 1 if others else 0


def _begun(lines: Iterator[Line]) -> Iterator[Line]:
    for line in lines:
        if line.tuning is not None and line.state is not None:
            settings = ", ".join(f"{name} {value:,}" for name, value in _fields(line).items() if value)
            print(f"begins with {settings}" + f"; model {line.model[:17]}" * bool(line.model))
        yield line


def _fields(line: Line) -> dict[str, int]:
    tuning = line.tuning
    return {} if tuning is None else {name: getattr(tuning, name) for name in tuning.__struct_fields__}


def _show(line: Line, again: Decision | None, *, differs: bool, before: Snapshot | None, begun_ns: int) -> None:
    seen = line.snapshot
    assert seen is not None
    facts = ""
    if before is not None:
        change = Interval.between(before, seen)
        cost = f", {change.cost:.2f} processor s a GB" if change.cost is not None else ""
        blame = f" for the {change.blame}" if change.blame and change.wait else ""
        facts = f"{format_size(round(change.rate))}/s, waits {change.wait:.1%}{blame}{cost}"
    print(f"{(seen.at_ns - begun_ns) / 1e9:8.1f} s  {facts}")
    if line.tuning is not None:
        print(f"            {line.reason}")
    if differs:
        print(f"            decided again: {again.reason if again is not None else 'nothing'}")
