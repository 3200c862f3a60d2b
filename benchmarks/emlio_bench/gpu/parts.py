"""The parts of a run on a GPU: what each needs, its share of the time, its command."""

import os
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from emlio.errors import ConfigError
from emlio_bench.harness.options import duration, folder, names, out

__all__ = ["PARTS", "GpuSettings", "Part", "PlacesOfPart", "chosen", "lacks", "limit_of"]

_S: Final = 1_000_000_000
_MARK: Final = "pytest.mark.gpu"
_RTT: Final = "30ms"
"""The paper's longest. A second round trip would double the runs, and their starts would take all of the time."""
_OF_LIMIT: Final = 0.75
"""The share of its time that the figures plan with; environments and data need the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacesOfPart:
    """The folders of a run.

    Attributes:
        root: the checkout.
        out: folder of the results.
        cache: folder of datasets and environments, kept from run to run.
    """

    root: Path
    out: Path
    cache: Path

    @property
    def data(self) -> Path:
        """Folder of the datasets of the parts without other systems."""
        return self.cache / "gpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of the run.

    Attributes:
        name: short stable name.
        words: heading on the page.
        needs: Python modules without which it does not run.
        share_ns: its share of a quarter of an hour.
        command: returns its command line, from its places and its limit in nanoseconds.
        results: its results below the folder of results.
    """

    name: str
    words: str
    needs: tuple[str, ...]
    share_ns: int
    command: Callable[[PlacesOfPart, int], list[str]]
    results: str

    def __post_init__(self) -> None:
        if not self.name or self.share_ns < 1:
            raise ConfigError(f"a part must have a name and a share of the time, got {self.name!r}, {self.share_ns}")


def _bench(*words: str) -> list[str]:
    return [sys.executable, "-m", "emlio_bench.cli", *words]


def _tests(places: PlacesOfPart, limit_ns: int) -> list[str]:
    files = [
        str(path.relative_to(places.root))
        for path in sorted((places.root / "tests").rglob("test_*.py"))
        # The files are named, since others may need packages that are not installed.
        if _MARK in path.read_text(encoding="utf-8")
    ]
    return [sys.executable, "-m", "pytest", "-m", "gpu", f"--junitxml={places.out / 'tests.xml'}", *files]


def _decode(places: PlacesOfPart, limit_ns: int) -> list[str]:
    threads = str(min(os.cpu_count() or 1, 8))
    words = ["--device", "gpu", "--epochs", "8", "--batch", "128", "--threads", threads, "--repeats", "5"]
    return _bench("decode", *words, "--json", str(places.out / "decode.json"), "--data", str(places.data))


def _nvml(places: PlacesOfPart, limit_ns: int) -> list[str]:
    return _bench("costs", "--only", "nvml", "--repeats", "2", "--json", str(places.out / "nvml.json"))


def _figures(places: PlacesOfPart, limit_ns: int) -> list[str]:
    within = f"{round(limit_ns * _OF_LIMIT / _S)}s"
    words = ["--figure", "5,9", "--model", "real", "--rtt", _RTT, "--within", within]
    return _bench("paper", *words, "--out", str(places.out / "figures"), "--cache", str(places.cache))


_DALI: Final = ("torch", "nvidia.dali")

PARTS: Final = (
    Part(
        name="tests",
        words="The tests that need a GPU",
        needs=("pytest", "pytest_timeout", "hypothesis", "PIL", "torch"),  # those that need DALI are skipped without it
        share_ns=90 * _S,
        command=_tests,
        results="tests.xml",
    ),
    Part(
        name="decode",
        words="Pictures decoded on the GPU, beside DALI's own reader",
        needs=("PIL", *_DALI),
        share_ns=230 * _S,
        command=_decode,
        results="decode.json",
    ),
    Part(
        name="nvml",
        words="The energy recorder beside NVML",
        needs=("pynvml", "torch"),
        share_ns=100 * _S,
        command=_nvml,
        results="nvml.json",
    ),
    Part(
        name="figures",
        words="Figures 5 and 9 of the paper with real models",
        needs=("torchvision", "PIL", *_DALI),
        share_ns=480 * _S,
        command=_figures,
        results="figures/results.json",
    ),
)
"""All parts. The figures come last: they use what time the others leave."""


def chosen(names: Collection[str]) -> tuple[Part, ...]:
    """Return the parts with these names, in the order of running."""
    return tuple(part for part in PARTS if part.name in names)


def lacks(part: Part, is_installed: Callable[[str], bool]) -> str | None:
    """Return why a part cannot run, or None."""
    missing = [module for module in part.needs if not is_installed(module)]
    return f"not installed: {', '.join(missing)}" if missing else None


def limit_of(part: Part, later: Sequence[Part], left_ns: int) -> int:
    """Return how long a part may run: all that is left but the shares of those after it.

    What earlier parts did not use is a later one's. Where time is short, all shares shrink alike.
    """
    shares_ns = part.share_ns + sum(one.share_ns for one in later)
    if left_ns <= shares_ns:
        return max(left_ns, 0) * part.share_ns // shares_ns
    return left_ns - sum(one.share_ns for one in later)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSettings:
    """The options of scripts/gpu that are not about the environment."""

    parts: tuple[str, ...] = names([part.name for part in PARTS], "what runs")
    within: int = duration("15m", "time for all parts; environments are not counted")
    out: Path = out("emlio-gpu", "folder for the results and the page")
    cache: Path | None = folder(
        "folder for datasets and environments of other systems (default ~/.cache/emlio-bench)", "FOLDER"
    )
