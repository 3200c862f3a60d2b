"""DALI's own reader of TFRecord files on the training's own disks: what the local way of ours is compared with.

Settings: its defaults, and what its documentation has for speed: a deeper `prefetch_queue_depth`, reads instead of mapped files,
reading ahead. The files lie in the page cache, as ours do.

Covers: it. Does not cover: DALI over a mount (emlio.benchmarks.race.subjects.dali_files).
"""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from emlio.benchmarks.link.contract import Link
from emlio.benchmarks.race.consumer import consumer_command
from emlio.benchmarks.race.corpus import Corpus
from emlio.benchmarks.race.file_forms import as_examples
from emlio.benchmarks.race.order import RaceOrder
from emlio.benchmarks.race.rival import Claim, Family, Setting, setting

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
    """See `Rival`: without link and mount."""

    name: str = "dali-local"
    family: Family = "local"
    claim: Claim = _CLAIM
    environment: str | None = None
    programs: tuple[str, ...] = ()

    def settings(self, rtt_ns: int) -> tuple[Setting, ...]:
        """See `Rival`."""
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
        """See `Rival`."""
        return None if find_spec("nvidia.dali") is not None else 'needs DALI: pip install "emlio[dali]"'

    def prepare(self, corpus: Corpus, folder: Path) -> Path:
        """See `Rival`."""
        return as_examples(corpus, folder)

    @contextmanager
    def serve(self, prepared: Path, link: Link) -> Generator[str, None, None]:
        """See `Rival`: nothing is served."""
        yield f"file://{prepared.resolve()}"

    def command(self, order: RaceOrder) -> list[str]:
        """See `Rival`."""
        return consumer_command(None, "read_dali", order)
