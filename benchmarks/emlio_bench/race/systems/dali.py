"""DALI's own readers: a file for each record, or indexed TFRecord files.

Settings: DALI's documentation, pages nvidia.dali.fn.readers.file and
nvidia.dali.fn.readers.tfrecord: `random_shuffle` with its buffer (`initial_fill`), `dont_use_mmap`,
since mapped files are slow on most network file systems, `read_ahead` and a deeper
`prefetch_queue_depth`. Each reader has one reading thread. The mounts are those of
emlio_bench.race.systems.pytorch_files. EMLIO's local mode is compared with the reader of TFRecord
files on the training host's disks; they are in the page cache, as EMLIO's are.
"""

from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Literal

from emlio.extras import how_to_install
from emlio_bench.harness.contest import Corpus, Family
from emlio_bench.race.records.file_forms import as_examples, as_files
from emlio_bench.race.systems.over_mount import OverMount
from emlio_bench.race.systems.system import Claim, Setting, System, setting

__all__ = ["DaliFiles", "DaliLocal"]

_CLAIM: Final = Claim(
    shuffles="records inside a buffer of 1,024",
    exact=True,
    leaves_on_disk="nothing",
    packages=("nvidia-dali-cuda120", "nvidia-dali-cuda130"),
    decodes=True,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DaliFiles(OverMount):
    """See `System`.

    Attributes:
        form: "file" or "tfrecord", after the names of DALI's readers.
    """

    form: Literal["file", "tfrecord"]
    name: str = ""
    claim: Claim = _CLAIM
    reader: str = "read_dali"

    def __post_init__(self) -> None:
        # Only TFRecord files are shards, which can be divided between two hosts, and have labels.
        object.__setattr__(self, "name", f"dali-{self.form}")
        shards = self.form == "tfrecord"
        object.__setattr__(self, "claim", replace(_CLAIM, halves=shards, trains=shards))

    def settings(self, rtt_ns: int) -> tuple[Setting, ...]:
        """See `System`."""
        if self.mount is not None:
            return (
                setting("default", "the user's mount", mount="user", form=self.form),
                setting("tuned", "the user's mount, no mmap, read ahead", mount="user", form=self.form, ahead=8),
            )
        return (
            setting("default", "default mount, default reader", mount="default", form=self.form),
            setting("tuned mount", "tuned mount, default reader", mount="tuned", form=self.form),
            setting(
                "tuned",
                "tuned mount, no mmap, read ahead, 8 batches queued",
                usual=True,
                mount="tuned",
                form=self.form,
                ahead=8,
            ),
        )

    def lacks(self) -> str | None:
        """See `System`."""
        return _no_dali() or OverMount.lacks(self)

    def prepare(self, corpus: Corpus, folder: Path) -> Path:
        """See `System`."""
        make = as_files if self.form == "file" else as_examples
        return make(corpus, self.place(folder))


@dataclass(frozen=True, slots=True, kw_only=True)
class DaliLocal(System):
    """See `System`. It uses neither the link nor a mount."""

    name: str = "dali-local"
    family: Family = "local"
    claim: Claim = _CLAIM
    reader: str = "read_dali"

    @property
    def reads_here(self) -> bool:
        """See `System`."""
        return True

    def settings(self, rtt_ns: int) -> tuple[Setting, ...]:
        """See `System`."""
        words = "no mmap, read ahead, 8 batches queued, data on this host"
        return (
            setting("default", "default reader, data on this host", mount="none", form="tfrecord"),
            setting("tuned", words, usual=True, mount="none", form="tfrecord", ahead=8),
        )

    def lacks(self) -> str | None:
        """See `System`."""
        return _no_dali()

    def prepare(self, corpus: Corpus, folder: Path) -> Path:
        """See `System`."""
        return as_examples(corpus, folder)


def _no_dali() -> str | None:
    return None if find_spec("nvidia.dali") is not None else f"needs DALI: {how_to_install('dali')}"
