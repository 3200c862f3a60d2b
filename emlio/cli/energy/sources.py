"""Command-line flags for energy sources, shared by the commands of `emlio energy` that probe."""

import argparse
import os
from dataclasses import dataclass
from pathlib import Path

from emlio.energy.sources.calibration import Calibration, read_calibration
from emlio.energy.sources.model import CpuWatts
from emlio.errors import ConfigError
from emlio.keys.folder import default_key_folder

__all__ = ["Choices", "add_source_flags", "choices_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """The user's choices, as arguments of `emlio.energy.sources.probe.probe`."""

    powercap_root: Path | None
    cpu_watts: CpuWatts | None
    calibration: Calibration | None


def add_source_flags(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument(
        "--powercap-root",
        metavar="DIR",
        type=Path,
        help=(
            "directory where the host exports the energy of this virtual machine as powercap files, such as "
            "/var/scaphandre"
        ),
    )
    parser.add_argument(
        "--cpu-watts",
        metavar="IDLE:MAX",
        help="for estimates: power of all processors at idle and at full load, such as 40:150",
    )
    parser.add_argument(
        "--calibration",
        metavar="FILE",
        type=Path,
        help="for estimates: file made by `emlio-bench counters --calibrate` (default: energy.toml in $EMLIO_HOME, else in "
        "$XDG_CONFIG_HOME/emlio, else in ~/.config/emlio, if it exists)",
    )


def choices_of(arguments: argparse.Namespace) -> Choices:
    """Return the choices that the flags make."""
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
    """Return the default file if it exists.

    A service may have no home folder, or no access to it.
    """
    try:
        path = default_key_folder(os.environ) / "energy.toml"
        return path if path.is_file() else None
    except (ConfigError, OSError):
        return None
