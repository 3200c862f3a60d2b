"""MosaicML Streaming: shards of 64 MB from an S3 server, read by the workers of PyTorch's DataLoader.

Settings: its documentation, "Performance Tuning" and "Shuffling": the batch size is told to the dataset, `py1e` shuffles (its
default), and where downloads hold a training up, `predownload` or the number of workers is raised. Each worker downloads one
shard at a time.

Covers: MDS files, their server. Does not cover: reading (emlio.benchmarks.race.consumers.read_mosaic).
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
from emlio.benchmarks.race.rival import WORKERS, Claim, Family, Setting, setting, workers_setting

__all__ = ["Mosaic"]

_ENVIRONMENT: Final = "mosaic"
_CLAIM: Final = Claim(
    shuffles="records inside blocks of about 262,144, which here is all of them",
    exact=None,
    leaves_on_disk="all shards",
    needs="mosaicml-streaming, torch; an S3 server",
    packages=("mosaicml-streaming", "torch"),
)
_DEFAULT_WORKERS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Mosaic:
    """See `Rival`.

    Attributes:
        cache: of environments and programs.
    """

    cache: Path
    name: str = "mosaic"
    family: Family = "objects"
    claim: Claim = _CLAIM
    environment: str | None = _ENVIRONMENT
    programs: tuple[str, ...] = (STORE,)

    def settings(self, rtt_ns: int) -> tuple[Setting, ...]:
        """See `Rival`."""
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

    def why_not(self) -> str | None:
        """See `Rival`."""
        if environment_python(_ENVIRONMENT, self.cache) is None:
            return f"needs its environment, {_ENVIRONMENT}, which is not made"
        return why_no_store(self.cache)

    def prepare(self, corpus: Corpus, folder: Path) -> Path:
        """See `Rival`."""
        python = environment_python(_ENVIRONMENT, self.cache)
        return converted(python, "read_mosaic", corpus, folder, form="mosaic", options={"bucket": BUCKET})

    @contextmanager
    def serve(self, prepared: Path, link: Link) -> Generator[str, None, None]:
        """See `Rival`."""
        with serving_bucket(prepared, link, self.cache) as url:
            yield url

    def command(self, order: RaceOrder) -> list[str]:
        """See `Rival`."""
        return consumer_command(environment_python(_ENVIRONMENT, self.cache), "read_mosaic", order)
