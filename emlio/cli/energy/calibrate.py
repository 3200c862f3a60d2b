"""`emlio energy calibrate`: fit the power model of the processors to their own counters.

Covers: the command's arguments, writing the file. Does not cover: loading and reading
(emlio.energy.verification.calibrating), the fit (emlio.energy.sources.calibration).
"""

import argparse
import time
from pathlib import Path

from emlio.arguments import parsed
from emlio.cli.energy.sources import calibration_path
from emlio.cli.key_folder import add_example
from emlio.energy.sources.probe import probe
from emlio.energy.verification.busy_cores import BusyCores
from emlio.energy.verification.calibrating import calibrate
from emlio.errors import ConfigError
from emlio.units import parse_duration_ns

__all__ = ["add_arguments", "run"]

_EXAMPLE = """\
example:
  emlio energy calibrate                      # on bare metal, with nothing else running
  emlio energy calibrate --out this-cpu.toml  # use it in a virtual machine: --calibration this-cpu.toml

It requires a working energy counter of the processors, which the model is fitted to.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "--out", metavar="FILE", type=Path, help="file to write (default: where emlio energy probe looks for it)"
    )
    parser.add_argument(
        "--phase", metavar="TIME", default="10s", help="duration of each of the 5 load levels (default: 10s)"
    )
    add_example(parser, _EXAMPLE)


def run(arguments: argparse.Namespace) -> int:
    """Calibrate and write the file."""
    phase_ns = parsed("--phase", parse_duration_ns, arguments.phase)
    named: Path | None = arguments.out
    path = calibration_path() if named is None else named
    report = probe()
    made = calibrate(report, load=_announced, wait=lambda duration_ns: time.sleep(duration_ns / 1e9), phase_ns=phase_ns)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)  # the folder also holds keys
        path.write_text(made.text(), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"the calibration cannot be written to {path}: {error.strerror}") from error
    print(
        f"wrote {path}: {made.idle_watts:.1f} W at rest, {made.max_watts:.1f} W at full load, exponent {made.exponent:.2f}"
    )
    return 0


def _announced(cores: int) -> BusyCores:
    print(f"measuring with {cores} busy cores; nothing else should run", flush=True)
    return BusyCores(cores)
