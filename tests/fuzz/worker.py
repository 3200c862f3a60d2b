"""One target fuzzed in this process, which may be ended by it.

Covers: both engines. `mutator` is this package's own and makes the same inputs from the same seed. `coverage` is Atheris, which
keeps the inputs that reach code no other reached. Does not cover: who starts it and looks at what is left (tests.fuzz.run).
"""

import argparse
import importlib
import re
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.fuzz.guard import CpuGuard, TooSlow, limit_memory
from tests.fuzz.ledger import Ledger
from tests.fuzz.mutate import Mutator
from tests.fuzz.target import Target

__all__ = ["main"]

_OWN_WORDS = re.compile(r"[^0-9'\"]{0,200}")
"""How a message begins, up to what it repeats of the input."""
_HEXADECIMAL = re.compile(r"\b[a-f]+\b")
_MOST_OUTCOMES = 5000
"""Told apart. If messages began with the input, each would be another one, and they would fill the memory."""
_COVERAGE_BYTES = 512 << 20
"""What the engine itself may take besides."""


class _Execution:
    """Runs inputs one by one, and writes down those that are findings: one for each place that raised."""

    def __init__(self, target: Target, ledger: Ledger, findings: Path) -> None:
        self._target = target
        self._ledger = ledger
        self._findings = findings
        self._guard = CpuGuard(target.cpu_s)
        self._sites: set[str] = set()
        self._begin_ns = time.monotonic_ns()
        self.count = 0

    def run(self, data: bytes) -> str:
        """Run one; returns what came of it, without its numbers."""
        self.count += 1
        self._ledger.begin(self.count, time.monotonic_ns() - self._begin_ns, data)
        try:
            self._guard.begin()
            self._target.fuzz(data)
        except self._target.raises as error:
            return _outcome(error)
        except (Exception, TooSlow) as error:  # noqa: BLE001  # whatever is not documented is what is looked for
            self._guard.end()
            self._keep(data, error)
            return type(error).__name__
        return "read"

    def end(self) -> None:
        """No input is in hand any more."""
        self._guard.end()
        self._ledger.end(self.count, time.monotonic_ns() - self._begin_ns)

    def _keep(self, data: bytes, error: BaseException) -> None:
        frames = traceback.extract_tb(error.__traceback__)
        # Where the time was up says nothing.
        last = frames[-1]
        site = "slow" if isinstance(error, TooSlow) else f"{type(error).__name__} {last.filename}:{last.lineno}"
        if site in self._sites:
            return
        self._sites.add(site)
        name = f"found-{blake2b(data, digest_size=6).hexdigest()}"
        (self._findings / name).write_bytes(data)
        (self._findings / f"{name}.txt").write_text(
            "".join(traceback.format_exception(error, limit=-12)), encoding="utf-8"
        )


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--target", required=True, help="MODULE, which has a TARGET")
    parser.add_argument("--engine", choices=("mutator", "coverage"), required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--seconds", type=float, help="either this")
    parser.add_argument("--runs", type=int, help="or this many changed inputs after the seeds")
    parser.add_argument("--seeds", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Fuzz one target; findings lie in FOLDER/findings, the count in FOLDER/ledger."""
    arguments = _arguments(argv)
    findings = arguments.folder / "findings"
    findings.mkdir(exist_ok=True)
    seeds = [path.read_bytes() for path in sorted(arguments.seeds.glob("*"))] if arguments.seeds.is_dir() else []
    with Ledger(arguments.folder / "ledger") as ledger:
        if arguments.engine == "coverage":
            return _with_coverage(arguments, ledger, findings)
        target: Target = importlib.import_module(arguments.target).TARGET
        execution = _Execution(target, ledger, findings)
        limit_memory(target.allowance_bytes)
        _mutate(execution, target, seeds, arguments)
        execution.end()
    return 0


def _mutate(execution: _Execution, target: Target, seeds: Sequence[bytes], arguments: argparse.Namespace) -> None:
    known = {execution.run(seed) for seed in (b"", *seeds)}
    small = [seed for seed in seeds if len(seed) <= target.most_bytes]
    mutator = Mutator(small, target.tokens, most_bytes=target.most_bytes, seed=f"{arguments.target} {arguments.seed}")
    deadline_ns = time.monotonic_ns() + round((arguments.seconds or 0) * 1e9)
    while execution.count <= len(seeds) + arguments.runs if arguments.runs else time.monotonic_ns() < deadline_ns:
        data = mutator.make()
        outcome = execution.run(data)
        if outcome not in known and len(known) < _MOST_OUTCOMES:
            known.add(outcome)
            mutator.keep(data)


def _with_coverage(arguments: argparse.Namespace, ledger: Ledger, findings: Path) -> int:
    atheris: Any = importlib.import_module("atheris")
    with atheris.instrument_imports(include=["emlio"]):
        target: Target = importlib.import_module(arguments.target).TARGET
    execution = _Execution(target, ledger, findings)
    grown = arguments.folder / "grown"
    grown.mkdir(exist_ok=True)
    tokens = arguments.folder / "tokens"
    tokens.write_text("".join(f'"{_escaped(token)}"\n' for token in target.tokens), encoding="ascii")
    flags = (
        f"-max_total_time={max(round(arguments.seconds or 1), 1)}",
        f"-seed={arguments.seed + 1}",
        f"-max_len={target.most_bytes}",
        *((f"-dict={tokens}",) if target.tokens else ()),
        "-timeout=300",
        "-verbosity=0",
        "-print_final_stats=0",
        f"-artifact_prefix={arguments.folder}/",
    )
    folders = [str(folder) for folder in (grown, arguments.seeds) if folder.is_dir()]

    def one(data: bytes) -> None:
        execution.run(data)
        execution.end()

    run: Callable[[bytes], None] = one
    atheris.Setup([sys.argv[0], *flags, *folders], run)
    limit_memory(target.allowance_bytes + _COVERAGE_BYTES)
    atheris.Fuzz()
    return 0


def _outcome(error: Exception) -> str:
    """Where it was raised and how its words begin: two inputs with the same are as good as one."""
    places = [f"{place.tb_frame.f_code.co_name}:{place.tb_lineno}" for place in _places(error.__traceback__)]
    words = _OWN_WORDS.match(str(error))
    return " ".join((type(error).__name__, *places[-2:], _HEXADECIMAL.sub("", words.group() if words else "")))


def _places(trace: TracebackType | None) -> Iterator[TracebackType]:
    while trace is not None:
        yield trace
        trace = trace.tb_next


def _escaped(token: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in token)


if __name__ == "__main__":
    sys.exit(main())
