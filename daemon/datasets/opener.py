"""Opening datasets: at the start of a daemon, and in threads of their own while it serves.

Covers: the threads, and what becomes of a result that comes too late. Does not cover: which datasets
are wanted (emlio.daemon.control.reloads), opening one (emlio.index.opening).
"""

import logging
from collections.abc import Callable
from pathlib import Path
from threading import Lock, Thread

from emlio.daemon.config import DatasetSource
from emlio.errors import DatasetError, EmlioError
from emlio.index.dataset import Dataset
from emlio.index.opening import open_dataset
from emlio.planner.catalog import Catalog
from emlio.store.bucket.block_cache import BlockCache
from emlio.units import counted, format_size

__all__ = ["Opener", "try_to_open"]

_LOG = logging.getLogger("emlio.daemon")
_ENDING_S = 1.0

Opened = Callable[[Dataset | EmlioError], None]


def try_to_open(
    source: DatasetSource,
    cache_dir: Path | None,
    *,
    progress: bool = False,
    object_cache: BlockCache | None = None,
) -> Dataset | EmlioError:
    """Open a dataset, which may take minutes if its shards must be scanned; return it, or why it cannot be opened.

    Whatever goes wrong is of this dataset alone, also a lack of memory or a defect of a format. Errors do
    not name the dataset; the caller knows it.
    """
    try:
        return _open(source, cache_dir, progress=progress, object_cache=object_cache)
    except EmlioError as error:
        return error
    except MemoryError as error:
        return DatasetError(f"opening it takes more memory than there is: {error}".removesuffix(": "))
    except OSError as error:
        return DatasetError(f"dataset directory {source.directory}: cannot be read: {error.strerror or error}")
    except Exception as error:  # noqa: BLE001  # other datasets are served in any case
        _LOG.exception("opening dataset %s failed", source.full_name)
        return EmlioError(f"an internal error, please report it with the lines above: {error!r}")


def _open(source: DatasetSource, cache_dir: Path | None, *, progress: bool, object_cache: BlockCache | None) -> Dataset:
    dataset = open_dataset(
        source.full_name, source.directory, cache_dir, progress, options=source.options, object_cache=object_cache
    )
    try:
        Catalog(shards=tuple(dataset.entries))  # an error if the dataset cannot be planned
    except BaseException:
        dataset.close()
        raise
    size = sum(shard.size_bytes for shard in dataset.shards)
    records = sum(shard.records for shard in dataset.shards)
    _LOG.info(
        "dataset %s: %s in %s, %s, at %s",
        source.full_name,
        counted(records, "record"),
        counted(len(dataset.shards), "shard"),
        format_size(size),
        source.directory,
        extra={
            "dataset": source.full_name,
            "records": records,
            "shards": len(dataset.shards),
            "bytes": size,
            "place": str(source.directory),
        },
    )
    if object_cache is not None and dataset.files.remote and size > object_cache.most_bytes:
        _LOG.warning(
            "dataset %s: its %s do not fit into the cache of objects, %s: later epochs read from the bucket again",
            source.full_name,
            format_size(size),
            format_size(object_cache.most_bytes),
        )
    return dataset


class Opener:
    """Opens datasets while others are served: each in a thread, so that a slow disk holds up only its own.

    Used by the control thread.
    """

    def __init__(
        self,
        cache_dir: Path | None,
        call: Callable[[Callable[[], None]], None],
        object_cache: BlockCache | None = None,
    ) -> None:
        """See the class.

        Args:
            cache_dir: see `open_dataset`.
            call: runs a function in the control thread.
            object_cache: see `open_dataset`.
        """
        self._cache_dir = cache_dir
        self._object_cache = object_cache
        self._call = call
        self._lock = Lock()
        self._closing = False
        self._threads: set[Thread] = set()
        self._made: set[Dataset] = set()

    def open(self, source: DatasetSource, opened: Opened) -> None:
        """Open a dataset, and call `opened` in this thread with it, or with the reason why not."""
        thread = Thread(
            target=lambda: self._run(thread, source, opened), name=f"emlio-open-{source.full_name}", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:  # the system has no thread left
            opened(EmlioError(f"dataset {source.full_name} cannot be opened: {error}"))
        else:
            self._threads.add(thread)

    def _run(self, thread: Thread, source: DatasetSource, opened: Opened) -> None:
        result = try_to_open(source, self._cache_dir, object_cache=self._object_cache)
        with self._lock:
            if isinstance(result, Dataset):
                if self._closing:
                    result.close()
                    return
                self._made.add(result)
        self._call(lambda: self._hand_over(thread, result, opened))

    def _hand_over(self, thread: Thread, result: Dataset | EmlioError, opened: Opened) -> None:
        thread.join()
        self._threads.discard(thread)
        if isinstance(result, Dataset):
            with self._lock:
                self._made.discard(result)
        opened(result)

    def close(self) -> None:
        """Take no more results.

        A thread that scans a dataset is waited for only briefly: its result is dropped.
        """
        with self._lock:
            self._closing = True
            made, self._made = self._made, set()
        for dataset in made:
            dataset.close()
        for thread in self._threads:
            thread.join(_ENDING_S)
            if thread.is_alive():
                _LOG.warning("thread %s is left running: it has not ended for %s s", thread.name, _ENDING_S)
