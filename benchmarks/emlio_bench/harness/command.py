"""A command of `emlio-bench`, and what it gets from its surroundings."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from emlio.errors import ConfigError
from emlio_bench.harness.options import flag, folder
from emlio_bench.harness.report import Part, result_parts
from emlio_bench.harness.results import QUICK, Results

__all__ = ["Command", "CommonSettings", "World"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonSettings:
    """The options of each benchmark that prints tables."""

    json: Path | None = folder("write raw values and their environment here; compressed as .gz", "FILE")
    append: bool = flag("add to the values in the --json file, if they are of a like run")
    data: Path | None = folder("keep datasets in this folder and use what is there (default: a temporary one)")
    quick: bool = flag("small data and short samples: shows that all works, measures nothing")

    def __post_init__(self) -> None:
        if self.append and self.json is None:
            raise ConfigError("--append needs --json FILE to append to")


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Things that a command may use besides its settings.

    Attributes:
        environment: environment variables.
        tell: shows a line of progress.
        agree: asks whether other systems may be installed.
    """

    environment: Mapping[str, str]
    tell: Callable[[str], None]
    agree: Callable[[], bool] = lambda: True


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One benchmark.

    Attributes:
        name: name on the command line, and of its results.
        settings: class of its settings.
        run: takes settings and the world, returns results.
        text: line of help.
        parts: returns the report of its results.
        draw: returns a figure of matplotlib from its results, or None.
        keeps: whether it writes results and report into the folder `settings.out`, and goes on there.
    """

    name: str
    settings: type[Any]
    run: Callable[[Any, World], Results]
    text: str
    parts: Callable[[Results], Sequence[Part]] = result_parts
    draw: Callable[[Results], Any] | None = None
    keeps: bool = False

    def __post_init__(self) -> None:
        if not self.keeps:  # such a one marks its results itself, and goes on with those that are alike
            object.__setattr__(self, "run", partial(_marked, self.run))


def _marked(run: Callable[[Any, World], Results], settings: Any, world: World) -> Results:
    """Run a benchmark; its results say so if they mean nothing."""
    results = run(settings, world)
    if not getattr(settings, "quick", False) or QUICK in results.settings:
        return results
    return replace(results, settings=(*results.settings, QUICK))
