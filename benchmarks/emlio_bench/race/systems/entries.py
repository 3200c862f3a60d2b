"""The entries of a race."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from emlio_bench.harness.contest import Entrant
from emlio_bench.race.needs.environments import installed_versions
from emlio_bench.race.needs.making import make_missing
from emlio_bench.race.systems.bare_sockets import BareSockets
from emlio_bench.race.systems.dali import DaliFiles, DaliLocal
from emlio_bench.race.systems.grain import Grain
from emlio_bench.race.systems.hf_datasets import HfDatasets
from emlio_bench.race.systems.iperf import Iperf3
from emlio_bench.race.systems.litdata import LitData, LitDataTokens
from emlio_bench.race.systems.mosaic import Mosaic
from emlio_bench.race.systems.ours import Local, Remote
from emlio_bench.race.systems.paper import PaperWay
from emlio_bench.race.systems.pytorch_files import PyTorchFiles
from emlio_bench.race.systems.spdl import Spdl
from emlio_bench.race.systems.system import Setting, System
from emlio_bench.race.systems.tfdata_service import TfDataService
from emlio_bench.race.systems.webdataset import WebDataset

__all__ = ["SUBJECTS", "USUAL_SUBJECTS", "Entry", "all_rivals", "entered"]

_STREAMS = tuple(Remote(name=f"emlio-streams-{count}", lanes=count) for count in (1, 2))
"""EMLIO with the lanes of the paper's daemon, for the paper's figures 7 and 8.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A system at one of its settings, with its description."""

    system: System
    setting: Setting
    entrant: Entrant


def all_rivals(cache: Path, mount: Path | None = None) -> tuple[System, ...]:
    """Return every system, EMLIO's first.

    Args:
        cache: folder of environments and programs.
        mount: folder of the storage that the user mounted here; None to use sshfs.
    """
    return (
        Iperf3(),
        BareSockets(),
        Remote(),
        Local(),
        DaliLocal(),
        PaperWay(),
        LitData(cache=cache),
        LitDataTokens(cache=cache),
        Mosaic(cache=cache),
        WebDataset(cache=cache),
        HfDatasets(cache=cache),
        TfDataService(cache=cache),
        PyTorchFiles(cache=cache, mount=mount),
        DaliFiles(form="file", cache=cache, mount=mount),
        DaliFiles(form="tfrecord", cache=cache, mount=mount),
        Spdl(cache=cache, mount=mount),
        Grain(cache=cache, mount=mount),
        *_STREAMS,
    )


_UNUSUAL = {system.name for system in (*_STREAMS, LitDataTokens())}

SUBJECTS = tuple(system.name for system in all_rivals(Path()))
"""The names of all systems."""

USUAL_SUBJECTS = tuple(name for name in SUBJECTS if name not in _UNUSUAL)
"""The names of the systems that run by default."""


def entered(
    systems: Iterable[System],
    rtts_ns: Sequence[int],
    *,
    cache: Path,
    every: bool,
    make: bool,
    tell: Callable[[str], None],
    agree: Callable[[], bool] = lambda: True,
    lacks: Callable[[Sequence[System]], Mapping[str, str]] | None = None,
) -> tuple[tuple[Entry, ...], tuple[Entrant, ...]]:
    """Return the entries that can run, each at its settings, and the entrants that cannot.

    Args:
        systems: requested systems.
        rtts_ns: round trips of all links.
        cache: folder of environments and programs.
        every: whether to use all settings instead of the usual ones.
        make: whether to make missing environments and programs, which takes minutes.
        tell: called with progress messages.
        agree: asked whether to make them.
        lacks: returns what the storage side lacks for these systems, by their names; None if it is
            this machine.
    """
    able: list[Entry] = []
    unable: list[Entrant] = []
    systems = tuple(systems)
    unserved = (lacks or _lacks_here)(systems)
    reasons = {system.name: system.lacks() or unserved.get(system.name) for system in systems}
    _tell_reasons(reasons, tell)  # before anything is installed for the others
    possible = [system for system in systems if reasons[system.name] is None]
    environments = {system.environment for system in possible if system.environment is not None}
    programs = {program for system in possible for program in system.programs}
    failed: Mapping[str, str] = make_missing(environments, programs, cache, tell, agree) if make else {}
    later: dict[str, str | None] = {}
    for system in possible:
        needed = [*system.programs, *([system.environment] if system.environment is not None else [])]
        later[system.name] = next((failed[name] for name in needed if name in failed), None) or system.not_made()
    _tell_reasons(later, tell)
    for system in systems:
        reason = reasons[system.name] or later[system.name]
        settings = {one.name: one for rtt_ns in rtts_ns for one in system.settings(rtt_ns) if every or one.usual}
        versions = installed_versions(system.environment, cache, system.claim.packages)
        for one in settings.values():
            entrant = Entrant(
                subject=system.name,
                setting=one.name,
                words=one.words,
                family=system.family,
                shuffles=system.claim.shuffles,
                exact=system.claim.exact,
                leaves_on_disk=system.claim.leaves_on_disk,
                versions=versions,
                missing=reason,
            )
            if reason is None:
                able.append(Entry(system=system, setting=one, entrant=entrant))
            else:
                unable.append(entrant)
    return tuple(able), tuple(unable)


def _tell_reasons(reasons: Mapping[str, str | None], tell: Callable[[str], None]) -> None:
    for subject, reason in reasons.items():
        if reason is not None:
            tell(f"{subject} does not take part: it {reason}")


def _lacks_here(systems: Sequence[System]) -> Mapping[str, str]:
    return {system.name: reason for system in systems if (reason := system.why_no_server()) is not None}
