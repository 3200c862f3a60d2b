"""The settings of `emlio-bench race`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emlio.settings import option
from emlio.units import parse_duration_ns, parse_size
from emlio_bench.harness.parsers import (
    duration_with_unit_ns,
    durations_with_unit_ns,
    path,
    switch,
    whole_number,
    words_of,
)
from emlio_bench.harness.results import QUICK
from emlio_bench.race.run.scenarios import SCENARIOS
from emlio_bench.race.run.shared_settings import SharedSettings
from emlio_bench.race.systems.entries import SUBJECTS, USUAL_SUBJECTS

__all__ = ["RaceSettings"]

_QUICK_BYTES = 60_000_000


def _subjects(value: Any) -> tuple[str, ...]:
    return words_of(value, SUBJECTS)


def _scenarios(value: Any) -> tuple[str, ...]:
    return words_of(value, tuple(SCENARIOS))


@dataclass(frozen=True, slots=True, kw_only=True)
class RaceSettings(SharedSettings):
    """`emlio-bench race`, and `emlio-bench` without a command."""

    rtt: tuple[int, ...] = option(
        (30_000_000,),
        "round trips of the link, one race each (default 30ms)",
        parse=durations_with_unit_ns,
        metavar="TIME,...",
    )
    scenarios: tuple[str, ...] = option(
        ("read",),
        f"what every system does (default read), some of {','.join(SCENARIOS)}",
        parse=_scenarios,
        metavar="NAME,...",
    )
    size: int = option(600_000_000, "about the payload of an epoch (default 600MB)", parse=parse_size, metavar="SIZE")
    subjects: tuple[str, ...] = option(
        USUAL_SUBJECTS,
        f"systems that run, of {','.join(SUBJECTS)} (default: all but emlio-streams-N, which have so many "
        "connections, and litdata-tokens, which reads records as blocks of tokens)",
        parse=_subjects,
        metavar="NAME,...",
    )
    all_settings: bool = option(
        False,
        "try every setting of every system, such as all numbers of workers; else its defaults and its best",
        parse=switch,
        switch=True,
    )
    step: int = option(
        0,
        "how long the consumer computes after each batch, in scenarios that have no step of their own; a pause, no computation "
        "(default 0s)",
        parse=parse_duration_ns,
        metavar="TIME",
    )
    epochs: int = option(
        2, "epochs of a run, one after the other by one loader (default 2)", parse=whole_number, metavar="N"
    )
    rounds: int = option(
        3, "most rounds, in each of which every system runs once (default 3)", parse=whole_number, metavar="N"
    )
    within: int = option(
        660_000_000_000,
        "begin no more rounds after the first that would end later than this after the start, environments and all; 0s for all "
        "of them (default 11m)",
        parse=duration_with_unit_ns,
        metavar="TIME",
    )
    limit: int = option(
        20_000_000_000,
        "how long an epoch may take; one that is longer is cut, counts as longer than that and is run once (default 20s)",
        parse=parse_duration_ns,
        metavar="TIME",
    )
    out: Path = option(
        Path("emlio-race"),
        "folder of results and report; an interrupted race continues there (default emlio-race)",
        parse=path,
        metavar="FOLDER",
    )
    tuned: bool = option(
        False, "let TCP have 64 MB a connection at both ends; stock otherwise", parse=switch, switch=True
    )
    quick: bool = option(
        False, "60 MB and one round: shows that everything works, and judges no goals", parse=switch, switch=True
    )

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
            ("mount", str(self.mount or "sshfs")),
            ("tuned", str(self.tuned)),
            ("limit", f"{self.limit / 1e9:g} s"),
            *([("cpu_watts", self.cpu_watts)] if self.cpu_watts else []),
            *([("powercap_root", str(self.powercap_root))] if self.powercap_root is not None else []),
            *([QUICK] if self.quick else []),
        )
