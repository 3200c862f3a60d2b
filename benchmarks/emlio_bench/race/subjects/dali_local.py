"""DALI's own reader of TFRecord files on the training host's disks.

EMLIO's local mode is compared with it.

Settings: the defaults, and the options that DALI's documentation recommends for speed: a deeper
`prefetch_queue_depth`, reads instead of mapped files, reading ahead. The files are in the page
cache, as EMLIO's are.

Covers: its settings, its data. Does not cover: DALI over a mount
(emlio_bench.race.subjects.dali_files).
"""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from emlio_bench.link.contract import Link
from emlio_bench.race.consumer import consumer_command
from emlio_bench.race.corpus import Corpus
from emlio_bench.race.file_forms import as_examples
from emlio_bench.race.order import RaceOrder
from emlio_bench.race.system import Claim, Family, Setting, setting

__all__ = ["DaliLocal"]

_FORM: Final = "tfrecord"
_CLAIM: Final = Claim(
    shuffles="records inside a buffer of 1,024",
    exact=True,
    leaves_on_disk="nothing",
    needs="nvidia-dali",
    packages=("nvidia-dali-cuda120",),
    decodes=True,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DaliLocal:
    """See `System`. It uses neither the link nor a mount."""

    name: str = "dali-local"
    family: Family = "local"
    claim: Claim = _CLAIM
    environment: str | None = None
    programs: tuple[str, ...] = ()

    def settings(self, rtt_ns: int) -> tuple[Setting, ...]:
        """See `System`."""
        return (
            setting("default", "default reader, data on this host", mount="none", form=_FORM),
            setting(
                "tuned",
                "no mmap, read ahead, 8 batches queued, data on this host",
                usual=True,
                mount="none",
                form=_FORM,
                ahead=8,
            ),
        )

    def why_not(self) -> str | None:
        """See `System`."""
        return None if find_spec("nvidia.dali") is not None else 'needs DALI: pip install "emlio[dali]"'

    def prepare(self, corpus: Corpus, folder: Path) -> Path:
        """See `System`."""
        return as_examples(corpus, folder)

    @contextmanager
    def serve(self, prepared: Path, link: Link) -> Generator[str, None, None]:
        """See `System`. Nothing is served."""
        yield f"file://{prepared.resolve()}"

    def command(self, order: RaceOrder) -> list[str]:
        """See `System`."""
        return consumer_command(None, "read_dali", order)
