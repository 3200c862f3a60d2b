"""WebDataset: tar files, each read in one request over HTTP.

Settings: its README and the example repository wds-distributed: shards and samples are shuffled
(`shardshuffle`, `.shuffle(1000)`), each worker makes batches, and batches are mixed again behind
the workers ("unbatched, shuffle, batched") for more mixing. It opens URLs by curl, one process for
each shard. Shards of 100 records mix better, those of 500 need fewer requests.
"""

import io
import tarfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from emlio_bench.harness.contest import Corpus, Family
from emlio_bench.link.contract import Link
from emlio_bench.race.needs.environments import find_program
from emlio_bench.race.records.corpus import made_once, read_records
from emlio_bench.race.records.order import RaceOrder
from emlio_bench.race.servers.web_server import serving_folder
from emlio_bench.race.systems.system import WORKERS, Claim, Setting, System, setting, workers_setting

__all__ = ["WebDataset"]

_CLAIM: Final = Claim(
    shuffles="shards, and samples inside a buffer of 1,000 in each worker",
    exact=None,
    leaves_on_disk="nothing",
    packages=("webdataset", "torch"),
)
_SHARDS: Final = (100, 500)
_DEFAULT_WORKERS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class WebDataset(System):
    """See `System`."""

    name: str = "webdataset"
    family: Family = "http"
    claim: Claim = _CLAIM
    reader: str = "read_webdataset"
    environment: str | None = "torch"

    def settings(self, rtt_ns: int) -> tuple[Setting, ...]:
        """See `System`."""
        small, large = _SHARDS
        return (
            setting(
                "default",
                f"{small} records a tar file, shuffle(1000), batches made in {_DEFAULT_WORKERS} workers",
                workers=_DEFAULT_WORKERS,
                shard=small,
            ),
            *(
                workers_setting(count, f"as default with {count} workers", shard=small)
                for count in WORKERS
                if count != _DEFAULT_WORKERS
            ),
            setting(
                "500 a tar", f"{large} records a tar file, 4 workers", usual=True, workers=_DEFAULT_WORKERS, shard=large
            ),
            setting("500 a tar, 8 workers", f"{large} records a tar file, 8 workers", workers=8, shard=large),
            setting(
                "tuned",
                "16 workers that stay for all epochs, samples mixed again behind them",
                workers=16,
                shard=small,
                mixed=1000,
                persistent=1,
            ),
        )

    def lacks(self) -> str | None:
        """See `System`."""
        no_curl = find_program("curl", self.cache) is None
        return System.lacks(self) or ("needs curl: apt-get install curl" if no_curl else None)

    def prepare(self, corpus: Corpus, folder: Path) -> Path:
        """See `System`."""
        made: list[Path] = []
        for size in _SHARDS:
            write = partial(_write_tars, corpus, folder, _per_shard(corpus, size))
            made.append(made_once(folder / "webdataset" / corpus.name / str(size), write))
        return made[0].parent

    @contextmanager
    def serve(self, prepared: Path, link: Link) -> Generator[str, None, None]:
        """See `System`."""
        with serving_folder(prepared, link, self.cache) as url:
            yield url

    def command(self, order: RaceOrder) -> list[str]:
        """See `System`."""
        size = int(order.options["shard"])
        shards = -(-order.corpus.records // _per_shard(order.corpus, size))
        order = msgspec.structs.replace(order, options={**order.options, "shards": str(shards)})
        return System.command(self, order)


def _per_shard(corpus: Corpus, wanted: int) -> int:
    """Return the records in a shard.

    There is at least one shard for each worker, because WebDataset refuses to read otherwise.
    """
    return max(min(wanted, corpus.records // max(WORKERS)), 1)


def _write_tars(corpus: Corpus, folder: Path, per_shard: int, target: Path) -> None:
    records = read_records(corpus, folder)
    for shard in range(-(-corpus.records // per_shard)):
        with tarfile.open(target / f"{shard:06d}.tar", "w", format=tarfile.USTAR_FORMAT) as tar:
            for number in range(shard * per_shard, min((shard + 1) * per_shard, corpus.records)):
                record = next(records)
                entry = tarfile.TarInfo(f"{number:08d}.bin")
                entry.size = len(record)
                tar.addfile(entry, io.BytesIO(record))
