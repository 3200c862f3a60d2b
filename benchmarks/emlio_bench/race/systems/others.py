"""The other systems of the race: what each claims, and the settings that its documentation suggests.

A mount is sshfs with its defaults, or tuned after its manual page, sshfs(1), and its list of options,
`sshfs --help`: several connections, directories and attributes cached for the whole run, no flush on close,
SFTP without SSH.
"""

import io
import tarfile
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Literal

import msgspec

from emlio.extras import how_to_install
from emlio_bench.harness.contest import Corpus
from emlio_bench.race.needs.environments import environment_python
from emlio_bench.race.records.corpus import made_once, read_records
from emlio_bench.race.records.file_forms import as_examples, as_files
from emlio_bench.race.records.order import RaceOrder, converted
from emlio_bench.race.systems.over import OverMount, OverStore, OverWeb
from emlio_bench.race.systems.system import Claim, Setting, System, setting

__all__ = [
    "WebDataset",
    "dali_files",
    "dali_local",
    "grain",
    "hf_datasets",
    "litdata",
    "litdata_tokens",
    "mosaic",
    "pytorch_files",
    "spdl",
]

_WORKERS: Final = (2, 8, 16)
"""The numbers of workers that are tried beside the default of 4."""
_ANYWHERE: Final = "every record anywhere in the epoch"


def _more_workers(**options: str | int) -> tuple[Setting, ...]:
    return tuple(
        setting(f"{count} workers", f"as default with {count} workers", workers=count, **options) for count in _WORKERS
    )


def pytorch_files(cache: Path, mount: Path | None = None) -> System:
    """Return PyTorch's DataLoader over a remote file system, a file for each record.

    Settings: PyTorch's "Performance Tuning Guide": as many workers as the location of the data requires; its
    reference of torch.utils.data: `persistent_workers`, and `prefetch_factor` for batches read ahead.
    """
    words = "tuned mount, 16 workers that stay for all epochs, each 4 batches ahead"
    return OverMount(
        name="pytorch-files",
        claim=Claim(shuffles=_ANYWHERE, exact=True, packages=("torch",), decodes=True),
        environment="torch",
        reader="read_files",
        form=as_files,
        cache=cache,
        mount=mount,
        reads_here=mount is not None,
        tried=(
            setting("default", "default mount, 4 workers", workers=4, mount="default"),
            setting("16 workers", "default mount, 16 workers", workers=16, mount="default"),
            setting("tuned mount", "tuned mount, 4 workers", workers=4, mount="tuned"),
            setting("tuned", words, usual=True, workers=16, mount="tuned", persistent=1, ahead=4),
        ),
    )


def spdl(cache: Path, mount: Path | None = None) -> System:
    """Return SPDL: a pipeline of threads over a remote file system, a file for each record.

    Settings: its documentation, pages "Building and Running Pipeline" and "Concurrency": the download stage has
    4 tasks, a pool with as many threads, and a sink of 3; more tasks if each of them waits longer. Results come
    in the order of completion, the default. SPDL does not plan the order of files: its user draws it, as its
    examples do.
    """
    return OverMount(
        name="spdl",
        claim=Claim(shuffles="what its source draws: here every record anywhere in the epoch", packages=("spdl-core",)),
        environment="loaders",
        reader="read_spdl",
        form=as_files,
        cache=cache,
        mount=mount,
        reads_here=mount is not None,
        tried=tuple(
            setting(name, f"{mounted} mount, {tasks} tasks", usual=name == "tuned", tasks=tasks, mount=mounted)
            for name, mounted, tasks in (
                ("default", "default", 4),
                ("16 tasks", "default", 16),
                ("64 tasks", "default", 64),
                ("tuned mount", "tuned", 16),
                ("tuned", "tuned", 64),
            )
        ),
    )


def grain(cache: Path, mount: Path | None = None) -> System:
    """Return Grain: random access to ArrayRecord files on a remote file system, read ahead by threads.

    Settings: its documentation, page "Dataset basics": `to_iter_dataset(ReadOptions(num_threads=16,
    prefetch_buffer_size=500))`, the defaults, to hide the latency of each element; the docstring of ReadOptions,
    which says that the buffer helps with distributed file systems and that each worker process has its own
    threads; `mp_prefetch` for worker processes. The page "Reading ArrayRecord Files" uses one record per group,
    and "Reading from AWS S3" reads such files from a mount.
    """

    def form(corpus: Corpus, folder: Path) -> Path:
        options = {"records": corpus.records}
        python = environment_python("loaders", cache)
        return converted(python, "read_grain", corpus, folder, form="array-record", options=options)

    few, many = "16 threads, 500 records ahead", "64 threads, 1,000 records ahead"
    return OverMount(
        name="grain",
        claim=Claim(
            shuffles=_ANYWHERE,
            exact=True,
            leaves_on_disk="nothing; its kernel keeps in memory what was read, since files stay open",
            packages=("grain", "array-record"),
        ),
        environment="loaders",
        reader="read_grain",
        form=form,
        cache=cache,
        mount=mount,
        reads_here=mount is not None,
        tried=(
            setting("default", f"default mount, {few}", mount="default", threads=16, ahead=500),
            setting("64 threads", f"default mount, {many}", mount="default", threads=64, ahead=1000),
            setting("tuned", f"tuned mount, {few}", usual=True, mount="tuned", threads=16, ahead=500),
            setting("tuned, 64 threads", f"tuned mount, {many}", mount="tuned", threads=64, ahead=1000),
            setting(
                "tuned, workers",
                "tuned mount, 4 processes of 16 threads",
                mount="tuned",
                threads=16,
                ahead=500,
                workers=4,
            ),
        ),
    )


_DALI: Final = Claim(
    shuffles="records inside a buffer of 1,024",
    exact=True,
    packages=("nvidia-dali-cuda120", "nvidia-dali-cuda130"),
    decodes=True,
)


def _no_dali() -> str | None:
    return None if find_spec("nvidia.dali") is not None else f"needs DALI: {how_to_install('dali')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Dali(OverMount):
    def lacks(self) -> str | None:
        return _no_dali() or OverMount.lacks(self)


def dali_files(form: Literal["file", "tfrecord"], cache: Path, mount: Path | None = None) -> System:
    """Return one of DALI's own readers, named "file" and "tfrecord", over a remote file system.

    Settings: DALI's documentation, pages nvidia.dali.fn.readers.file and nvidia.dali.fn.readers.tfrecord:
    `random_shuffle` with its buffer (`initial_fill`), `dont_use_mmap`, since mapped files are slow on most
    network file systems, `read_ahead` and a deeper `prefetch_queue_depth`. Each reader has one reading thread.
    """
    # Only TFRecord files are shards, which can be divided between two hosts, and have labels.
    shards = form == "tfrecord"
    words = "tuned mount, no mmap, read ahead, 8 batches queued"
    return _Dali(
        name=f"dali-{form}",
        claim=replace(_DALI, halves=shards, trains=shards),
        reader="read_dali",
        form=as_examples if shards else as_files,
        cache=cache,
        mount=mount,
        reads_here=mount is not None,
        tried=(
            setting("default", "default mount, default reader", mount="default", form=form),
            setting("tuned mount", "tuned mount, default reader", mount="tuned", form=form),
            setting("tuned", words, usual=True, mount="tuned", form=form, ahead=8),
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _DaliHere(System):
    def lacks(self) -> str | None:
        return _no_dali()


def dali_local() -> System:
    """Return DALI's reader of TFRecord files on the training host's disks, which our local mode is compared with.

    The files are in the page cache, as EMLIO's are.
    """
    words = "no mmap, read ahead, 8 batches queued, data on this host"
    return _DaliHere(
        name="dali-local",
        family="local",
        claim=_DALI,
        reader="read_dali",
        form=as_examples,
        reads_here=True,
        tried=(
            setting("default", "default reader, data on this host", mount="none", form="tfrecord"),
            setting("tuned", words, usual=True, mount="none", form="tfrecord", ahead=8),
        ),
    )


def litdata(cache: Path) -> System:
    """Return LitData: chunks of 64 MB from an S3 server, read by the workers of its own loader.

    Settings: its README: `optimize(chunk_bytes="64MB")`, StreamingDataset with `shuffle=True`,
    StreamingDataLoader with workers, a higher `max_pre_download` for distant storage; and the docstring of
    StreamingDataset for `batch_decode`, where "all" decodes a whole chunk at once. By default items are shuffled
    in blocks of 256 within a chunk; "full" shuffles the whole chunk.
    """
    whole = "whole chunks decoded at once"
    return OverStore(
        name="litdata",
        environment="torch",
        reader="read_litdata",
        claim=_LITDATA,
        cache=cache,
        tried=(
            setting("default", "chunks of 64 MB, 2 workers", workers=2),
            setting("tuned", f"{whole}, 2 workers", usual=True, workers=2, batch_decode="all"),
            *(
                setting(f"tuned, {count} workers", f"{whole}, {count} workers", workers=count, batch_decode="all")
                for count in (4, 8, 16)
            ),
            setting(
                "ahead", f"{whole}, 4 workers, each up to 8 chunks ahead", workers=4, batch_decode="all", ahead_chunks=8
            ),
            setting(
                "full shuffle",
                f"{whole} and shuffled as a whole, 2 workers",
                workers=2,
                batch_decode="all",
                window="full",
            ),
        ),
    )


_LITDATA: Final = Claim(
    shuffles="chunks, and records in blocks inside a chunk",
    leaves_on_disk="all chunks, up to a bound",
    packages=("litdata", "torch"),
)


def litdata_tokens(cache: Path) -> System:
    """Return LitData's loader of tokens: chunks are nothing but tokens, cut into blocks when they are read.

    Settings: its README, "LLM Pre-training".
    """
    return OverStore(
        name="litdata-tokens",
        environment="torch",
        reader="read_litdata",
        claim=_LITDATA,
        cache=cache,
        writer=(("tokens", 1),),
        tried=tuple(
            setting(
                "default" if count == 2 else f"tuned, {count} workers",
                f"TokensLoader, chunks of 64 MB, {count} workers",
                usual=count == 4,
                workers=count,
                tokens=1,
            )
            for count in (2, 4, 8, 16)
        ),
    )


def mosaic(cache: Path) -> System:
    """Return MosaicML Streaming: shards of 64 MB from an S3 server, read by PyTorch's DataLoader.

    Settings: its documentation, "Performance Tuning" and "Shuffling": the dataset is told the batch size, `py1e`
    shuffles (the default), and if downloads delay the training, `predownload` or the number of workers is raised.
    Each worker downloads one shard at a time.
    """
    words = "16 workers that stay for all epochs, each up to 64 batches ahead"
    return OverStore(
        name="mosaic",
        environment="mosaic",
        reader="read_mosaic",
        claim=Claim(
            shuffles="records inside blocks of about 262,144, which here is all of them",
            leaves_on_disk="all shards",
            packages=("mosaicml-streaming", "torch"),
        ),
        cache=cache,
        tried=(
            setting("default", "shards of 64 MB, 4 workers", workers=4),
            *_more_workers(),
            setting("tuned", words, usual=True, workers=16, ahead_batches=64, persistent=1),
        ),
    )


_PER_FILE: Final = 100
_MOST_FILES: Final = 64


def hf_datasets(cache: Path) -> System:
    """Return Hugging Face datasets in streaming mode: Parquet files, or tar files, read over HTTP.

    Settings: its documentation, page "Stream": `load_dataset(streaming=True)`, `shuffle` with a buffer that is
    filled from up to ten files at a time (`max_buffer_input_shards`), a DataLoader whose workers share the files,
    ten for each if there are enough, `set_epoch`. For Parquet: its post "Streaming datasets: 100x More Efficient",
    and the docstring of ParquetConfig: ranges of 128 MiB, one of them prefetched. It reads Parquet in blocks by
    HTTP ranges, and a tar file in one request. Parquet row groups have 100 records, like those that the library
    writes for pictures.
    """

    def form(corpus: Corpus, folder: Path) -> Path:
        # At least one file for each worker, about 100 records each.
        files = min(max(corpus.records // _PER_FILE, max(_WORKERS)), _MOST_FILES, corpus.records)
        options = {"files": files, "records": corpus.records, "record_bytes": corpus.record_bytes}
        python = environment_python("hf", cache)
        return converted(python, "read_hf_datasets", corpus, folder, form="hf-datasets", options=options)

    stay = "{} files, each worker's buffer filled from {} at a time, {} workers that stay for all epochs"
    parquet: dict[str, str | int] = {"form": "parquet", "buffer": 1000}
    tar: dict[str, str | int] = {"form": "webdataset", "buffer": 1000}
    one: dict[str, str | int] = {"inputs": 1, "persistent": 1}
    two: dict[str, str | int] = {"inputs": 2, "persistent": 1}
    return OverWeb(
        name="hf-datasets",
        claim=Claim(
            shuffles="files, and samples inside a buffer of 1,000 in each worker that is filled from up to 10 files at "
            "a time",
            leaves_on_disk="nothing of the data",
            packages=("datasets", "pyarrow", "torch"),
        ),
        reader="read_hf_datasets",
        environment="hf",
        form=form,
        cache=cache,
        tried=(
            setting("default", "Parquet files, a buffer of 1,000, 4 workers", workers=4, **parquet),
            *_more_workers(**parquet),
            setting("tuned", stay.format("Parquet", "one", 16), usual=True, workers=16, **parquet, **one),
            setting("ahead", 'as "tuned", ranges of 128 MiB, one prefetched', workers=16, **parquet, **one, ahead=1),
            setting("tar files", "tar files, a buffer of 1,000, 4 workers", workers=4, **tar),
            setting("tar files, 16 workers", stay.format("tar", "one", 16), workers=16, **tar, **one),
            setting("tar files, 8 workers", stay.format("tar", "two", 8), workers=8, **tar, **two),
        ),
    )


_SHARDS: Final = (100, 500)
"""Records of a tar file: shards of 100 mix better, those of 500 need fewer requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebDataset(OverWeb):
    """WebDataset: tar files, each read in one request over HTTP.

    Settings: its README and the example repository wds-distributed: shards and samples are shuffled
    (`shardshuffle`, `.shuffle(1000)`), each worker makes batches, and batches are mixed again behind the workers
    ("unbatched, shuffle, batched") for more mixing. It opens URLs by curl, one process for each shard.
    """

    name: str = "webdataset"
    claim: Claim = Claim(
        shuffles="shards, and samples inside a buffer of 1,000 in each worker", packages=("webdataset", "torch")
    )
    reader: str = "read_webdataset"
    environment: str | None = "torch"
    tried: tuple[Setting, ...] = (
        setting(
            "default", "100 records a tar file, shuffle(1000), batches made in 4 workers", workers=4, shard=_SHARDS[0]
        ),
        *_more_workers(shard=_SHARDS[0]),
        setting("500 a tar", "500 records a tar file, 4 workers", usual=True, workers=4, shard=_SHARDS[1]),
        setting("500 a tar, 8 workers", "500 records a tar file, 8 workers", workers=8, shard=_SHARDS[1]),
        setting(
            "tuned",
            "16 workers that stay for all epochs, samples mixed again behind them",
            workers=16,
            shard=_SHARDS[0],
            mixed=1000,
            persistent=1,
        ),
    )

    def prepare(self, corpus: Corpus, folder: Path) -> Path:
        """Write tar files of both sizes."""
        made: list[Path] = []
        for size in _SHARDS:
            write = partial(_write_tars, corpus, folder, _per_shard(corpus, size))
            made.append(made_once(folder / "webdataset" / corpus.name / str(size), write))
        return made[0].parent

    def command(self, order: RaceOrder) -> list[str]:
        """Return the consumer's command line, with the number of shards."""
        size = int(order.options["shard"])
        shards = -(-order.corpus.records // _per_shard(order.corpus, size))
        order = msgspec.structs.replace(order, options={**order.options, "shards": str(shards)})
        return System.command(self, order)


def _per_shard(corpus: Corpus, wanted: int) -> int:
    """Return the records in a shard.

    There is at least one shard for each worker, because WebDataset refuses to read otherwise.
    """
    return max(min(wanted, corpus.records // max(_WORKERS)), 1)


def _write_tars(corpus: Corpus, folder: Path, per_shard: int, target: Path) -> None:
    records = read_records(corpus, folder)
    for shard in range(-(-corpus.records // per_shard)):
        with tarfile.open(target / f"{shard:06d}.tar", "w", format=tarfile.USTAR_FORMAT) as tar:
            for number in range(shard * per_shard, min((shard + 1) * per_shard, corpus.records)):
                record = next(records)
                entry = tarfile.TarInfo(f"{number:08d}.bin")
                entry.size = len(record)
                tar.addfile(entry, io.BytesIO(record))
