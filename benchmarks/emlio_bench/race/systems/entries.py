"""The entries of a race: all systems, what they need, their settings, reasons why a system cannot run."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from emlio_bench.harness.contest import Entrant
from emlio_bench.race.needs.environments import installed_versions
from emlio_bench.race.needs.making import make_missing
from emlio_bench.race.systems import others
from emlio_bench.race.systems.limits import BareSockets, Iperf3
from emlio_bench.race.systems.ours import Local, PaperWay, Remote
from emlio_bench.race.systems.system import Setting, System
from emlio_bench.race.systems.tfdata_service import TfDataService

__all__ = ["SUBJECTS", "USUAL_SUBJECTS", "Entry", "all_rivals", "entered", "entry_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A system at one of its settings, with its description."""

    system: System
    setting: Setting
    entrant: Entrant

    @property
    def who(self) -> tuple[str, str]:
        """Names of system and setting."""
        return self.system.name, self.setting.name


def entry_of(system: System, setting: Setting | None = None, missing: str | None = None) -> Entry:
    """Return a system at a setting, by default its first, described as it describes itself."""
    setting, claim = setting or system.settings(0)[0], system.claim
    entrant = Entrant(
        subject=system.name,
        setting=setting.name,
        words=setting.words,
        family=system.family,
        shuffles=claim.shuffles,
        exact=claim.exact,
        leaves_on_disk=claim.leaves_on_disk,
        versions=installed_versions(system.environment, system.cache, claim.packages),
        missing=missing,
    )
    return Entry(system=system, setting=setting, entrant=entrant)


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
        others.dali_local(),
        PaperWay(),
        others.litdata(cache),
        others.litdata_tokens(cache),
        others.mosaic(cache),
        others.WebDataset(cache=cache),
        others.hf_datasets(cache),
        TfDataService(cache=cache),
        others.pytorch_files(cache, mount),
        others.dali_files("file", cache, mount),
        others.dali_files("tfrecord", cache, mount),
        others.spdl(cache, mount),
        others.grain(cache, mount),
        # With the lanes of the paper's daemon, for the paper's figures 7 and 8.
        Remote(name="emlio-streams-1", lanes=1),
        Remote(name="emlio-streams-2", lanes=2),
    )


SUBJECTS = tuple(system.name for system in all_rivals(Path()))
"""The names of all systems."""

USUAL_SUBJECTS = tuple(name for name in SUBJECTS if "-streams-" not in name and name != "litdata-tokens")
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
    systems = tuple(systems)
    unserved = (lacks or _lacks_here)(systems)
    reasons = {system.name: system.lacks() or unserved.get(system.name) for system in systems}
    _tell_reasons(reasons, tell)  # before anything is installed for the others
    possible = [system for system in systems if reasons[system.name] is None]
    needs = {
        system.name: [*system.programs, *([system.environment] if system.environment else [])] for system in possible
    }
    failed: Mapping[str, str] = {}
    if make:
        names = (name for several in needs.values() for name in several)
        failed = make_missing(names, cache, tell, agree, advice="--no-install leaves these systems out")
    later = {
        system.name: next((failed[name] for name in needs[system.name] if name in failed), None) or system.not_made()
        for system in possible
    }
    _tell_reasons(later, tell)
    found: list[Entry] = []
    for system in systems:
        settings = {one.name: one for rtt_ns in rtts_ns for one in system.settings(rtt_ns) if every or one.usual}
        reason = reasons[system.name] or later[system.name]
        found += [entry_of(system, one, reason) for one in settings.values()]
    return (
        tuple(entry for entry in found if entry.entrant.missing is None),
        tuple(entry.entrant for entry in found if entry.entrant.missing is not None),
    )


def _tell_reasons(reasons: Mapping[str, str | None], tell: Callable[[str], None]) -> None:
    for subject, reason in reasons.items():
        if reason is not None:
            tell(f"{subject} does not take part: it {reason}")


def _lacks_here(systems: Sequence[System]) -> Mapping[str, str]:
    return {system.name: reason for system in systems if (reason := system.why_no_server()) is not None}
