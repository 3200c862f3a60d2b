"""LitData: chunks of 64 MB from an S3 server, read by the workers of its own loader.

Settings: its README: `optimize(chunk_bytes="64MB")`, StreamingDataset with `shuffle=True`,
StreamingDataLoader with workers, a higher `max_pre_download` for distant storage; and the docstring
of StreamingDataset for `batch_decode`, where "all" decodes a whole chunk at once. By default items
are shuffled in blocks of 256 within a chunk; "full" shuffles the whole chunk.

Covers: its chunks, their server. Does not cover: reading
(emlio_bench.race.consumers.read_litdata), its raw files.
"""

from dataclasses import dataclass
from typing import Final

from emlio_bench.race.subjects.over_store import OverStore
from emlio_bench.race.system import Claim, Setting, setting

__all__ = ["LitData"]

_CLAIM: Final = Claim(
    shuffles="chunks, and records in blocks inside a chunk",
    exact=None,
    leaves_on_disk="all chunks, up to a bound",
    needs="litdata, torch; an S3 server",
    packages=("litdata", "torch"),
)
_TRIED: Final = (2, 4, 8, 16)


@dataclass(frozen=True, slots=True, kw_only=True)
class LitData(OverStore):
    """See `System`."""

    name: str = "litdata"
    environment: str = "torch"
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
