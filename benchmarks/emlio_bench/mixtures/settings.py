"""The settings of `emlio-bench mixtures`.

Covers: its options with their texts and defaults. Does not cover: running.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from emlio.settings import option
from emlio_bench.experiment.options import byte_size, count, duration, flag, folder, names
from emlio_bench.harness.parsers import link_kind, path
from emlio_bench.link.contract import MADE_KINDS, LinkKind
from emlio_bench.mixtures.mix import MIX_NAMES, STEP, Mix, mix_of
from emlio_bench.mixtures.subjects import SUBJECTS

__all__ = ["RECORD_BYTES", "MixturesSettings"]

RECORD_BYTES: Final = 100_000
_BATCH: Final = 64
_WINDOW: Final = 1000
_TINY_RECORDS: Final = 4 * STEP
_TINY_BATCH: Final = 16
_TINY_WINDOW: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class MixturesSettings:
    """`emlio-bench mixtures`."""

    mixes: tuple[str, ...] = names(
        tuple(MIX_NAMES),
        "mixtures to read, all with weights 0.6, 0.3 and 0.1: once has datasets with sizes in these proportions, again has "
        "datasets of one size, so that the first is read 1.8 times in an epoch",
    )
    subjects: tuple[str, ...] = names(SUBJECTS, "loaders that take turns")
    every: bool = flag("also read with all other settings of the other loaders in the race, to see which is their best")
    size: int = byte_size("600MB", "payload of an epoch")
    rtt: int = duration("30ms", "round trip of the link")
    rounds: int = count(6, "rounds, in each of which every loader reads once")
    limit: int = duration("60s", "time limit of an epoch; a longer one is cut and counts as longer than that")
    tiny: bool = flag(f"{_TINY_RECORDS} records and one round: shows that all works, measures nothing")
    out: Path = option(
        Path("emlio-mixtures"), "folder for results and report (default emlio-mixtures)", parse=path, metavar="FOLDER"
    )
    data: Path | None = folder(
        "keep the datasets in this folder and use what is there (default: a temporary one in /dev/shm, in memory)"
    )
    cache: Path | None = folder("where other systems' environments lie (default ~/.cache/emlio-bench)")
    no_install: bool = flag("make no environments for other systems: a system without one does not take part")
    kind: LinkKind | None = option(
        None,
        f"implementation of the link, one of {', '.join(MADE_KINDS)} (default: the first of them that works here)",
        parse=link_kind,
        metavar="KIND",
    )

    @property
    def round_count(self) -> int:
        """Number of rounds."""
        return 1 if self.tiny else self.rounds

    @property
    def batch(self) -> int:
        """Number of records in a batch."""
        return _TINY_BATCH if self.tiny else _BATCH

    @property
    def window(self) -> int:
        """Number of samples in the windows in which proportions are counted."""
        return _TINY_WINDOW if self.tiny else _WINDOW

    @property
    def chosen_mixes(self) -> tuple[Mix, ...]:
        """The mixtures, with about `size` of payload each."""
        records = _TINY_RECORDS if self.tiny else max(self.size // RECORD_BYTES // STEP, 1) * STEP
        return tuple(mix_of(MIX_NAMES[name], records) for name in self.mixes)
