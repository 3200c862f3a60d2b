"""The settings of `emlio-bench race`, and those that it shares with other benchmarks of systems."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emlio.energy.sources.model import CpuWatts
from emlio.errors import ConfigError
from emlio.settings import option
from emlio_bench.harness.options import byte_size, count, duration, durations, flag, folder, link_kind, names, out
from emlio_bench.harness.results import QUICK
from emlio_bench.link.contract import LinkKind
from emlio_bench.race.run.scenarios import SCENARIOS
from emlio_bench.race.systems.entries import SUBJECTS, USUAL_SUBJECTS

__all__ = ["RaceSettings", "SharedSettings", "SystemsSettings"]

_QUICK_BYTES = 60_000_000


def _watts(value: Any) -> str:
    CpuWatts.parse(str(value))
    return str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemsSettings:
    """Options for running other systems beside EMLIO over a link."""

    cache: Path | None = folder(
        "folder of other systems' environments and of all data (default ~/.cache/emlio-bench)", "FOLDER"
    )
    no_install: bool = flag("install nothing for other systems; those without an environment do not take part")
    yes: bool = flag("install what other systems need without asking; only a terminal is asked")
    kind: LinkKind | None = link_kind()


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedSettings(SystemsSettings):
    """Options that `emlio-bench race` and `emlio-bench paper` share."""

    mount: Path | None = folder(
        "a folder of the storage host that is mounted here, such as NFS, for systems that read files (default: sshfs)",
        "FOLDER",
    )
    cpu_watts: str = option(
        "",
        "for estimates of energy where there are no counters, such as 60:180 (default: constants for each core)",
        parse=_watts,
        metavar="IDLE:MAX",
    )
    powercap_root: Path | None = folder(
        "counters of energy that the host of this virtual machine exports, such as /var/scaphandre (default: this machine's own)",
        "FOLDER",
    )
    no_energy: bool = flag("do not record what the machine uses")

    def __post_init__(self) -> None:
        for name, given in (("--mount", self.mount), ("--powercap-root", self.powercap_root)):
            if given is not None and not given.is_dir():
                raise ConfigError(f"{name} must be a folder, got {given}")

    def told_of_host(self) -> tuple[tuple[str, str], ...]:
        """Return the settings of the host that must agree when a run is continued, as text."""
        return (
            ("mount", str(self.mount or "sshfs")),
            *([("cpu_watts", self.cpu_watts)] if self.cpu_watts else []),
            *([("powercap_root", str(self.powercap_root))] if self.powercap_root is not None else []),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RaceSettings(SharedSettings):
    """`emlio-bench race`, and `emlio-bench` without a command."""

    rtt: tuple[int, ...] = durations("30ms", "round trips of the link, one race each")
    scenarios: tuple[str, ...] = names(
        tuple(SCENARIOS), f"what every system does (default read), some of {','.join(SCENARIOS)}", ("read",)
    )
    size: int = byte_size("600MB", "about the payload of an epoch")
    subjects: tuple[str, ...] = names(
        SUBJECTS,
        f"systems that run, of {','.join(SUBJECTS)} (default: all but emlio-streams-N, which have so many "
        "connections, and litdata-tokens, which reads records as blocks of tokens)",
        USUAL_SUBJECTS,
    )
    all_settings: bool = flag(
        "try every setting of every system, such as all numbers of workers; else its defaults and its best"
    )
    step: int = duration(
        "0s",
        "how long the consumer computes after each batch, in scenarios that have no step of their own; a pause, no computation",
    )
    epochs: int = count(2, "epochs of a run, one after the other by one loader")
    rounds: int = count(3, "most rounds, in each of which every system runs once")
    within: int = duration(
        "11m",
        "begin no more rounds after the first that would end later than this after the start, environments and all; 0s for all "
        "of them",
    )
    limit: int = duration(
        "20s", "how long an epoch may take; one that is longer is cut, counts as longer than that and is run once"
    )
    out: Path = out("emlio-race")
    tuned: bool = flag("let TCP have 64 MB a connection at both ends; stock otherwise")
    quick: bool = flag("60 MB and one round: shows that everything works, and judges no goals")

    @property
    def payload_bytes(self) -> int:
        """Payload of an epoch."""
        return min(self.size, _QUICK_BYTES) if self.quick else self.size

    @property
    def round_count(self) -> int:
        """Number of rounds."""
        return 1 if self.quick else self.rounds

    def told(self) -> tuple[tuple[str, str], ...]:
        """Return the settings that must agree when a race is continued, as text.

        The number of rounds is not among them.
        """
        return (
            ("epochs", str(self.epochs)),
            ("tuned", str(self.tuned)),
            ("limit", f"{self.limit / 1e9:g} s"),
            *self.told_of_host(),
            *([QUICK] if self.quick else []),
        )
