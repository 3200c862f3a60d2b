"""`emlio tune show`: what a tuner did, and why, from its log."""

import argparse
from collections.abc import Iterator
from pathlib import Path

import msgspec

from emlio.errors import ConfigError
from emlio.receiver.tuning.log import Line, read_log, replayed
from emlio.receiver.tuning.snapshot import Interval, Snapshot, blame_of
from emlio.receiver.tuning.state import Decision
from emlio.receiver.tuning.tuning import Tuning
from emlio.units import counted, format_size

__all__ = ["HELP", "add_arguments", "run"]

HELP = (
    "Show what the tuner of a loader saw and decided. A loader writes a log into the folder that EMLIO_TUNE_LOG names."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    text = "show each decision of a log, decide all of them again, and print the settings at its end, for a file that tune= takes"
    show = actions.add_parser("show", help=text, description=text)
    text = "a file tune-JOB-rankN-PID-K.jsonl, or a folder of such files"
    show.add_argument("logs", metavar="LOG", type=Path, nargs="+", help=text)
    show.add_argument("--all", action="store_true", help="also show the moments at which nothing changed")


def run(arguments: argparse.Namespace) -> int:
    """Show logs; 1 if the decisions of one are not those of this release's rule."""
    found: list[Path] = [log for path in arguments.logs for log in _logs(path)]
    differ = False
    for path in found:
        if len(found) > 1:
            print(f"{path}:")
        shown = _Shown(all_looks=arguments.all)
        shown.show(read_log(path))
        differ |= shown.others > 0
        if not shown.looks and len(found) == 1:
            raise ConfigError(f"a log of the tuner must hold what was seen, {path} holds nothing")
        print(shown.summary())
    return int(differ)


def _logs(path: Path) -> list[Path]:
    """Return the logs in a folder, each after what came before it; or the file itself."""
    if not path.is_dir():
        return [path]
    names = sorted(path.glob("tune-*.jsonl"))
    if not names:
        raise ConfigError(f"a folder of logs must hold files tune-JOB-rankN-PID-K.jsonl, {path} holds none")
    return [log for name in names for log in (name.with_name(f"{name.name}.before"), name) if log.exists()]


class _Shown:
    """The decisions of one log, printed and counted.

    Attributes:
        looks: how often the tuner looked.
        others: decisions that this release makes in another way.
    """

    def __init__(self, *, all_looks: bool) -> None:
        self.looks = self.others = 0
        self._all_looks = all_looks
        self._decisions = self._asked = 0
        self._tuning: Tuning | None = None

    def show(self, lines: Iterator[Line]) -> None:
        """Print the decisions."""
        first: Snapshot | None = None
        before: Snapshot | None = None
        for line, again, could in replayed(self._begun(lines)):
            seen = line.snapshot
            assert seen is not None
            first = first or seen
            self.looks += 1
            self._asked += could
            self._decisions += line.tuning is not None
            differs = (again.tuning if again is not None else None) != line.tuning
            self.others += differs
            if self._all_looks or line.tuning is not None or differs:
                _show(line, again if differs else None, differs=differs, before=before, begun_ns=first.at_ns)
            before = seen

    def _begun(self, lines: Iterator[Line]) -> Iterator[Line]:
        limits = None
        for line in lines:
            limits = line.limits or limits
            if line.tuning is not None:
                self._tuning = line.tuning
                if line.state is not None:
                    settings = ", ".join(f"{name} {value:,}" for name, value in _fields(line.tuning).items() if value)
                    saves = f"Joules({1 - limits.waits:g})" if limits is not None and limits.governs else ""
                    model = f"learned, model {line.model[:17]}" if line.model else ""
                    own = "a rule of one's own" * line.own
                    who = ", ".join(filter(None, (own, model))) or saves or "auto"
                    print(f"begins with {settings}; decided by {who}")
            yield line

    def summary(self) -> str:
        """Return the counts, and the settings at the end as a line of JSON."""
        told = f"{counted(self.looks, 'look')}, {counted(self._decisions, 'decision')}"
        again = "all the same" if not self.others else f"{self.others} differ, by this release"
        asked = f"decided again: {again}" if self._asked else "decided by a rule or a model that is not here"
        if not self.looks:
            return told
        return f"{told}; {asked}\n{msgspec.json.encode(self._tuning).decode()}"


def _fields(tuning: Tuning) -> dict[str, int]:
    return {name: getattr(tuning, name) for name in tuning.__struct_fields__}


def _show(line: Line, again: Decision | None, *, differs: bool, before: Snapshot | None, begun_ns: int) -> None:
    seen = line.snapshot
    assert seen is not None
    facts = ""
    if before is not None:
        change = Interval.between(before, seen)
        cost = f", {change.cost:.2f} processor s a GB" if change.cost is not None else ""
        named = blame_of((change,))
        blame = f" for the {named}" if named and change.wait else ""
        facts = f"{format_size(round(change.rate))}/s, waits {change.wait:.1%}{blame}{cost}"
    print(f"{(seen.at_ns - begun_ns) / 1e9:8.1f} s  {facts}")
    if line.tuning is not None:
        print(f"            {line.reason}")
    if differs:
        print(f"            decided again: {again.reason if again is not None else 'nothing'}")
