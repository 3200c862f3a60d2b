"""Hugging Face datasets in streaming mode: Parquet files, or tar files, read over HTTP.

Settings: its documentation, page "Stream": `load_dataset(streaming=True)`, `shuffle` with a buffer
that is filled from up to ten files at a time (`max_buffer_input_shards`), a DataLoader whose
workers share the files, ten for each if there are enough, `set_epoch`. For Parquet: its post
"Streaming datasets: 100x More Efficient", and the docstring of ParquetConfig: ranges of 128 MiB,
one of them prefetched. It reads Parquet in blocks by HTTP ranges, and a tar file in one request.
Parquet row groups have 100 records, like those that the library writes for pictures.
"""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from emlio_bench.harness.contest import Corpus, Family
from emlio_bench.link.contract import Link
from emlio_bench.race.records.consumer import converted
from emlio_bench.race.records.order import RaceOrder
from emlio_bench.race.servers.web_server import server_lists, serving_folder
from emlio_bench.race.systems.system import WORKERS, Claim, Setting, System, setting, workers_setting

__all__ = ["HfDatasets"]

_PER_FILE: Final = 100
_MOST_FILES: Final = 64
_DEFAULT_WORKERS: Final = 4
_BUFFER: Final = 1000
_CLAIM: Final = Claim(
    shuffles="files, and samples inside a buffer of 1,000 in each worker that is filled from up to 10 files at a time",
    exact=None,
    leaves_on_disk="nothing of the data",
    packages=("datasets", "pyarrow", "torch"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HfDatasets(System):
    """See `System`."""

    name: str = "hf-datasets"
    family: Family = "http"
    claim: Claim = _CLAIM
    reader: str = "read_hf_datasets"
    environment: str | None = "hf"

    def settings(self, rtt_ns: int) -> tuple[Setting, ...]:
        """See `System`."""
        return (
            setting(
                "default",
                f"Parquet files, a buffer of {_BUFFER:,}, {_DEFAULT_WORKERS} workers",
                form="parquet",
                workers=_DEFAULT_WORKERS,
                buffer=_BUFFER,
            ),
            *(
                workers_setting(count, f"as default with {count} workers", form="parquet", buffer=_BUFFER)
                for count in WORKERS
                if count != _DEFAULT_WORKERS
            ),
            setting(
                "tuned",
                "Parquet files, each worker's buffer filled from one at a time, 16 workers that stay for all epochs",
                usual=True,
                form="parquet",
                workers=16,
                buffer=_BUFFER,
                inputs=1,
                persistent=1,
            ),
            setting(
                "ahead",
                'as "tuned", ranges of 128 MiB and one prefetched',
                form="parquet",
                workers=16,
                buffer=_BUFFER,
                inputs=1,
                persistent=1,
                ahead=1,
            ),
            setting(
                "tar files",
                f"tar files, a buffer of {_BUFFER:,}, {_DEFAULT_WORKERS} workers",
                form="webdataset",
                workers=_DEFAULT_WORKERS,
                buffer=_BUFFER,
            ),
            setting(
                "tar files, 16 workers",
                "tar files, each worker's buffer filled from one at a time, 16 workers that stay for all epochs",
                form="webdataset",
                workers=16,
                buffer=_BUFFER,
                inputs=1,
                persistent=1,
            ),
            setting(
                "tar files, 8 workers",
                "tar files, each worker's buffer filled from two at a time, 8 workers that stay for all epochs",
                form="webdataset",
                workers=8,
                buffer=_BUFFER,
                inputs=2,
                persistent=1,
            ),
        )

    def prepare(self, corpus: Corpus, folder: Path) -> Path:
        """See `System`."""
        options = {"files": _files(corpus), "records": corpus.records, "record_bytes": corpus.record_bytes}
        return converted(self.python, self.reader, corpus, folder, form="hf-datasets", options=options)

    @contextmanager
    def serve(self, prepared: Path, link: Link) -> Generator[str, None, None]:
        """See `System`."""
        with serving_folder(prepared, link, self.cache) as url:
            yield url

    def command(self, order: RaceOrder) -> list[str]:
        """See `System`."""
        files = "listed" if server_lists(self.cache) else str(_files(order.corpus))
        order = msgspec.structs.replace(order, options={**order.options, "files": files})
        return System.command(self, order)


def _files(corpus: Corpus) -> int:
    """Return the number of files: at least one for each worker, about 100 records each, bounded."""
    wanted = min(max(corpus.records // _PER_FILE, max(WORKERS)), _MOST_FILES)
    return min(wanted, corpus.records)
