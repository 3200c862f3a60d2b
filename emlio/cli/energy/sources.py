"""The flags that say where a command of `emlio energy` finds energy, shared by those that probe.

Covers: `--powercap-root`, `--cpu-watts`, `--calibration`, where a calibration is kept. Does not cover: probing.
"""

import argparse
import os
from dataclasses import dataclass
from pathlib import Path

from emlio.energy.calibration import Calibration, read_calibration
from emlio.energy.model import CpuWatts
from emlio.errors import ConfigError
from emlio.keys.folder import default_key_folder

__all__ = ["Choices", "add_source_flags", "calibration_path", "choices_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What somebody said, in the words of `emlio.energy.probe.probe`."""

    powercap_root: Path | None
    cpu_watts: CpuWatts | None
    calibration: Calibration | None


def add_source_flags(parser: argparse.ArgumentParser) -> None:
    """Declare them."""
    parser.add_argument(
        "--powercap-root",
        metavar="DIR",
        type=Path,
        help="a powercap tree that the host writes for this virtual machine, such as /var/scaphandre",
    )
    parser.add_argument(
        "--cpu-watts",
        metavar="IDLE:MAX",
        help="for an estimate: what all processors draw at rest and at full load, such as 40:150",
    )
    parser.add_argument(
        "--calibration",
        metavar="FILE",
        type=Path,
        help="for an estimate: what `emlio energy calibrate` wrote (default: energy.toml in $EMLIO_HOME, else in "
        "$XDG_CONFIG_HOME/emlio, else in ~/.config/emlio, if it is there)",
    )


def calibration_path() -> Path:
    """Where a calibration is kept when nobody says otherwise."""
    return default_key_folder(os.environ) / "energy.toml"


def choices_of(arguments: argparse.Namespace) -> Choices:
    """What the flags say."""
    root: Path | None = arguments.powercap_root
    if root is not None and not root.is_dir():
        raise ConfigError(f"--powercap-root must be a directory, got {root}")
    watts: str | None = arguments.cpu_watts
    path: Path | None = arguments.calibration
    if path is None:
        path = _kept_calibration()
    return Choices(
        powercap_root=root,
        cpu_watts=CpuWatts.parse(watts) if watts is not None else None,
        calibration=read_calibration(path) if path is not None else None,
    )


def _kept_calibration() -> Path | None:
    """The usual file if it is there; a service may have no home, or none that it may look into."""
    try:
        path = calibration_path()
        return path if path.is_file() else None
    except (ConfigError, OSError):
        return None
