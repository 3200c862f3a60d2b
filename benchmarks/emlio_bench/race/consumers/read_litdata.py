"""Reads with LitData, from a bucket; writes its format."""

import os
import tempfile
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

# Set before the import, which looks for newer releases of LitData.
os.environ |= {"LITDATA_DISABLE_VERSION_CHECK": "1", "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1"}
_litdata: Any = import_module("litdata")
_writer: Any = import_module("litdata.streaming.writer")
_numpy: Any = import_module("numpy")
_parts: Any = import_module("parts")

__all__ = ["convert", "open_source", "prepared"]

_ACCESS, _SECRET = "race", "race-secret"
_CHUNK_BYTES = "64MB"


def convert(records: Iterator[bytes], order: dict[str, Any]) -> None:
    """See emlio_bench.race.consumers.consume.

    Uses the writer of LitData's `optimize`, in one process.
    """
    tokens = order.get("tokens")
    more: dict[str, Any] = {"item_loader": _litdata.TokensLoader()} if tokens else {}
    for out, some in _parts.divided(records, order):
        writer = _writer.BinaryWriter(out, chunk_bytes=_CHUNK_BYTES, **more)
        for number, record in enumerate(some):
            writer[number] = _numpy.frombuffer(record, _numpy.int32) if tokens else {"record": record}
        writer.done()
        writer.merge()


@contextmanager
def prepared(order: dict[str, Any]) -> Generator[dict[str, Any], None, None]:
    """Allow http:// URLs, which the object store's client refuses by default.

    Temporary files go into the order's folder, where they are counted.
    """
    downloader: Any = import_module("litdata.streaming.downloader")
    downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = True
    tempfile.tempdir = str(Path(order["folder"]) / "left")
    os.makedirs(tempfile.tempdir, exist_ok=True)
    yield order


def _records(samples: list[Any]) -> list[bytes]:
    """Copy the records: chunks decoded at once give views, which cannot be sent to a process."""
    return [bytes(sample["record"]) for sample in samples]


def _blocks(samples: list[Any]) -> list[bytes]:
    """Return blocks of tokens as the bytes of records."""
    return [_numpy.asarray(sample).tobytes() for sample in samples]


@contextmanager
def open_source(order: dict[str, Any]) -> Generator[Callable[[int], Iterator[Sequence[Any]]], None, None]:
    """See emlio_bench.race.consumers.consume."""
    options = order["options"]
    more: dict[str, Any] = {}
    if "batch_decode" in options:
        more["batch_decode"] = options["batch_decode"]
    if "ahead_chunks" in options:
        more["max_pre_download"] = int(options["ahead_chunks"])
    if "tokens" in options:
        block = order["corpus"]["record_bytes"] // _numpy.dtype(_numpy.int32).itemsize
        more["item_loader"] = _litdata.TokensLoader(block_size=block)
    if "window" in options:
        more["item_shuffle_window"] = options["window"]
    more |= {
        "shuffle": True,
        "seed": order["seed"],
        "storage_options": {
            "endpoint_url": order["url"],
            "aws_access_key_id": _ACCESS,
            "aws_secret_access_key": _SECRET,
            "region_name": "us-east-1",
        },
    }
    cache, weights = os.path.join(order["folder"], "chunks"), _parts.weights_of(order)
    dataset = (
        _litdata.CombinedStreamingDataset(
            [
                _litdata.StreamingDataset(f"s3://race/{number}", cache_dir=os.path.join(cache, str(number)), **more)
                for number in range(len(weights))
            ],
            seed=order["seed"],
            weights=weights,
            iterate_over_all=False,  # weights are refused otherwise
        )
        if weights
        else _litdata.StreamingDataset("s3://race", cache_dir=cache, **more)
    )
    loader = _litdata.StreamingDataLoader(
        dataset,
        batch_size=order["batch"],
        num_workers=int(options["workers"]),
        collate_fn=_blocks if "tokens" in options else _records,
    )

    def batches(number: int) -> Iterator[Sequence[Any]]:
        return iter(loader)

    yield batches
