"""The programs of programs.toml."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

__all__ = ["PROGRAMS", "Program"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One program, of the shell or of Python.

    Attributes:
        name: in the matrix.
        shell: its source; "" if it is of Python.
        python: its source; "" if it is of the shell.
        needs: without which it is left out.
    """

    name: str
    shell: str = ""
    python: str = ""
    needs: tuple[str, ...] = ()


_TOLD = tomllib.loads(Path(__file__).with_name("programs.toml").read_text(encoding="utf-8"))
PROGRAMS = tuple(Program(**{**one, "needs": tuple(one.get("needs", ()))}) for one in _TOLD["program"])
