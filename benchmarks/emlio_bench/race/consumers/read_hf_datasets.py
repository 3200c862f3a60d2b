"""Reads with Hugging Face datasets in streaming mode; writes the files it reads."""

import io
import os
import tarfile
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from itertools import islice
from typing import Any

# Set before the import, so that nothing is sent to the hub. The offline mode would forbid URLs too.
os.environ |= {
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_UPDATE_DOWNLOAD_COUNTS": "0",
    "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
}

_datasets: Any = import_module("datasets")
_data: Any = import_module("torch.utils.data")
_pa: Any = import_module("pyarrow")
_parquet: Any = import_module("pyarrow.parquet")
_scanning: Any = import_module("pyarrow.dataset")

__all__ = ["convert", "open_source"]

_COLUMNS = {"parquet": "record", "webdataset": "bin"}
"""The column of a record, by the name of the dataset's builder."""

_GROUP_RECORDS = 100
_GROUP_BYTES = 10_000_000
"""The least size of a row group. A smaller request would mostly consist of its round trip."""

_RANGE_BYTES = 128 << 20


def convert(records: Iterator[bytes], order: dict[str, Any]) -> None:
    """See emlio_bench.race.consumers.consume.

    Writes Parquet files, and beside each the same records as a tar file.
    """
    schema = _pa.schema([("record", _pa.binary())])
    files, count = order["files"], order["records"]
    per_group = max(_GROUP_RECORDS, _GROUP_BYTES // order["record_bytes"])
    for number in range(files):
        first, after = (count * place // files for place in (number, number + 1))
        base = os.path.join(str(order["out"]), f"{number:05d}")
        with (
            _parquet.ParquetWriter(f"{base}.parquet", schema, compression="none", use_dictionary=False) as writer,
            tarfile.open(f"{base}.tar", "w", format=tarfile.USTAR_FORMAT) as tar,
        ):
            for begin in range(first, after, per_group):
                group = list(islice(records, min(per_group, after - begin)))
                writer.write_table(_pa.table({"record": _pa.array(group, _pa.binary())}, schema=schema))
                for place, record in enumerate(group, begin):
                    entry = tarfile.TarInfo(f"{place:08d}.bin")
                    entry.size = len(record)
                    tar.addfile(entry, io.BytesIO(record))


class _Records:
    """A callable that takes the records out of samples. It is no closure, so it can be pickled."""

    def __init__(self, column: str) -> None:
        self._column = column

    def __call__(self, samples: list[Any]) -> list[bytes]:
        return [sample[self._column] for sample in samples]


@contextmanager
def open_source(order: dict[str, Any]) -> Generator[Callable[[int], Iterator[Sequence[Any]]], None, None]:
    """See emlio_bench.race.consumers.consume."""
    options = order["options"]
    form = options["form"]
    suffix = "tar" if form == "webdataset" else form
    more: dict[str, Any] = {}
    if "ahead" in options:
        more["fragment_scan_options"] = _scanning.ParquetFragmentScanOptions(
            cache_options=_pa.CacheOptions(prefetch_limit=int(options["ahead"]), range_size_limit=_RANGE_BYTES)
        )
    dataset = _datasets.load_dataset(
        form,
        data_files={"train": f"{order['url']}/*.{suffix}"},  # each given name would be looked up, one after the other
        split="train",
        streaming=True,
        cache_dir=os.path.join(str(order["folder"]), "cache"),
        **more,
    )
    mixing = {"max_buffer_input_shards": int(options["inputs"])} if "inputs" in options else {}
    dataset = dataset.shuffle(seed=order["seed"], buffer_size=int(options["buffer"]), **mixing)
    workers = int(options["workers"])
    loader = _data.DataLoader(
        dataset,
        batch_size=order["batch"],
        num_workers=workers,
        collate_fn=_Records(_COLUMNS[form]),
        persistent_workers="persistent" in options and workers > 0,
    )

    def batches(number: int) -> Iterator[Sequence[Any]]:
        dataset.set_epoch(number)
        return iter(loader)

    yield batches
