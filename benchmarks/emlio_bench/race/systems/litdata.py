"""LitData: chunks of 64 MB from an S3 server, read by the workers of its own loader.

Settings: its README: `optimize(chunk_bytes="64MB")`, StreamingDataset with `shuffle=True`,
StreamingDataLoader with workers, a higher `max_pre_download` for distant storage; and the docstring
of StreamingDataset for `batch_decode`, where "all" decodes a whole chunk at once. By default items
are shuffled in blocks of 256 within a chunk; "full" shuffles the whole chunk.

For tokens it has a loader of its own: chunks are then nothing but tokens, cut into blocks of a given
length when they are read (README, "LLM Pre-training").
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from emlio_bench.harness.contest import Corpus
from emlio_bench.race.records.consumer import converted
from emlio_bench.race.servers.object_store import BUCKET
from emlio_bench.race.systems.over_store import OverStore
from emlio_bench.race.systems.system import Claim, Setting, setting

__all__ = ["LitData", "LitDataTokens"]

_CLAIM: Final = Claim(
    shuffles="chunks, and records in blocks inside a chunk",
    exact=None,
    leaves_on_disk="all chunks, up to a bound",
    packages=("litdata", "torch"),
)
_TRIED: Final = (2, 4, 8, 16)
_TOKENS_USUAL: Final = (2, 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class LitData(OverStore):
    """See `System`."""

    name: str = "litdata"
    environment: str | None = "torch"
    reader: str = "read_litdata"
    claim: Claim = _CLAIM

    def settings(self, rtt_ns: int) -> tuple[Setting, ...]:
        """See `System`."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class LitDataTokens(LitData):
    """See `System`. Records are blocks of its loader of tokens."""

    name: str = "litdata-tokens"

    def prepare(self, corpus: Corpus, folder: Path) -> Path:
        """See `System`."""
        options: dict[str, str | int] = {"bucket": BUCKET, "tokens": 1}
        return converted(self.python, self.reader, corpus, folder, form=self.name, options=options)

    def settings(self, rtt_ns: int) -> tuple[Setting, ...]:
        """See `System`."""
        return tuple(
            setting(
                "default" if count == _TRIED[0] else f"tuned, {count} workers",
                f"TokensLoader, chunks of 64 MB, {count} workers",
                usual=count in _TOKENS_USUAL,
                workers=count,
                tokens=1,
            )
            for count in _TRIED
        )
