"""The storage side of the paper's figures: a namespace of this machine, or another host over ssh."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from emlio.errors import ConfigError, EmlioError
from emlio.units import format_duration
from emlio_bench.harness.environment import read_environment
from emlio_bench.harness.results import RESULTS, read_results
from emlio_bench.link.choice import choose_kind
from emlio_bench.link.contract import LinkKind
from emlio_bench.paper.settings import PaperSettings
from emlio_bench.race.run.joules import QUIET, EnergyMeter
from emlio_bench.race.run.one_machine import OneMachine, StorageSide
from emlio_bench.race.run.race import start_recorder
from emlio_bench.race.storage.agent import boot_id
from emlio_bench.race.storage.remote import Remote, RemoteEnergy, ssh_command
from emlio_bench.race.systems.system import System

__all__ = ["Side", "open_side", "rtt_to_use_ns"]

_Tell = Callable[[str], None]

_WANDER: Final = 1.5
_WANDER_NS: Final = 400_000
"""The most by which the round trip of a run that goes on may differ from before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """The storage side of a run.

    Attributes:
        side: what runs use.
        kind: kind of the link.
        rtts_ns: its round trips.
        told: settings that it adds to the results.
        remote: the other host, if there is one.
        shares_machine: whether both hosts are one machine.
    """

    side: StorageSide
    kind: LinkKind
    rtts_ns: tuple[int, ...]
    told: tuple[tuple[str, str], ...] = ()
    remote: Remote | None = None
    shares_machine: bool = True

    @property
    def lacks(self) -> Callable[[Sequence[System]], Mapping[str, str]] | None:
        """Returns why systems cannot serve on another host; None for this machine."""
        return None if self.remote is None else self.remote.lacks

    def start_energy(self, stack: ExitStack, settings: PaperSettings, tell: _Tell) -> tuple[EnergyMeter | None, str]:
        """Begin to record energy on each machine; return the recorder, or why there is none."""
        joules, why_not = start_recorder(stack, settings.out, settings, tell)
        if joules is None or self.remote is None or self.shares_machine:
            return joules, why_not
        try:
            tell(f"measuring the power of {settings.storage} at rest")
            both = RemoteEnergy(joules, self.remote)
        except EmlioError as error:
            tell(f"energy is not recorded: {error}")
            return None, str(error)
        if both.storage_busy > QUIET:
            tell(
                f"{both.storage_busy:.0%} of the storage's processors were busy: energy above rest will look too small"
            )
        return both, ""


def open_side(
    stack: ExitStack,
    settings: PaperSettings,
    systems: Sequence[System],
    tell: _Tell,
    *,
    forms: Path,
) -> Side:
    """Open the storage side that the settings choose.

    Raises:
        ConfigError: it cannot be had; the message says what to do.
    """
    if not settings.storage:
        kind = choose_kind(settings.kind, tell)
        return Side(side=OneMachine(kind), kind=kind, rtts_ns=settings.round_trips, told=(("link", str(kind)),))
    command = ssh_command(settings.ssh, settings.storage, settings.storage_python)
    side = stack.enter_context(
        Remote(command, systems, name=settings.storage, address=settings.storage_address, forms=forms)
    )
    looked, ours = side.looked, read_environment(None).commit
    if ours != looked.commit:
        tell(f"{settings.storage} has commit {looked.commit or 'unknown'}, this host {ours or 'unknown'}")
    rtt_ns = rtt_to_use_ns(settings, side.rtt_ns)
    goes_on = f"; the run goes on as one over {format_duration(rtt_ns)}" if rtt_ns != side.rtt_ns else ""
    tell(
        f"{settings.storage}: {looked.node} at {looked.address}, a round trip of {format_duration(side.rtt_ns)} "
        f"(the least of many pings){goes_on}"
    )
    shares = looked.boot == boot_id() != ""
    if shares:
        tell("both hosts are one machine: they share its processors, and its energy is divided by processor time")
    return Side(
        side=side,
        kind=LinkKind.REAL,
        rtts_ns=(rtt_ns,),
        told=(
            ("link", str(LinkKind.REAL)),
            ("storage_host", looked.world),
            ("shares_machine", str(shares)),
            *([("mount_type", _mount_type(settings.mount))] if settings.mount is not None else []),
        ),
        remote=side,
        shares_machine=shares,
    )


def rtt_to_use_ns(settings: PaperSettings, measured_ns: int) -> int:
    """Return the round trip of the run: of the one that goes on, or as measured.

    Raises:
        ConfigError: the run in the folder was over another network.
    """
    file = settings.out / RESULTS
    older = read_results(file) if file.exists() else None
    if older is None or ("storage", settings.storage) not in older.settings or not older.contests:
        return measured_ns
    kept_ns = older.contests[0].rtt_ns
    if max(kept_ns, measured_ns) > _WANDER * min(kept_ns, measured_ns) + _WANDER_NS:
        raise ConfigError(
            f"the round trip to {settings.storage} must be about {format_duration(kept_ns)}, that of the run in {settings.out}, "
            f"got {format_duration(measured_ns)}; choose another --out"
        )
    return kept_ns


def _mount_type(folder: Path) -> str:
    place = folder.resolve()
    found = [one for one in psutil.disk_partitions(all=True) if place.is_relative_to(one.mountpoint)]
    return max(found, key=lambda one: len(one.mountpoint)).fstype if found else "unknown"
