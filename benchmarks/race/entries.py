"""Who takes part.

Covers: all systems there are, making what they need, their settings, why one cannot. Does not cover: running them.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from emlio.benchmarks.race.environments import (
    environment_python,
    find_program,
    installed_versions,
    make_environment,
    make_program,
)
from emlio.benchmarks.race.outcome import Entrant
from emlio.benchmarks.race.rival import Rival, Setting
from emlio.benchmarks.race.subjects.dali_files import DaliFiles
from emlio.benchmarks.race.subjects.dali_local import DaliLocal
from emlio.benchmarks.race.subjects.grain import Grain
from emlio.benchmarks.race.subjects.hf_datasets import HfDatasets
from emlio.benchmarks.race.subjects.iperf import Iperf3
from emlio.benchmarks.race.subjects.litdata import LitData
from emlio.benchmarks.race.subjects.mosaic import Mosaic
from emlio.benchmarks.race.subjects.ours import Local, Remote
from emlio.benchmarks.race.subjects.paper import PaperWay
from emlio.benchmarks.race.subjects.pytorch_files import PyTorchFiles
from emlio.benchmarks.race.subjects.spdl import Spdl
from emlio.benchmarks.race.subjects.tfdata_service import TfDataService
from emlio.benchmarks.race.subjects.webdataset import WebDataset
from emlio.errors import ConfigError

__all__ = ["SUBJECTS", "Entry", "all_rivals", "entered"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A system at one of its settings, and what is said of it."""

    rival: Rival
    setting: Setting
    entrant: Entrant


def all_rivals(cache: Path, mount: Path | None = None) -> tuple[Rival, ...]:
    """Every system, ours first.

    Args:
        cache: of environments and programs.
        mount: a folder of the storage's that the user mounted here; None for sshfs.
    """
    return (
        Iperf3(),
        Remote(),
        Local(),
        DaliLocal(),
        PaperWay(),
        LitData(cache=cache),
        Mosaic(cache=cache),
        WebDataset(cache=cache),
        HfDatasets(cache=cache),
        TfDataService(cache=cache),
        PyTorchFiles(cache=cache, mount=mount),
        DaliFiles(form="file", cache=cache, mount=mount),
        DaliFiles(form="tfrecord", cache=cache, mount=mount),
        Spdl(cache=cache, mount=mount),
        Grain(cache=cache, mount=mount),
    )


SUBJECTS = tuple(rival.name for rival in all_rivals(Path()))
"""Their names."""


def entered(
    rivals: Iterable[Rival],
    rtts_ns: Sequence[int],
    *,
    cache: Path,
    every: bool,
    make: bool,
    tell: Callable[[str], None],
) -> tuple[tuple[Entry, ...], tuple[Entrant, ...]]:
    """Those who can take part, each at its settings, and those who cannot.

    Args:
        rivals: asked for.
        rtts_ns: of all links.
        cache: of environments and programs.
        every: whether all settings are wanted; else the usual ones.
        make: whether environments and programs that are not there are made, which takes minutes.
        tell: hears what is being made.
    """
    able: list[Entry] = []
    unable: list[Entrant] = []
    for rival in rivals:
        reason = _made(rival, cache, tell) if make else None
        reason = reason or rival.why_not()
        settings = {one.name: one for rtt_ns in rtts_ns for one in rival.settings(rtt_ns) if every or one.usual}
        versions = installed_versions(rival.environment, cache, rival.claim.packages)
        for one in settings.values():
            entrant = Entrant(
                subject=rival.name,
                setting=one.name,
                words=one.words,
                family=rival.family,
                shuffles=rival.claim.shuffles,
                exact=rival.claim.exact,
                leaves_on_disk=rival.claim.leaves_on_disk,
                versions=versions,
                missing=reason,
            )
            if reason is None:
                able.append(Entry(rival=rival, setting=one, entrant=entrant))
            else:
                unable.append(entrant)
    return tuple(able), tuple(unable)


def _made(rival: Rival, cache: Path, tell: Callable[[str], None]) -> str | None:
    """Make what it needs; why that could not be done, or None."""
    try:
        if rival.environment is not None and environment_python(rival.environment, cache) is None:
            tell(f"making the environment of {rival.name}, once")
            make_environment(rival.environment, cache)
        for program in rival.programs:
            if find_program(program, cache) is None:
                tell(f"making {program} for {rival.name}, once")
            make_program(program, cache)
    except ConfigError as error:
        return str(error)
    return None
