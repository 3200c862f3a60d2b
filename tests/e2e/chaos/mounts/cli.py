"""The command behind scripts/chaos mounts: many runs, side by side, and what they come to."""

import argparse
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from threading import Event

from emlio_testing.mounted_trees import mount_is_refused
from emlio_testing.processes import fork_server
from tests.e2e.chaos.mounts.draw import Kind, draw, draw_long
from tests.e2e.chaos.mounts.known import KnownFiles, make_known_files
from tests.e2e.chaos.mounts.records import RunResult
from tests.e2e.chaos.mounts.run import MountRun

__all__ = ["main"]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/chaos mounts",
        description="Read a mount through faults drawn from a seed. No byte may be wrong, no read hang, no process stay.",
    )
    parser.add_argument("--seeds", type=int, default=20, metavar="N", help="how many runs (default 20)")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="the first seed (default 0)")
    parser.add_argument("--seed", type=int, action="append", metavar="N", help="only this one; several times")
    parser.add_argument(
        "--minutes",
        type=float,
        metavar="M",
        help="one run of so long, with a fault each minute; samples.jsonl has its memory",
    )
    parser.add_argument("--jobs", type=int, default=1, metavar="J", help="runs side by side (default 1)")
    parser.add_argument("--kind", action="append", choices=list(Kind), help="draw only these; several times")
    parser.add_argument("--logs", type=Path, metavar="DIR", help="where logs of runs that fail are kept")
    return parser


def _runs(
    seeds: Sequence[int], only: tuple[Kind, ...], jobs: int, known: KnownFiles, logs: Path
) -> Iterator[RunResult]:
    def run(seed: int) -> RunResult:
        return MountRun(draw(seed, only), known, logs / f"seed-{seed}").run()

    stopped = Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    with ThreadPoolExecutor(jobs) as pool:
        running: set[Future[RunResult]] = set()
        for seed in seeds:
            if stopped.is_set():  # those that are under way end well
                break
            running.add(pool.submit(run, seed))
            if len(running) >= jobs:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
        yield from (future.result() for future in running)


def _say(result: RunResult) -> None:
    scenario, figures = result.scenario, result.figures
    kinds = ", ".join(fault.kind for fault in scenario.faults)
    how = "NOT GOOD" if result.troubles else "good"
    print(
        f"seed {scenario.seed}: {how}, {result.seconds:.1f} s: {kinds}; {figures.files:,} files, {figures.errors} errors, "
        f"longest {figures.longest_s:.2f} s, {figures.memory_bytes >> 20} MiB",
        flush=True,
    )
    if result.troubles:
        print("    " + "\n    ".join([scenario.words, *result.troubles]), flush=True)


def _summary(results: Sequence[RunResult], seconds: float) -> str:
    all_figures = [result.figures for result in results]
    kinds = Counter(fault.kind for result in results for fault in result.scenario.faults)
    bad = sorted(result.scenario.seed for result in results if result.troubles)
    measured = [figures.cached_part for figures in all_figures if figures.cached_part]
    return "\n".join(
        [
            f"{len(results)} runs in {seconds:,.0f} s, {sum(kinds.values())} faults: "
            + ", ".join(f"{kind} {kinds[kind]}" for kind in Kind if kinds[kind]),
            f"{sum(figures.files for figures in all_figures):,} files and "
            f"{sum(figures.bytes for figures in all_figures):,} bytes compared; "
            f"{sum(figures.errors for figures in all_figures):,} errors that faults explain; longest call "
            f"{max(figures.longest_s for figures in all_figures):.2f} s",
            f"a mount's process took at most {max(figures.memory_bytes for figures in all_figures) >> 20} MiB more than at its "
            f"beginning, {max(figures.threads for figures in all_figures)} threads, "
            f"{max(figures.descriptors for figures in all_figures)} descriptors, wrote "
            f"{max(figures.log_lines for figures in all_figures)} lines; the page cache held at most "
            f"{max(measured, default=0):.2f} of the window in {len(measured)} runs in which it was measured",
            f"{len(bad)} runs not as they must be" + (f": seeds {', '.join(map(str, bad))}" if bad else ""),
        ]
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run; 0 if every run was good, 1 if not."""
    arguments = _parser().parse_args(argv)
    if mount_is_refused():
        print(f"scripts/chaos mounts: {mount_is_refused()}", file=sys.stderr)
        return 2
    logs = (arguments.logs or Path(tempfile.mkdtemp(prefix="emlio-chaos-mounts-"))).resolve()
    logs.mkdir(parents=True, exist_ok=True)
    seeds = arguments.seed or range(arguments.first, arguments.first + arguments.seeds)
    begin, results = time.monotonic(), list[RunResult]()
    with tempfile.TemporaryDirectory(prefix="emlio-chaos-files-") as data:
        known = make_known_files(Path(data))
        with fork_server("emlio.files.mount", "emlio.cli.mount"):
            if arguments.minutes is None:
                runs = _runs(seeds, tuple(map(Kind, arguments.kind or ())), arguments.jobs, known, logs)
            else:
                scenario = draw_long(seeds[0], arguments.minutes)
                runs = iter([MountRun(scenario, known, logs / "long", logs / "samples.jsonl").run()])
            for result in runs:
                _say(result)
                results.append(result)
    print(f"\n{_summary(results, time.monotonic() - begin)}")
    is_good = not any(result.troubles for result in results)
    if is_good and arguments.logs is None and arguments.minutes is None:
        shutil.rmtree(logs)
    else:
        print(f"logs: {logs}")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
