"""The settings of `emlio-bench formats`.

Covers: its options with their texts and defaults. Does not cover: running.
"""

from dataclasses import dataclass
from pathlib import Path

from emlio.errors import ConfigError
from emlio.settings import option
from emlio_bench.experiment.options import byte_size, count, duration, flag, folder, names
from emlio_bench.harness.parsers import link_kind, path
from emlio_bench.link.contract import MADE_KINDS, LinkKind
from emlio_bench.race.records.stored_forms import PICTURE_FORMS, TOKEN_FORMS

__all__ = ["PICTURE_BYTES", "WAYS", "WINDOW_BYTES", "FormatsSettings"]

PICTURE_BYTES = 100_000
WINDOW_BYTES = 8_192
WAYS = ("loopback", "link")
_FORMATS = tuple(form.name for form in (*PICTURE_FORMS, *TOKEN_FORMS))
_TINY_RECORDS = 48


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatsSettings:
    """`emlio-bench formats`."""

    formats: tuple[str, ...] = names(_FORMATS, "formats to serve; tfrecord and token-records are what the others need")
    ways: tuple[str, ...] = names(WAYS, "where a loader reads: on the daemon's machine, or over the emulated link")
    size: int = byte_size("600MB", "payload of an epoch, of pictures as of tokens")
    rtt: int = duration("30ms", "round trip of the link")
    rounds: int = count(6, "rounds, in each of which every format is read once")
    beside: bool = flag(
        "also read the folders of WebDataset, MosaicML Streaming, PyTorch's DataLoader and Hugging Face datasets with these "
        "loaders and with EMLIO, in turns over the link"
    )
    limit: int = duration("60s", "time limit of an epoch; a longer one is cut and counts as longer than that")
    tiny: bool = flag("48 records and one round: shows that all works, measures nothing")
    out: Path = option(
        Path("emlio-formats"), "folder for results and report (default emlio-formats)", parse=path, metavar="FOLDER"
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

    def __post_init__(self) -> None:
        for first, others in ((form[0].name, form) for form in (PICTURE_FORMS, TOKEN_FORMS)):
            if first not in self.formats and any(form.name in self.formats for form in others):
                raise ConfigError(f"--formats must have {first}, which the others are compared with")

    @property
    def round_count(self) -> int:
        """Number of rounds."""
        return 1 if self.tiny else self.rounds

    def records(self, record_bytes: int) -> int:
        """Return the number of records of this size."""
        wanted = max(self.size // record_bytes, 1)
        return min(wanted, _TINY_RECORDS) if self.tiny else wanted
