"""The command: a course of closings from its arguments, one line and a JSON document about it.

Covers: arguments, printing, the exit status. Does not cover: the course (tests.e2e.closings.course).
"""

import argparse
import dataclasses
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from emlio.units import parse_duration_ns, parse_size
from tests.e2e.closings.course import run_course
from tests.e2e.closings.settings import Ending, Outcome, Settings

__all__ = ["main"]


def _parser() -> argparse.ArgumentParser:
    usual = Settings()
    parser = argparse.ArgumentParser(
        prog="python -m tests.e2e.closings",
        description="Close loaders in mid-flow at a real daemon, again and again. The daemon and the ranks must live through it, "
        "hold afterwards what they held before, and every record must be right.",
    )
    parser.add_argument("--closings", type=int, default=usual.closings, metavar="N", help="default %(default)s")
    parser.add_argument(
        "--seconds", type=float, default=usual.seconds, metavar="S", help="at most (default %(default)s)"
    )
    parser.add_argument("--records", type=parse_size, default=usual.record_bytes, metavar="SIZE", help="of each record")
    parser.add_argument("--count", type=int, default=usual.records, metavar="N", help="records (default %(default)s)")
    parser.add_argument("--shards", type=int, default=usual.shards, metavar="N", help="default %(default)s")
    parser.add_argument("--lanes", type=int, default=usual.lanes, metavar="N", help="default %(default)s")
    parser.add_argument("--message-size", default=usual.message_size, metavar="SIZE", help="default %(default)s")
    parser.add_argument(
        "--prefetch", default=usual.prefetch, metavar="SIZE", help="of each loader (default %(default)s)"
    )
    parser.add_argument("--batches", type=int, default=usual.most_batches, metavar="N", help="a loader takes at most")
    parser.add_argument(
        "--streams", type=int, default=usual.streams, metavar="N", help="of each loader, one after the other"
    )
    parser.add_argument("--processes", type=int, default=usual.processes, metavar="N", help="default %(default)s")
    parser.add_argument("--loaders", type=int, default=usual.loaders, metavar="N", help="in each process")
    parser.add_argument("--protection", choices=("clear", "sealed"), default=usual.protection)
    parser.add_argument(
        "--link", type=parse_duration_ns, metavar="TIME", help="round trip, such as 30ms (default: loopback)"
    )
    parser.add_argument("--one-core", action="store_true", help="keep all threads of the daemon on one core")
    parser.add_argument("--seed", type=int, default=usual.seed, metavar="N")
    who = parser.add_mutually_exclusive_group()
    who.add_argument("--kill", action="store_true", help="kill -9 rank processes at random moments, too")
    who.add_argument("--daemon-term", action="store_true", help="end the daemon under ranks that go on, N times")
    who.add_argument("--daemon-kill", action="store_true", help="kill -9 the daemon under ranks that go on, N times")
    parser.add_argument("--out", type=Path, metavar="FILE", help="where the JSON goes (default: standard output)")
    return parser


def _settings(told: argparse.Namespace) -> Settings:
    flags = {Ending.KILL: told.kill, Ending.DAEMON_TERM: told.daemon_term, Ending.DAEMON_KILL: told.daemon_kill}
    return Settings(
        closings=told.closings,
        seconds=told.seconds,
        ending=next((ending for ending, flag in flags.items() if flag), Ending.CLOSE),
        record_bytes=told.records,
        records=told.count,
        shards=told.shards,
        lanes=told.lanes,
        message_size=told.message_size,
        prefetch=told.prefetch,
        most_batches=told.batches,
        streams=told.streams,
        processes=told.processes,
        loaders=told.loaders,
        protection=told.protection,
        link=told.link,
        one_core=told.one_core,
        seed=told.seed,
    )


def _line(settings: Settings, outcome: Outcome) -> str:
    held = "not compared"
    if outcome.daemon is not None:
        (memory, descriptors), (memory_after, descriptors_after) = outcome.daemon
        held = f"{memory / 1e6:.1f} to {memory_after / 1e6:.1f} MB, {descriptors} to {descriptors_after} descriptors"
    return (
        f"{'good' if outcome.is_good else 'NOT GOOD'}: {settings.ending}, {outcome.closings:,} closings "
        f"({outcome.closings_per_s:.1f}/s), {outcome.endings} endings, {outcome.records:,} records in {outcome.seconds:.1f} s; "
        f"daemon {held}{''.join(f'; {trouble}' for trouble in outcome.troubles)}"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run; 0 if all was good, 1 if not."""
    told = _parser().parse_args(argv)
    settings = _settings(told)
    with tempfile.TemporaryDirectory(prefix="emlio-closings-") as folder:
        outcome = run_course(settings, Path(folder))
    print(_line(settings, outcome), flush=True)
    document = {"version": 1, "settings": dataclasses.asdict(settings), "outcome": dataclasses.asdict(outcome)}
    text = json.dumps(document, indent=None if told.out is None else 1)
    if told.out is None:
        print(text)
    else:
        told.out.write_text(text + "\n", encoding="utf-8")
    return 0 if outcome.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
