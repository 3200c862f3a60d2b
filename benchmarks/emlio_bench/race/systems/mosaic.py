"""MosaicML Streaming: shards of 64 MB from an S3 server, read by PyTorch's DataLoader.

Settings: its documentation, "Performance Tuning" and "Shuffling": the dataset is told the batch
size, `py1e` shuffles (the default), and if downloads delay the training, `predownload` or the
number of workers is raised. Each worker downloads one shard at a time.
"""

from dataclasses import dataclass
from typing import Final

from emlio_bench.race.systems.over_store import OverStore
from emlio_bench.race.systems.system import WORKERS, Claim, Setting, setting, workers_setting

__all__ = ["Mosaic"]

_CLAIM: Final = Claim(
    shuffles="records inside blocks of about 262,144, which here is all of them",
    exact=None,
    leaves_on_disk="all shards",
    packages=("mosaicml-streaming", "torch"),
)
_DEFAULT_WORKERS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Mosaic(OverStore):
    """See `System`."""

    name: str = "mosaic"
    environment: str | None = "mosaic"
    reader: str = "read_mosaic"
    claim: Claim = _CLAIM

    def settings(self, rtt_ns: int) -> tuple[Setting, ...]:
        """See `System`."""
        return (
            setting("default", f"shards of 64 MB, {_DEFAULT_WORKERS} workers", workers=_DEFAULT_WORKERS),
            *(
                workers_setting(count, f"as default with {count} workers")
                for count in WORKERS
                if count != _DEFAULT_WORKERS
            ),
            setting(
                "tuned",
                "16 workers that stay for all epochs, each up to 64 batches ahead",
                usual=True,
                workers=16,
                ahead_batches=64,
                persistent=1,
            ),
        )
