"""Reads with MosaicML Streaming, from a bucket; writes its format."""

import ctypes
import os
import tempfile
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

__all__ = ["convert", "open_source", "prepared"]

_ACCESS, _SECRET = "race", "race-secret"
_NEW_MOUNTS = 0x20000
_RECURSIVE, _PRIVATE = 0x4000, 0x40000
_streaming: Any = import_module("streaming")
_data: Any = import_module("torch.utils.data")
_parts: Any = import_module("parts")


def convert(records: Iterator[bytes], order: dict[str, Any]) -> None:
    """See emlio_bench.race.consumers.consume."""
    for out, some in _parts.divided(records, order):
        with _streaming.MDSWriter(out=out, columns={"record": "bytes"}) as writer:
            for record in some:
                writer.write({"record": record})


@contextmanager
def prepared(order: dict[str, Any]) -> Generator[dict[str, Any], None, None]:
    """Set the store's address as the documentation says; put lock files into the order's folder."""
    os.environ |= {
        "S3_ENDPOINT_URL": order["url"],
        "AWS_ACCESS_KEY_ID": _ACCESS,
        "AWS_SECRET_ACCESS_KEY": _SECRET,
        "AWS_REGION": "us-east-1",
    }
    _have_shared_memory_alone()
    tempfile.tempdir = str(Path(order["folder"]) / "locks")
    os.makedirs(tempfile.tempdir, exist_ok=True)
    yield order


def _have_shared_memory_alone() -> None:
    """Give this process a /dev/shm of its own, which ends with it.

    The workers coordinate through shared memory with fixed names. A run that is cut leaves it
    behind, and the next run would use it. Without root, only the library's own clean-up of stale
    memory is possible.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    own = (
        libc.unshare(_NEW_MOUNTS) == 0
        and libc.mount(b"none", b"/", None, ctypes.c_ulong(_RECURSIVE | _PRIVATE), None) == 0
        and libc.mount(b"tmpfs", b"/dev/shm", b"tmpfs", ctypes.c_ulong(0), None) == 0
    )
    if not own:
        _streaming.base.util.clean_stale_shared_memory()


def _sources(order: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments that say where the data lie, and in which proportions they are mixed."""
    options, local = order["options"], os.path.join(order["folder"], "shards")
    weights = _parts.weights_of(order)
    if not weights:
        return {"remote": "s3://race", "local": local}
    streams = [
        _streaming.Stream(remote=f"s3://race/{number}", local=os.path.join(local, str(number)), proportion=weight)
        for number, weight in enumerate(weights)
    ]
    return {"streams": streams, "epoch_size": int(options["samples"]), "batching_method": options["batching"]}


@contextmanager
def open_source(order: dict[str, Any]) -> Generator[Callable[[int], Iterator[Sequence[Any]]], None, None]:
    """See emlio_bench.race.consumers.consume."""
    options, batch = order["options"], order["batch"]
    dataset = _streaming.StreamingDataset(
        **_sources(order),
        shuffle=True,
        shuffle_seed=order["seed"],
        batch_size=batch,
        predownload=int(options["ahead_batches"]) * batch if "ahead_batches" in options else None,
    )
    for stream in dataset.streams:
        # The S3 client has fetched the index by now. Forked workers would share its connection. If
        # the server keeps it open, they read one another's answers into their shards. Without the
        # client each worker makes its own.
        stream._downloader.clean_up()
    workers = int(options["workers"])
    loader = _data.DataLoader(
        dataset, batch_size=batch, num_workers=workers, persistent_workers="persistent" in options and workers > 0
    )

    def batches(number: int) -> Iterator[Sequence[Any]]:
        for one in loader:
            yield one["record"]

    yield batches
