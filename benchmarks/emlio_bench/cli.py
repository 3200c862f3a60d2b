"""The command `emlio-bench`."""

import argparse
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, Final, TypeVar

from emlio import __version__
from emlio.cli import drop_output
from emlio.errors import ConfigError, EmlioError
from emlio.settings import add_flags, read_settings
from emlio_bench.costs import run as costs
from emlio_bench.counters import run as counters
from emlio_bench.decode import run as decode
from emlio_bench.delivery import run as delivery
from emlio_bench.dial import run as dial
from emlio_bench.disk import run as disk
from emlio_bench.dlio import run as dlio
from emlio_bench.files import run as files
from emlio_bench.formats import run as formats
from emlio_bench.harness.command import Command, CommonSettings, World
from emlio_bench.harness.report import missed_bounds, text_page, write_report
from emlio_bench.harness.results import Results, merge, read_results, write_results
from emlio_bench.mixtures import run as mixtures
from emlio_bench.paper import run as paper
from emlio_bench.race.run import race
from emlio_bench.recovery import run as recovery
from emlio_bench.tuning import learn
from emlio_bench.tuning import run as tuning

__all__ = ["COMMANDS", "main"]

_Settings = TypeVar("_Settings")

COMMANDS: Final[dict[str, Command]] = {
    subject.COMMAND.name: subject.COMMAND
    for subject in (
        costs,
        counters,
        decode,
        delivery,
        dial,
        disk,
        dlio,
        files,
        formats,
        mixtures,
        paper,
        race,
        recovery,
        tuning,
    )
}
_REPORT: Final = "the results in a folder or --json file A as Markdown with a picture, into the folder B"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="emlio-bench", description="Benchmarks of EMLIO and of other data loaders.")
    parser.add_argument("--version", action="version", version=f"emlio {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, command in sorted(COMMANDS.items()):
        add_flags(commands.add_parser(name, help=command.text, description=command.text), command.settings)
    report = commands.add_parser("report", help=_REPORT, description=_REPORT)
    for place in ("A", "B"):
        report.add_argument(place, type=Path)
    learn.add_arguments(commands.add_parser("tune-model", help=learn.HELP, description=learn.HELP))
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run a benchmark.

    Returns:
        0 on success, 1 if a figure missed its bound or no run came to its end, 2 after an error, 70 after any other exception,
        130 after an interruption, 141 after a broken pipe.
    """
    arguments = _parser().parse_args(_with_command(sys.argv[1:] if argv is None else argv))
    # On SIGTERM it must end its children first, as after Ctrl-C.
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        if arguments.command == "report":
            print(_keep(read_results(arguments.A), arguments.B), flush=True)
            return 0
        if arguments.command == "tune-model":
            print(learn.run(arguments), flush=True)
            return 0
        command = COMMANDS[arguments.command]
        settings = _settings(command.settings, vars(arguments))
        return _keep_running(command, settings) if command.keeps else _print_running(command, settings)
    except EmlioError as error:
        print(f"emlio-bench {arguments.command}: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"emlio-bench {arguments.command}: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        drop_output()
        return 141
    except Exception:  # noqa: BLE001  # Python's own exit status would say that a figure missed its bound
        with suppress(OSError):  # the reader of stderr may have gone
            traceback.print_exc()
        return os.EX_SOFTWARE
    finally:
        signal.signal(signal.SIGTERM, before)


def _with_command(words: Sequence[str]) -> list[str]:
    """Insert the command "race" if there are only options."""
    no_command = words and words[0].startswith("-") and words[0] not in ("-h", "--help", "--version")
    return ["race", *words] if no_command else list(words)


def _settings(kind: type[_Settings], flags: Mapping[str, Any]) -> _Settings:
    return read_settings(
        kind, flags=flags, environment=os.environ, prefix="EMLIO_BENCH_", table={}, table_name="", others={}
    )


def _world(*, yes: bool) -> World:
    return World(environment=os.environ, tell=_tell, agree=_asker(yes=yes))


def _asker(*, yes: bool) -> Callable[[], bool]:
    """Return what asks the user whether to install. Without a terminal it does not ask."""
    if yes or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return lambda: True

    def ask() -> bool:
        print("Install it? [y/N] ", end="", file=sys.stderr, flush=True)
        return sys.stdin.readline().strip().lower() in ("y", "yes")

    return ask


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _keep_running(command: Command, settings: Any) -> int:
    """Run a command that keeps its results in a folder."""
    results = command.run(settings, _world(yes=getattr(settings, "yes", True)))
    print(_keep(results, settings.out))
    if not results.succeeded:
        print(f"emlio-bench: no run came to its end; the reasons are in {settings.out}", file=sys.stderr)
    return int(not results.succeeded)


def _keep(results: Results, folder: Path) -> str:
    if results.benchmark not in COMMANDS:
        raise ConfigError(f"results must be of one of {', '.join(COMMANDS)}, got {results.benchmark}")
    command = COMMANDS[results.benchmark]
    parts = command.parts(results)
    figure = None if command.draw is None else command.draw(results)
    names = write_report(f"EMLIO: {command.name}", parts, results, folder, figure)
    return f"{text_page(parts[:2])}\n\n{folder}: {names}"


def _print_running(command: Command, settings: CommonSettings) -> int:
    """Run a command that prints tables."""
    older = read_results(settings.json) if settings.append and settings.json and settings.json.exists() else None
    results = command.run(settings, _world(yes=True))
    if older is not None:
        results = merge(older, results)
    if settings.json is not None:
        write_results(results, settings.json)
    print(text_page(command.parts(results)))
    missed = missed_bounds(results.figures)
    if missed:
        print(f"emlio-bench: out of bounds: {'; '.join(missed)}", file=sys.stderr)
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
