"""The storage side of the paper's figures: this machine, or another one by `--storage`.

Covers: the choice, the connection to another host, its round trip, energy of both, words about it
for the report. Does not cover: running (emlio_bench.paper.run).
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from emlio import __version__
from emlio.errors import ConfigError, EmlioError
from emlio.units import format_duration
from emlio_bench.harness.environment import read_environment
from emlio_bench.harness.page import RESULTS
from emlio_bench.link.choice import choose_kind
from emlio_bench.link.contract import Link, LinkKind
from emlio_bench.link.measurement.accuracy import LinkReport
from emlio_bench.paper.settings import PaperSettings
from emlio_bench.race.outcome import Race, read_run
from emlio_bench.race.run.joules import QUIET
from emlio_bench.race.run.one_machine import OneMachine
from emlio_bench.race.run.race import start_recorder
from emlio_bench.race.run.sides import EnergyMeter, StorageSide
from emlio_bench.race.storage.by_hand import call, check_resolves, command_to_type, new_token
from emlio_bench.race.storage.dialogue import Dialogue
from emlio_bench.race.storage.duties import boot_id
from emlio_bench.race.storage.messages import Greet, Greeting
from emlio_bench.race.storage.other_host import OtherHost
from emlio_bench.race.storage.over_ssh import SshAgent, ssh_command, what_to_type
from emlio_bench.race.storage.two_hosts import TwoHosts
from emlio_bench.race.systems.system import System

__all__ = ["Side", "kept_rtt_ns", "mount_type", "open_side", "rtt_to_use_ns"]

_Tell = Callable[[str], None]

_WANDER: Final = 1.5
_WANDER_NS: Final = 400_000
"""A real network wanders; one that is further away than this is another one.

Between containers of one machine the least of many pings differed by 0.3 ms from run to run.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """The storage side of a run.

    Attributes:
        side: the storage side.
        kind: implementation of the link.
        rtts_ns: round trips.
        lacks: see `entered`; None for this machine.
        told: what the report says about it, which must agree when a run is continued.
        dialogue: connection to the agent; None for this machine.
        shares_machine: whether both hosts are one machine.
    """

    side: StorageSide
    kind: LinkKind
    rtts_ns: tuple[int, ...]
    lacks: Callable[[Sequence[System]], Mapping[str, str]] | None = None
    told: tuple[tuple[str, str], ...] = ()
    dialogue: Dialogue | None = None
    shares_machine: bool = True

    def start_energy(self, stack: ExitStack, settings: PaperSettings, tell: _Tell) -> tuple[EnergyMeter | None, str]:
        """Start the recorders.

        Returns:
            The meter and "", or None and the reason.
        """
        joules, why_not = start_recorder(stack, settings.out, settings, tell)
        if joules is None or self.dialogue is None or self.shares_machine:
            return joules, why_not
        try:
            tell(f"measuring the power of {settings.storage} at rest")
            both = TwoHosts(joules, self.dialogue)
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
    tell: _Tell,
    *,
    look_at: Callable[[Link], LinkReport],
    forms: Path,
) -> Side:
    """Open the storage side that the settings name.

    Args:
        stack: ends it.
        settings: settings of the command.
        tell: called with each line of progress.
        look_at: measures a made link.
        forms: folder of all formats on this machine.
    """
    if not settings.storage:
        kind, missing = choose_kind(settings.kind)
        for reason in missing:
            tell(f"the link is of the kind {kind}, as {reason}")
        return Side(
            side=OneMachine(kind, look_at), kind=kind, rtts_ns=settings.round_trips, told=(("link", str(kind)),)
        )
    dialogue, greeting = _by_hand(stack, settings, tell) if settings.by_hand else _by_ssh(stack, settings)
    _check_version(settings.storage, greeting, tell)
    address = settings.storage_address or ("" if greeting.reached_at else settings.storage)
    side = OtherHost(dialogue, greeting, name=settings.storage, address=address, forms=forms)
    rtt_ns = rtt_to_use_ns(settings, side.rtt_ns)
    goes_on = f"; the run goes on as one over {format_duration(rtt_ns)}" if rtt_ns != side.rtt_ns else ""
    tell(
        f"{settings.storage}: {greeting.node} at {side.address}, a round trip of {format_duration(side.rtt_ns)} "
        f"(the least of many pings){goes_on}"
    )
    shares = greeting.boot == boot_id() != ""
    if shares:
        tell("both hosts are one machine: they share its processors, and its energy is divided by processor time")
    return Side(
        side=side,
        kind=LinkKind.REAL,
        rtts_ns=(rtt_ns,),
        lacks=side.lacks,
        told=(
            ("link", str(LinkKind.REAL)),
            ("storage_host", greeting.world),
            ("shares_machine", str(shares)),
            *([("mount_type", mount_type(settings.mount))] if settings.mount is not None else []),
        ),
        dialogue=dialogue,
        shares_machine=shares,
    )


def _by_ssh(stack: ExitStack, settings: PaperSettings) -> tuple[Dialogue, Greeting]:
    command = ssh_command(settings.ssh, settings.storage, settings.storage_python)
    agent = stack.enter_context(
        SshAgent(command, host=settings.storage, python=settings.storage_python, ssh=settings.ssh)
    )
    return agent.dialogue, agent.greeting


def _by_hand(stack: ExitStack, settings: PaperSettings, tell: _Tell) -> tuple[Dialogue, Greeting]:
    address, token = settings.storage_address or settings.storage.rpartition("@")[2], new_token()
    check_resolves(address, settings.storage)
    tell(f"type on {settings.storage}, and keep it running: {command_to_type(address, settings.storage_python, token)}")
    dialogue = call(address, token, name=settings.storage)
    stack.callback(dialogue.close)
    return dialogue, dialogue.ask(Greet(), Greeting)


def _check_version(host: str, greeting: Greeting, tell: _Tell) -> None:
    if greeting.version != __version__:
        raise ConfigError(f"{host} must have emlio {__version__}, it has {greeting.version}; {what_to_type(host)}")
    ours = read_environment(None).commit
    if ours != greeting.commit:
        tell(f"{host} has commit {greeting.commit or 'unknown'}, this host {ours or 'unknown'}")


def kept_rtt_ns(settings: PaperSettings) -> int | None:
    """Return the round trip of the run that is continued, or None: a new measurement would differ a little."""
    file = settings.out / RESULTS
    older = read_run(file) if file.exists() else None
    if not isinstance(older, Race) or ("storage", settings.storage) not in older.settings:
        return None
    return next((contest.rtt_ns for contest in older.contests), None)


def rtt_to_use_ns(settings: PaperSettings, measured_ns: int) -> int:
    """Return the round trip of the run that is continued, else the one that was measured.

    Raises:
        ConfigError: the network is not as far as it was then.
    """
    kept_ns = kept_rtt_ns(settings)
    if kept_ns is None:
        return measured_ns
    if max(kept_ns, measured_ns) > _WANDER * min(kept_ns, measured_ns) + _WANDER_NS:
        raise ConfigError(
            f"the round trip to {settings.storage} must be about {format_duration(kept_ns)}, that of the run in {settings.out}, "
            f"got {format_duration(measured_ns)}; choose another --out"
        )
    return kept_ns


def mount_type(folder: Path) -> str:
    """Return the type of the file system that a folder is on, such as "nfs4"."""
    place = folder.resolve()
    found = [one for one in psutil.disk_partitions(all=True) if place.is_relative_to(one.mountpoint)]
    return max(found, key=lambda one: len(one.mountpoint)).fstype if found else "unknown"
