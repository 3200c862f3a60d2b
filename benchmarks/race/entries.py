"""Who takes part.

Covers: all systems there are, making what they need, their settings, why one cannot. Does not cover: running them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from emlio.benchmarks.race.environments import installed_versions
from emlio.benchmarks.race.making import make_missing
from emlio.benchmarks.race.outcome import Entrant
from emlio.benchmarks.race.rival import Rival, Setting
from emlio.benchmarks.race.subjects.bare_sockets import BareSockets
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

__all__ = ["SUBJECTS", "USUAL_SUBJECTS", "Entry", "all_rivals", "entered"]

_STREAMS = tuple(Remote(name=f"emlio-streams-{count}", lanes=count) for count in (1, 2))
"""With the paper's concurrency of a daemon, for its figures 7 and 8: not among the usual ones."""


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
        BareSockets(),
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
        *_STREAMS,
    )


SUBJECTS = tuple(rival.name for rival in all_rivals(Path()))
"""The names of all."""

USUAL_SUBJECTS = tuple(name for name in SUBJECTS if name not in {rival.name for rival in _STREAMS})
"""Of those who take part where nobody is named."""


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
    rivals = tuple(rivals)
    failed: Mapping[str, str] = make_missing(rivals, cache, tell) if make else {}
    for rival in rivals:
        needed = [*rival.programs, *([rival.environment] if rival.environment is not None else [])]
        reason = next((failed[name] for name in needed if name in failed), None) or rival.why_not()
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
