"""The command: a course under watch from its arguments, its alarms as lines, and a JSON document about it.

Covers: arguments, printing, the exit status. Does not cover: the course (tests.e2e.watched.course).
"""

import argparse
import dataclasses
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from emlio.units import parse_duration_ns
from emlio_testing.prometheus import PROGRAM
from tests.e2e.watched.course import WAITS, Settings, Watched, run_course

__all__ = ["main"]


def _parser() -> argparse.ArgumentParser:
    usual = Settings()
    parser = argparse.ArgumentParser(
        prog="python -m tests.e2e.watched",
        description="Watch healthy jobs with explain(), emlio top, emlio doctor and Prometheus (if it is installed), and count "
        "what they hold against them. Every alarm is false but where the rank's own clock says that it waited.",
    )
    parser.add_argument("--time", type=parse_duration_ns, default=4 * 3600 * 10**9, metavar="TIME", help="default 4h")
    parser.add_argument("--jobs", default=usual.jobs, nargs="+", type=int, metavar="RANKS", help="of each job")
    parser.add_argument("--step", type=parse_duration_ns, default=usual.step_s * 1e9, metavar="TIME", help="100ms")
    parser.add_argument(
        "--top", type=parse_duration_ns, default=usual.top_s * 1e9, metavar="TIME", help="2s; 0s: never"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="where the JSON goes, every minute")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run a course; return 1 if there was an alarm that the rank's own clock does not bear out."""
    told = _parser().parse_args(argv)
    settings = Settings(
        seconds=told.time / 1e9,
        jobs=tuple(told.jobs),
        step_s=told.step / 1e9,
        top_s=told.top / 1e9,
        prometheus=PROGRAM is not None,
    )

    def note(seen: Watched) -> None:
        if told.out is not None:
            document = {"settings": dataclasses.asdict(settings), "seen": dataclasses.asdict(seen)}
            told.out.write_text(f"{json.dumps(document, indent=1)}\n", encoding="utf-8")

    with tempfile.TemporaryDirectory() as folder:
        seen = run_course(settings, Path(folder), note)
    note(seen)
    for one in seen.alarms:
        waited = "" if one.share is None else f", waited {one.share:.0%} by its own clock"
        print(
            f"{one.at_s:7.0f} s {one.tool} {one.about}, {one.lasted_s:.0f} s, load {one.load:.1f}{waited}: {one.said}"
        )
    print(
        f"{seen.seconds / 3600:.2f} h, looks {seen.looks}, {len(seen.alarms)} alarms. Share of a core: top "
        f"{seen.top_cpu_s / seen.seconds:.3%}, explain {seen.explain_cpu_s / seen.seconds:.4%}, daemons "
        f"{seen.daemons_cpu_s / seen.seconds:.2%}, ranks {seen.ranks_cpu_s / seen.seconds:.2%}"
    )
    return int(any(one.share is None or one.share < WAITS for one in seen.alarms))


if __name__ == "__main__":
    sys.exit(main())
