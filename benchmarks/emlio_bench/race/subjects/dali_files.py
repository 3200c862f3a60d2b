"""DALI's own readers over a remote file system: a file for each record, or indexed TFRecord files.

Settings: DALI's documentation, pages nvidia.dali.fn.readers.file and
nvidia.dali.fn.readers.tfrecord: `random_shuffle` with its buffer (`initial_fill`), `dont_use_mmap`,
since mapped files are slow on most network file systems, `read_ahead` and a deeper
`prefetch_queue_depth`. Each reader has one reading thread. The mounts are those of
emlio_bench.race.subjects.pytorch_files.

Covers: both formats of the data, the mount's options by name. Does not cover: reading
(emlio_bench.race.consumers.read_dali).
"""

from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Literal

from emlio_bench.race.consumer import consumer_command
from emlio_bench.race.corpus import Corpus
from emlio_bench.race.file_forms import as_examples, as_files
from emlio_bench.race.order import RaceOrder
from emlio_bench.race.subjects.over_mount import OverMount
from emlio_bench.race.system import Claim, Setting, setting

__all__ = ["DaliFiles"]

_CLAIM: Final = Claim(
    shuffles="records inside a buffer of 1,024",
    exact=True,
    leaves_on_disk="nothing",
    needs="nvidia-dali; sshfs and an SSH server",
    packages=("nvidia-dali-cuda120",),
    decodes=True,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DaliFiles(OverMount):
    """See `System`.

    Attributes:
        form: "file" or "tfrecord", after the names of DALI's readers.
    """

    form: Literal["file", "tfrecord"]

    @property
    def claim(self) -> Claim:
        """See `System`. Only TFRecord files are shards, which can be divided between two hosts."""
        return replace(_CLAIM, halves=self.form == "tfrecord")

    @property
    def name(self) -> str:
        """See `System`."""
        return f"dali-{self.form}"

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

    def why_not(self) -> str | None:
        """See `System`."""
        if find_spec("nvidia.dali") is None:
            return 'needs DALI: pip install "emlio[dali]"'
        return OverMount.why_not(self)

    def prepare(self, corpus: Corpus, folder: Path) -> Path:
        """See `System`."""
        make = as_files if self.form == "file" else as_examples
        return make(corpus, self.place(folder))

    def command(self, order: RaceOrder) -> list[str]:
        """See `System`."""
        return consumer_command(None, "read_dali", order)
