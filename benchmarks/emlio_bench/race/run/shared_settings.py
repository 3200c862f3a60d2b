"""The options that `emlio-bench race` and `emlio-bench paper` share."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emlio.energy.sources.model import CpuWatts
from emlio.errors import ConfigError
from emlio.settings import option
from emlio_bench.harness.parsers import link_kind, path, switch
from emlio_bench.link.contract import MADE_KINDS, LinkKind

__all__ = ["SharedSettings"]


def _watts(value: Any) -> str:
    CpuWatts.parse(str(value))
    return str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedSettings:
    """Options for running other systems beside EMLIO over a link."""

    cache: Path | None = option(
        None,
        "folder of other systems' environments and of all data (default ~/.cache/emlio-bench)",
        parse=path,
        metavar="FOLDER",
    )
    no_install: bool = option(
        False,
        "install nothing for other systems; those without an environment do not take part",
        parse=switch,
        switch=True,
    )
    yes: bool = option(
        False, "install what other systems need without asking; only a terminal is asked", parse=switch, switch=True
    )
    mount: Path | None = option(
        None,
        "a folder of the storage host that is mounted here, such as NFS, for systems that read files (default: sshfs)",
        parse=path,
        metavar="FOLDER",
    )
    kind: LinkKind | None = option(
        None,
        f"make the link in this way, one of {', '.join(MADE_KINDS)} (default: the first of them that works here)",
        parse=link_kind,
        metavar="KIND",
    )
    cpu_watts: str = option(
        "",
        "for estimates of energy where there are no counters, such as 60:180 (default: constants for each core)",
        parse=_watts,
        metavar="IDLE:MAX",
    )
    powercap_root: Path | None = option(
        None,
        "counters of energy that the host of this virtual machine exports, such as /var/scaphandre (default: this machine's own)",
        parse=path,
        metavar="FOLDER",
    )
    no_energy: bool = option(False, "do not record what the machine uses", parse=switch, switch=True)

    def __post_init__(self) -> None:
        if self.mount is not None and not self.mount.is_dir():
            raise ConfigError(f"--mount must be a folder, got {self.mount}")
        if self.powercap_root is not None and not self.powercap_root.is_dir():
            raise ConfigError(f"--powercap-root must be a folder, got {self.powercap_root}")
