"""A copy of this package's sources, and the command to run a program with it.

Covers: the running copy, another copy to compare it with, the environment that selects a copy. Does
not cover: the programs.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import emlio
from emlio.errors import ConfigError

__all__ = ["OTHER", "THIS", "Checkout", "chosen_checkouts"]

THIS: Final = "this"
OTHER: Final = "other"
_BENCHMARKS: Final = Path(__file__).resolve().parents[2]
"""The folder of these benchmarks, which every copy is measured by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkout:
    """A folder that holds the package `emlio`.

    Attributes:
        name: name in results.
        root: the folder.
    """

    name: str
    root: Path

    def __post_init__(self) -> None:
        if not (self.root / "emlio" / "__init__.py").is_file():
            raise ConfigError(f"a checkout must hold the file emlio/__init__.py, got {self.root}")

    def command(self, argv: Sequence[str], environment: Mapping[str, str] | None = None) -> list[str]:
        """Return the command that runs a Python program with this copy.

        The program keeps the process id of the command.

        Args:
            argv: program and arguments.
            environment: more environment variables.
        """
        # Without PYTHONSAFEPATH the working directory comes first, and it may hold another
        # checkout.
        path = f"{self.root}{os.pathsep}{_BENCHMARKS}"
        variables = {"PYTHONSAFEPATH": "1", "PYTHONPATH": path, **(environment or {})}
        return ["env", *(f"{name}={value}" for name, value in variables.items()), *argv]


def chosen_checkouts(other: Path | None) -> tuple[Checkout, ...]:
    """Return the running copy, and the copy to compare it with, if any.

    Args:
        other: folder of the other copy, or None.
    """
    this = Checkout(name=THIS, root=Path(emlio.__file__).resolve().parents[1])
    return (this,) if other is None else (this, Checkout(name=OTHER, root=other.resolve()))
