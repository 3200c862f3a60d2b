"""The command behind scripts/chaos: many runs, one after the other or side by side, and their table.

Covers: arguments, progress, what is kept of runs that failed, the exit status. Does not cover: a run (tests.e2e.chaos.run).
"""

import argparse
import multiprocessing
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path

from emlio.native.disk import direct_alignment
from emlio_bench.harness.environment import read_environment
from emlio_testing.disk_faults import why_no_disk_faults
from emlio_testing.preloads import why_no_preload
from tests.e2e.chaos.disk import why_no_disk
from tests.e2e.chaos.faults import Kind, Kinds
from tests.e2e.chaos.known import Known, make_known
from tests.e2e.chaos.names import why_no_names
from tests.e2e.chaos.report import Sample, as_json, as_markdown
from tests.e2e.chaos.run import RunResult, run_seed
from tests.e2e.chaos.stage import Stage

__all__ = ["main"]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/chaos",
        description="Train through faults: two daemons with the same data, three ranks, 20,000 records, two epochs, and at least "
        "two faults a run, drawn from its seed. Every record must come once, in order, unchanged.",
    )
    parser.add_argument("--seeds", type=int, default=20, metavar="N", help="how many runs (default 20)")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="the first seed (default 0)")
    parser.add_argument(
        "--seed", type=int, action="append", metavar="N", help="only this one; may be given several times"
    )
    parser.add_argument(
        "--minutes",
        type=float,
        metavar="M",
        help="runs until this time is up, with daemons that live on from one to the next unless a fault ends them",
    )
    parser.add_argument("--jobs", type=int, default=1, metavar="J", help="runs side by side (default 1)")
    parser.add_argument(
        "--kind",
        action="append",
        choices=[kind.label for kind in Kind],
        help="draw only these; may be given several times",
    )
    parser.add_argument("--logs", type=Path, metavar="DIR", help="where logs of runs that fail are kept")
    parser.add_argument(
        "--out", type=Path, action="append", default=[], metavar="FILE", help="a .md or .json for the table"
    )
    return parser


def _why_not_directly(folder: Path) -> str | None:
    """Why no daemon can read files in a folder directly and meet errors there, or None where one can."""
    with tempfile.TemporaryFile(dir=folder) as file:
        try:
            found = direct_alignment(file.fileno())
        except OSError as error:
            return str(error)
    return why_no_disk_faults() if found else f"the file system of {folder} does not offer direct reading"


def _kinds(asked: Sequence[str] | None, folder: Path) -> Kinds:
    """Those asked for; prints why some cannot be done with data in that folder."""
    kinds = tuple(Kind.named(label) for label in asked) if asked else tuple(Kind)
    missing: set[Kind] = set()
    directly = _why_not_directly(folder)
    for kind, reason in (
        (Kind.DISK_FULL, why_no_disk()),
        (Kind.CLOCK_JUMP, why_no_preload()),
        (Kind.NAME_FAMILIES, why_no_names()),
        *((kind, directly) for kind in Kind if kind.of_direct_reading),
    ):
        if kind in kinds and reason is not None:
            print(f"not done here, another fault instead: {kind.label}: {reason}", flush=True)
            missing.add(kind)
    return Kinds(asked=kinds, missing=frozenset(missing))


def _seeds(arguments: argparse.Namespace) -> Iterator[int]:
    if arguments.seed:
        yield from arguments.seed
    elif arguments.minutes is not None:
        end, seed = time.monotonic() + 60 * arguments.minutes, arguments.first
        while time.monotonic() < end:
            yield seed
            seed += 1
    else:
        yield from range(arguments.first, arguments.first + arguments.seeds)


def _side_by_side(seeds: Iterator[int], jobs: int, known: Known, kinds: Kinds, logs: Path) -> Iterator[RunResult]:
    if jobs == 1:
        for seed in seeds:
            yield run_seed(seed, known, kinds, logs / f"seed-{seed}")
        return
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        running: set[Future[RunResult]] = set()
        for seed in seeds:
            running.add(pool.submit(run_seed, seed, known, kinds, logs / f"seed-{seed}"))
            if len(running) >= jobs:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
        yield from (future.result() for future in running)


def _on_one_stage(
    seeds: Iterator[int], known: Known, kinds: Kinds, logs: Path, memory: list[Sample], troubles: list[str]
) -> Iterator[RunResult]:
    """Runs, and in `troubles` what went wrong with the daemons after the last of them."""
    begun = time.monotonic()
    with Stage.for_kinds(known, logs / "stage", set(kinds.asked) - kinds.missing) as stage:
        for seed in seeds:
            yield run_seed(seed, known, kinds, logs / f"seed-{seed}", stage)
            minutes = (time.monotonic() - begun) / 60
            memory += [Sample(minutes=minutes, seed=seed, memory=found) for found in stage.memory()]
        for host in stage.hosts:
            host.begin_run()  # what the last run told is known
    troubles += [trouble for host in stage.hosts for trouble in host.troubles]


def _say(result: RunResult, logs: Path, again: str) -> None:
    if result.is_good:
        names = ", ".join(
            f"{recovery.kind} {recovery.recovered_ms:,.0f} ms" if recovery.felt else recovery.kind
            for recovery in result.recoveries
        )
        print(f"seed {result.seed}: good, {result.seconds:.1f} s: {names}", flush=True)
        return
    print(f"seed {result.seed}: NOT GOOD, {result.seconds:.1f} s", flush=True)
    for line in (*result.schedule, *result.troubles):
        print(f"    {line}")
    print(
        f"    logs: {logs / f'seed-{result.seed}'}; again: scripts/chaos --seed {result.seed} {again}".rstrip(),
        flush=True,
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run; 0 if every run was good, 1 if not."""
    arguments = _parser().parse_args(argv)
    logs = (arguments.logs or Path(tempfile.mkdtemp(prefix="emlio-chaos-"))).resolve()
    logs.mkdir(parents=True, exist_ok=True)
    kinds = _kinds(arguments.kind, logs)
    known = make_known(logs / "dataset" / "known")
    world = read_environment(None)
    results: list[RunResult] = []
    memory: list[Sample] = []
    troubles: list[str] = []
    if arguments.minutes is None:
        runs = _side_by_side(_seeds(arguments), arguments.jobs, known, kinds, logs)
    else:
        runs = _on_one_stage(_seeds(arguments), known, kinds, logs, memory, troubles)
    again = " ".join(f"--kind {label}" for label in arguments.kind or ())
    for result in runs:
        results.append(result)
        _say(result, logs, again)
    for trouble in troubles:
        print(f"after the last run: NOT GOOD: {trouble}", flush=True)
    is_good = not troubles and all(result.is_good for result in results)
    text = as_markdown(results, world, memory)
    print(f"\n{text}")
    for path in arguments.out:
        path.write_text(as_json(results, world, memory) if path.suffix == ".json" else text, encoding="utf-8")
    for folder in ("dataset", "stage"):
        shutil.rmtree(logs / folder, ignore_errors=True)
    if arguments.logs is None and is_good:
        shutil.rmtree(logs)
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
