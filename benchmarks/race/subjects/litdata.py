"""LitData: chunks of 64 MB from an S3 server, read by the workers of its own loader.

Settings: its README: `optimize(chunk_bytes="64MB")`, StreamingDataset with `shuffle=True`, StreamingDataLoader with workers,
`max_pre_download` raised for distant storage; and the docstring of StreamingDataset for `batch_decode`, of which "all" decodes a
whole chunk at once. Items are shuffled in blocks of 256 inside a chunk by default; "full" shuffles the whole chunk.

Covers: its chunks, their server. Does not cover: reading (emlio.benchmarks.race.consumers.read_litdata), its raw files.
"""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from emlio.benchmarks.link.contract import Link
from emlio.benchmarks.race.consumer import consumer_command, converted
from emlio.benchmarks.race.corpus import Corpus
from emlio.benchmarks.race.environments import environment_python
from emlio.benchmarks.race.object_store import BUCKET, STORE, serving_bucket, why_no_store
from emlio.benchmarks.race.order import RaceOrder
from emlio.benchmarks.race.rival import Claim, Family, Setting, setting

__all__ = ["LitData"]

_ENVIRONMENT: Final = "torch"
_CLAIM: Final = Claim(
    shuffles="chunks, and records in blocks inside a chunk",
    exact=None,
    leaves_on_disk="all chunks, up to a bound",
    needs="litdata, torch; an S3 server",
    packages=("litdata", "torch"),
)
_TRIED: Final = (2, 4, 8, 16)


@dataclass(frozen=True, slots=True, kw_only=True)
class LitData:
    """See `Rival`.

    Attributes:
        cache: of environments and programs.
    """

    cache: Path
    name: str = "litdata"
    family: Family = "objects"
    claim: Claim = _CLAIM
    environment: str | None = _ENVIRONMENT
    programs: tuple[str, ...] = (STORE,)

    def settings(self, rtt_ns: int) -> tuple[Setting, ...]:
        """See `Rival`."""
        return (
            setting("default", "chunks of 64 MB, 2 workers", workers=2),
            *(
                setting(
                    "tuned" if count == _TRIED[0] else f"tuned, {count} workers",
                    f"whole chunks decoded at once, {count} workers",
                    usual=count == _TRIED[0],
                    workers=count,
                    batch_decode="all",
                )
                for count in _TRIED
            ),
            setting(
                "ahead",
                "whole chunks decoded at once, 4 workers, each up to 8 chunks ahead",
                workers=4,
                batch_decode="all",
                ahead_chunks=8,
            ),
            setting(
                "full shuffle",
                "whole chunks decoded at once and shuffled as a whole, 2 workers",
                workers=2,
                batch_decode="all",
                window="full",
            ),
        )

    def why_not(self) -> str | None:
        """See `Rival`."""
        if environment_python(_ENVIRONMENT, self.cache) is None:
            return f"needs its environment, {_ENVIRONMENT}, which is not made"
        return why_no_store(self.cache)

    def prepare(self, corpus: Corpus, folder: Path) -> Path:
        """See `Rival`."""
        python = environment_python(_ENVIRONMENT, self.cache)
        return converted(python, "read_litdata", corpus, folder, form="litdata", options={"bucket": BUCKET})

    @contextmanager
    def serve(self, prepared: Path, link: Link) -> Generator[str, None, None]:
        """See `Rival`."""
        with serving_bucket(prepared, link, self.cache) as url:
            yield url

    def command(self, order: RaceOrder) -> list[str]:
        """See `Rival`."""
        return consumer_command(environment_python(_ENVIRONMENT, self.cache), "read_litdata", order)
