"""A command of `emlio-bench` that measures, as its own folder declares it.

Covers: the value. Does not cover: the command line (emlio_bench.cli).
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emlio_bench.harness.report import render
from emlio_bench.harness.results import Results
from emlio_bench.harness.settings import CommonSettings

__all__ = ["Command"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A benchmark of the command line.

    Attributes:
        name: word that selects it.
        settings: its options.
        run: measures.
        text: one line for --help.
        render: returns the tables of its results.
        plot: draws its results into a file; None if they cannot be drawn.
    """

    name: str
    settings: type[CommonSettings]
    run: Callable[[Any], Results]
    text: str
    render: Callable[[Results], str] = render
    plot: Callable[[Results, Path], None] | None = None
