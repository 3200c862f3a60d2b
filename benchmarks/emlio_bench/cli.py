"""The command `emlio-bench`.

Covers: turning argv into a command's settings, tables and plots from its results, exit codes. With
emlio_bench.gpu.cli it is the only file of the benchmarks that prints. Does not cover: measuring.
"""

import argparse
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Final, TypeVar

from emlio import __version__
from emlio.errors import EmlioError
from emlio.settings import add_flags, read_settings
from emlio.units import format_duration
from emlio_bench.allreduce import run as allreduce
from emlio_bench.attacks import run as attacks
from emlio_bench.convergence import run as convergence
from emlio_bench.counters import run as counters
from emlio_bench.decode import run as decode
from emlio_bench.delivery import run as delivery
from emlio_bench.energy import run as energy
from emlio_bench.experiment.command import Command
from emlio_bench.formats.report import render_formats, write_formats_report
from emlio_bench.formats.run import run_formats
from emlio_bench.formats.settings import FormatsSettings
from emlio_bench.harness.document import check_page, put_into
from emlio_bench.harness.page import REPORT
from emlio_bench.harness.report import missed_bounds
from emlio_bench.harness.results import merge, read_results, write_results
from emlio_bench.harness.settings import CommonSettings, PlottedSettings
from emlio_bench.link_accuracy import run as link_accuracy
from emlio_bench.memory import run as memory
from emlio_bench.mixtures.report import render_mixtures, write_mixtures_report
from emlio_bench.mixtures.run import run_mixtures
from emlio_bench.mixtures.settings import MixturesSettings
from emlio_bench.nvml import run as nvml
from emlio_bench.paper.claims import papers_claims
from emlio_bench.paper.report import first_words, is_paper, write_paper_report
from emlio_bench.paper.run import run_paper
from emlio_bench.paper.settings import PaperSettings
from emlio_bench.race.outcome import Race, read_run
from emlio_bench.race.report.commands import CompareSettings, ReportSettings, run_compare, run_report
from emlio_bench.race.run.race import run_race
from emlio_bench.race.run.settings import RaceSettings
from emlio_bench.ranks import run as ranks
from emlio_bench.recovery import run as recovery
from emlio_bench.scaling import run as scaling
from emlio_bench.small import examples, padding, plan_cost
from emlio_bench.start import run as start

__all__ = ["COMMANDS", "FOLDER_COMMANDS", "main"]

_Settings = TypeVar("_Settings")


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderCommand:
    """A command about races, or about results of earlier runs.

    `paths` are the names of its positional arguments in the help.
    """

    paths: tuple[str, ...]
    settings: type
    run: Callable[[Sequence[Path], Any], "_Ended"]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ended:
    """The end of a command.

    Attributes:
        said: text for standard output.
        failed: text for standard error if nothing was measured; the exit status is then 1.
    """

    said: str
    failed: str = ""


def _race(paths: Sequence[Path], settings: RaceSettings) -> _Ended:
    race = run_race(settings, os.environ, _tell, _asker(yes=settings.yes))
    said = run_report([settings.out], ReportSettings())
    for table in papers_claims(race):
        said += f"\n\n{table.title}\n{table.text()}"
    rtts = ",".join(format_duration(rtt_ns).replace(" ", "") for rtt_ns in settings.rtt if rtt_ns)
    if rtts:
        said += f"\n\nWith training steps, as in the paper: emlio-bench paper --figure 5 --rtt {rtts} --within 30m"
    return _Ended(said=said, failed=_why_failed(race, settings.out))


def _why_failed(race: Race, out: Path) -> str:
    return "" if race.succeeded else f"no run came to its end; the reasons are above, and in {out / REPORT}"


def _compare(paths: Sequence[Path], settings: CompareSettings) -> _Ended:
    return _Ended(said=run_compare(paths, settings))


def _report(paths: Sequence[Path], settings: ReportSettings) -> _Ended:
    results = read_run(paths[0])
    if isinstance(results, Race) and is_paper(results):
        beside = paths[0] if paths[0].is_dir() else paths[0].parent
        return _Ended(said=_paper_report(results, settings.out or beside))
    return _Ended(said=run_report(paths, settings))


def _paper(paths: Sequence[Path], settings: PaperSettings) -> _Ended:
    race = run_paper(settings, os.environ, _tell, _asker(yes=settings.yes))
    return _Ended(said=_paper_report(race, settings.out), failed=_why_failed(race, settings.out))


def _paper_report(race: Race, folder: Path) -> str:
    written = write_paper_report(race, folder)
    names = ", ".join(file.name for file in written[:3])
    return f"{first_words(race)}\n\n{folder}: {names} and {len(written) - 3} pictures"


def _formats(paths: Sequence[Path], settings: FormatsSettings) -> _Ended:
    results = run_formats(settings, os.environ, _tell)
    names = ", ".join(file.name for file in write_formats_report(results, settings.out))
    return _Ended(said=f"{render_formats(results)}\n\n{settings.out}: {names}")


def _mixtures(paths: Sequence[Path], settings: MixturesSettings) -> _Ended:
    results = run_mixtures(settings, os.environ, _tell)
    names = ", ".join(file.name for file in write_mixtures_report(results, settings.out))
    return _Ended(said=f"{render_mixtures(results)}\n\n{settings.out}: {names}")


def _asker(*, yes: bool) -> Callable[[], bool]:
    """Return what asks the user whether to install. Without a terminal there is nobody to ask, and it goes on."""
    if yes or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return lambda: True

    def ask() -> bool:
        print("Install it? [y/N] ", end="", file=sys.stderr, flush=True)
        return sys.stdin.readline().strip().lower() in ("y", "yes")

    return ask


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


FOLDER_COMMANDS: Final = {
    "compare": FolderCommand(
        paths=("A", "B"),
        settings=CompareSettings,
        run=_compare,
        text="two runs of the same contests on the same machine: races, or --json files of one benchmark",
    ),
    "formats": FolderCommand(
        paths=(),
        settings=FormatsSettings,
        run=_formats,
        text="the same records in several formats, served without conversion, over loopback and a long link",
    ),
    "mixtures": FolderCommand(
        paths=(),
        settings=MixturesSettings,
        run=_mixtures,
        text="three datasets mixed in given proportions over a long link, by this loader and others: time and exactness",
    ),
    "paper": FolderCommand(
        paths=(),
        settings=PaperSettings,
        run=_paper,
        text="the paper's figures with the paper's systems, compared with the paper's numbers",
    ),
    "race": FolderCommand(
        paths=(),
        settings=RaceSettings,
        run=_race,
        text="this loader and others over the same long link, in turns; the default command",
    ),
    "report": FolderCommand(
        paths=("DIR",),
        settings=ReportSettings,
        run=_report,
        text="a race, or a --json file, as Markdown, as one self-contained HTML page, and as pictures",
    ),
}

COMMANDS: Final = {
    subject.COMMAND.name: subject.COMMAND
    for subject in (
        allreduce,
        attacks,
        convergence,
        counters,
        decode,
        delivery,
        energy,
        examples,
        link_accuracy,
        memory,
        nvml,
        padding,
        plan_cost,
        ranks,
        recovery,
        scaling,
        start,
    )
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="emlio-bench", description="Benchmarks of EMLIO and of other data loaders.")
    parser.add_argument("--version", action="version", version=f"emlio {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, command in COMMANDS.items():
        add_flags(commands.add_parser(name, help=command.text, description=command.text), command.settings)
    for name, about in FOLDER_COMMANDS.items():
        of_folders = commands.add_parser(name, help=about.text, description=about.text)
        for path in about.paths:
            of_folders.add_argument(path, type=Path)
        add_flags(of_folders, about.settings)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run a benchmark.

    Returns:
        0 on success, 1 if a figure missed its bound or no run came to its end, 2 after an error, 70 after any other exception,
        130 after an interruption.
    """
    arguments = _parser().parse_args(_with_command(sys.argv[1:] if argv is None else argv))
    # On SIGTERM it must end its children first, as after Ctrl-C.
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        if arguments.command in FOLDER_COMMANDS:
            return _carry_out_on_folders(FOLDER_COMMANDS[arguments.command], vars(arguments))
        command = COMMANDS[arguments.command]
        return _carry_out(command, _settings(command.settings, vars(arguments)))
    except EmlioError as error:
        print(f"emlio-bench {arguments.command}: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"emlio-bench {arguments.command}: interrupted", file=sys.stderr)
        return 130
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


def _carry_out_on_folders(command: FolderCommand, flags: Mapping[str, Any]) -> int:
    ended = command.run([flags[path] for path in command.paths], _settings(command.settings, flags))
    print(ended.said)
    if ended.failed:
        print(f"emlio-bench: {ended.failed}", file=sys.stderr)
    return int(bool(ended.failed))


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _carry_out(command: Command, settings: CommonSettings) -> int:
    plot = settings.plot if isinstance(settings, PlottedSettings) else None
    # Checked before hours of measuring, so that an unusable file costs no time.
    if settings.into is not None:
        check_page(settings.into)
    older = (
        read_results(settings.json)
        if settings.append and settings.json is not None and settings.json.exists()
        else None
    )
    results = command.run(settings)
    if older is not None:
        results = merge(older, results)
    if settings.json is not None:
        write_results(results, settings.json)
    if plot is not None and command.plot is not None:
        command.plot(results, plot)
    tables = command.render(results)
    print(tables)
    if settings.into is not None:
        put_into(settings.into, tables)
    missed = missed_bounds(results.figures)
    if missed:
        print(f"emlio-bench: out of bounds: {'; '.join(missed)}", file=sys.stderr)
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
