"""The settings of scripts/gpu.

Covers: its options with their texts and defaults. Does not cover: running.
"""

from dataclasses import dataclass
from pathlib import Path

from emlio.settings import option
from emlio_bench.experiment.options import duration, names
from emlio_bench.gpu.parts import PARTS
from emlio_bench.harness.parsers import path

__all__ = ["GpuSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSettings:
    """The options of scripts/gpu that are not about the environment."""

    parts: tuple[str, ...] = names([part.name for part in PARTS], "what runs")
    within: int = duration("15m", "time for all parts; environments are not counted")
    out: Path | None = option(
        None,
        "folder for the results and the page (default docs/results/gpu of the checkout)",
        parse=path,
        metavar="FOLDER",
    )
    cache: Path | None = option(
        None,
        "folder for datasets and environments of other systems (default ~/.cache/emlio-bench)",
        parse=path,
        metavar="FOLDER",
    )
