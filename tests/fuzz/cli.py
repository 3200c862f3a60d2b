"""The command behind scripts/fuzz: one target after the other, and what each came to.

Covers: arguments, progress, the exit status. Does not cover: fuzzing one (tests.fuzz.run).
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.fuzz.registry import TARGETS
from tests.fuzz.run import SEEDS, Work, coverage_is_installed, fuzz_target

__all__ = ["main"]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/fuzz",
        description="Fuzz what reads bytes from elsewhere. A finding is an error that is not documented, a broken promise, an "
        "input that takes too long or too much memory, or one that ends the process. Each is kept beside the seeds, "
        "where every later run and the tests begin.",
        epilog=f"targets: {', '.join(sorted(TARGETS))}",
    )
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="only these (default: all)")
    parser.add_argument("--seconds", type=float, default=60.0, metavar="S", help="for each target (default 60)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="what all is drawn from (default 0)")
    parser.add_argument(
        "--engine",
        choices=("auto", "mutator", "coverage"),
        default="auto",
        help="coverage is Atheris, of the extra `fuzz`; mutator needs nothing and is the same for the same seed; auto takes "
        "coverage where it is installed (default auto)",
    )
    parser.add_argument(
        "--keep", type=Path, default=SEEDS, metavar="DIR", help="where findings go (default: the seeds)"
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Fuzz; 1 if there was a finding, 2 if it could not be tried."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    names = arguments.targets or sorted(TARGETS)
    unknown = sorted(set(names) - set(TARGETS))
    if unknown:
        parser.error(f"targets must be among {', '.join(sorted(TARGETS))}, got {', '.join(unknown)}")
    engine = arguments.engine
    if engine == "auto":
        engine = "coverage" if coverage_is_installed() else "mutator"
    total = found = 0
    for number, name in enumerate(names, 1):
        print(f"[{number}/{len(names)}] {name}: {arguments.seconds:g} s by {engine}", flush=True)
        try:
            outcome = fuzz_target(
                Work(
                    name=name,
                    module=f"tests.fuzz.targets.{name}",
                    engine=engine,
                    seed=arguments.seed,
                    seconds=arguments.seconds,
                    keep=arguments.keep,
                )
            )
        except RuntimeError as error:
            print(f"scripts/fuzz: error: {error}", file=sys.stderr)
            return 2
        total += outcome.executions
        found += len(outcome.findings)
        rate = outcome.executions / outcome.seconds if outcome.seconds else 0.0
        print(f"    {outcome.executions:,} executions, {rate:,.0f}/s, {len(outcome.findings)} findings", flush=True)
        for path, text in outcome.findings:
            last = text.strip().splitlines()
            print(f"    found: {path}\n        " + "\n        ".join(last[-12:]), flush=True)
    print(f"{len(names)} targets, {total:,} executions, {found} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
