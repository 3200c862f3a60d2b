"""The command `emlio-bench`.

Covers: turning argv into a command's settings, tables and plots from its results, exit codes. This
is the only file of the benchmarks that prints. Does not cover: measuring.
"""

import argparse
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Final, TypeVar

from emlio import __version__
from emlio.errors import EmlioError
from emlio.settings import add_flags, read_settings
from emlio_bench.attacks.figures import render_attacks
from emlio_bench.attacks.plot import plot_attacks
from emlio_bench.attacks.run import run_attacks
from emlio_bench.convergence.plot import plot_convergence
from emlio_bench.convergence.run import run_convergence
from emlio_bench.decode.figures import render_decode
from emlio_bench.decode.plot import plot_decode
from emlio_bench.decode.run import run_decode
from emlio_bench.delivery.run import run_delivery
from emlio_bench.energy.run import run_energy
from emlio_bench.harness.document import check_page, put_into
from emlio_bench.harness.plot import check_plotting, plot_delivery
from emlio_bench.harness.report import missed_bounds, render
from emlio_bench.harness.results import Results, merge, read_results, write_results
from emlio_bench.harness.settings import (
    AttacksSettings,
    CommonSettings,
    ConvergenceSettings,
    DecodeSettings,
    DeliverySettings,
    EnergySettings,
    ExamplesSettings,
    PaceSettings,
    PaddingSettings,
    PlanSettings,
    PlottedSettings,
    RecoverySettings,
)
from emlio_bench.link_accuracy.figures import render_link
from emlio_bench.link_accuracy.plot import plot_link
from emlio_bench.link_accuracy.run import run_link
from emlio_bench.link_accuracy.settings import LinkSettings
from emlio_bench.memory.run import run_memory
from emlio_bench.memory.settings import MemorySettings
from emlio_bench.pace.plot import plot_pace
from emlio_bench.pace.run import run_pace
from emlio_bench.race.reading_commands import CompareSettings, ReportSettings, run_compare, run_report
from emlio_bench.race.run import run_race
from emlio_bench.race.settings import RaceSettings
from emlio_bench.ranks.run import run_ranks
from emlio_bench.ranks.settings import RanksSettings
from emlio_bench.recovery.plot import plot_recovery
from emlio_bench.recovery.run import run_recovery
from emlio_bench.scaling.plot import plot_scaling
from emlio_bench.scaling.run import run_scaling
from emlio_bench.scaling.settings import ScalingSettings
from emlio_bench.small.examples import run_examples
from emlio_bench.small.padding import run_padding
from emlio_bench.small.plan_cost import run_plan
from emlio_bench.start.run import run_start
from emlio_bench.start.settings import StartSettings

__all__ = ["COMMANDS", "FOLDER_COMMANDS", "main"]

_Settings = TypeVar("_Settings")


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A benchmark of the command line."""

    settings: type[CommonSettings]
    run: Callable[[Any], Results]
    text: str
    render: Callable[[Results], str] = render
    plot: Callable[[Results, Path], None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderCommand:
    """A command about folders of races.

    `paths` are the names of its positional arguments in the help.
    """

    paths: tuple[str, ...]
    settings: type
    run: Callable[[Sequence[Path], Any], str]
    text: str


def _race(paths: Sequence[Path], settings: RaceSettings) -> str:
    run_race(settings, os.environ, _tell)
    return run_report([settings.out], ReportSettings())


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


FOLDER_COMMANDS: Final = {
    "compare": FolderCommand(
        paths=("A", "B"),
        settings=CompareSettings,
        run=run_compare,
        text="two runs of the same contests on the same machine: races, or --json files of one benchmark",
    ),
    "race": FolderCommand(
        paths=(),
        settings=RaceSettings,
        run=_race,
        text="this loader and the others over the same long link, in turns; what runs where no command is named",
    ),
    "report": FolderCommand(
        paths=("DIR",),
        settings=ReportSettings,
        run=run_report,
        text="a race as Markdown, as one page that needs nothing besides itself, and as pictures",
    ),
}

COMMANDS: Final = {
    "attacks": Command(
        settings=AttacksSettings,
        run=run_attacks,
        text="how much of its speed a rank keeps while somebody attacks its daemon",
        render=render_attacks,
        plot=plot_attacks,
    ),
    "convergence": Command(
        settings=ConvergenceSettings,
        run=run_convergence,
        text="one training fed from memory, over loopback and over a long link: the same bits",
        plot=plot_convergence,
    ),
    "decode": Command(
        settings=DecodeSettings,
        run=run_decode,
        text="pictures decoded for training, beside DALI's reader and PyTorch's DataLoader",
        render=render_decode,
        plot=plot_decode,
    ),
    "delivery": Command(
        settings=DeliverySettings,
        run=run_delivery,
        text="throughput against the machine's limits and the paper's way",
        plot=plot_delivery,
    ),
    "energy": Command(
        settings=EnergySettings,
        run=run_energy,
        text="what a storage and a training node use, two hosts on one machine with a long link between them",
    ),
    "examples": Command(
        settings=ExamplesSettings, run=run_examples, text="small Examples a second, decoded, for one rank"
    ),
    "link": Command(
        settings=LinkSettings,
        run=run_link,
        text="how true the emulated link is that other benchmarks use: round trips, and what streams carry",
        render=render_link,
        plot=plot_link,
    ),
    "memory": Command(
        settings=MemorySettings,
        run=run_memory,
        text="memory of both sides while the consumer pauses, or of a slow rank over a long link",
    ),
    "pace": Command(
        settings=PaceSettings,
        run=run_pace,
        text="processor time of both sides for a slow consumer, racing and saving energy",
        plot=plot_pace,
    ),
    "padding": Command(
        settings=PaddingSettings, run=run_padding, text="padding in token batches, beside batches of random records"
    ),
    "plan": Command(settings=PlanSettings, run=run_plan, text="cost of a plan of 10^9 records"),
    "ranks": Command(
        settings=RanksSettings, run=run_ranks, text="what a thousand ranks that read slowly cost one daemon"
    ),
    "recovery": Command(
        settings=RecoverySettings,
        run=run_recovery,
        text="how long a rank waits when a daemon is killed, stands still, is replaced or stays away",
        plot=plot_recovery,
    ),
    "scaling": Command(
        settings=ScalingSettings,
        run=run_scaling,
        text="what several daemons deliver together, each behind a slow line of its own, while one rank is slow",
        plot=plot_scaling,
    ),
    "start": Command(
        settings=StartSettings,
        run=run_start,
        text="time from the loader's constructor to its first batch, on loopback or over a long link",
    ),
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="emlio-bench", description="How fast, against what limit, on this machine and over loopback."
    )
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
        0 on success, 1 if a figure missed its bound, 2 after an error, 130 after an interruption.
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
    print(command.run([flags[path] for path in command.paths], _settings(command.settings, flags)))
    return 0


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _carry_out(command: Command, settings: CommonSettings) -> int:
    plot = settings.plot if isinstance(settings, PlottedSettings) else None
    if plot is not None:
        check_plotting()
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
