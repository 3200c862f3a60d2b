"""`emlio-bench decode`: the cost of reading pictures with EMLIO, DALI's reader and DataLoader."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from emlio.errors import ConfigError, DatasetError
from emlio.index.dali_index import dali_index_name, write_dali_index
from emlio.index.opening import open_dataset
from emlio.prepare.synth import SynthOptions, synthesise
from emlio.progress import Progress
from emlio.tfrecord import FRAME_BYTES
from emlio_bench.decode.figures import CPU, DAEMON_CPU, SPEED, decode_figures, draw_decode
from emlio_bench.decode.order import GPU, NO_DAEMON, DecodeOrder
from emlio_bench.decode.subjects import DALI, DECODERS, Decoder, check_installed
from emlio_bench.harness.command import Command, CommonSettings
from emlio_bench.harness.cuda import why_no_gpu
from emlio_bench.harness.data import data_root, warm_cache
from emlio_bench.harness.meter import Measurement
from emlio_bench.harness.options import chosen, count, names
from emlio_bench.harness.results import Results, Run, results_of
from emlio_bench.harness.rounds import rotated
from emlio_bench.harness.scenario import Window
from emlio_bench.harness.spread import Value

__all__ = ["COMMAND", "DecodeSettings", "Pictures", "make_pictures", "run_decode"]

_SHARD_BYTES: Final = 12_000_000
_SIZE: Final = (500, 375)
_QUICK_SIZE: Final = (160, 120)
_QUICK_IMAGES: Final = 96
_QUICK_BATCH: Final = 16
_WARM_UP_BATCHES: Final = 10
"""The warm-up in batches.

By its end the loader has filled its read-ahead, and DALI's reader has long filled its shuffle
buffer.
"""

_QUICK_WARM_UP: Final = 2
_MOST_NS: Final = 240_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeSettings(CommonSettings):
    """`emlio-bench decode`."""

    images: int = count(2000, "pictures in the dataset, and in a sample after its warm-up")
    batch: int = count(64, "pictures in a batch")
    threads: int = count(2, "threads, or worker processes, that decode")
    repeats: int = count(5, "rounds; one sample of each subject in each")
    subjects: tuple[str, ...] = names(tuple(DECODERS), "who is measured")
    device: str = chosen(
        ("cpu", GPU), "where pictures are decoded: cpu, or gpu for the subjects with DALI alone", "DEVICE"
    )
    epochs: int = count(1, "passes over the pictures in a sample, for devices that are fast")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pictures:
    """The data of the benchmark.

    Attributes:
        directory: directory of the dataset.
        index_directory: folder of DALI's index files.
        images: number of records.
        record_bytes: mean size of a record.
    """

    directory: Path
    index_directory: Path
    images: int
    record_bytes: int


def make_pictures(images: int, size: tuple[int, int], root: Path, *, progress: bool) -> Pictures:
    """Make the dataset and DALI's index files below `root`, or find them; warm the page cache."""
    directory = root / f"images-{size[0]}x{size[1]}-x{images}"
    indexes = directory.with_name(f"{directory.name}-dali")
    options = SynthOptions(kind="images", records=images, image_size=size, shard_bytes=_SHARD_BYTES, seed=1)
    try:
        indexes.mkdir(parents=True, exist_ok=True)
        synthesise(options, directory, progress)
        with open_dataset(directory.name, directory) as dataset:
            for shard in dataset.shards:
                # Not beside the shards, because EMLIO would read them as a part of the dataset.
                write_dali_index(indexes / dali_index_name(shard.name), shard.offsets)
            payload_bytes = dataset.size_bytes - FRAME_BYTES * dataset.records
    except OSError as error:
        raise DatasetError(f"the benchmark's data must have a folder: {root}: {error.strerror or error}") from error
    warm_cache(directory)
    return Pictures(
        directory=directory, index_directory=indexes, images=images, record_bytes=round(payload_bytes / images)
    )


def run_decode(settings: DecodeSettings) -> Results:
    """Measure all requested subjects."""
    decoders = [decoder for name, decoder in DECODERS.items() if name in settings.subjects]
    if settings.device == GPU:
        decoders = _on_gpu(decoders)
    check_installed(decoders)
    images = min(settings.images, _QUICK_IMAGES) if settings.quick else settings.images
    batch = min(settings.batch, _QUICK_BATCH if settings.quick else images)
    epochs = 1 if settings.quick else settings.epochs
    warm_up = batch * (_QUICK_WARM_UP if settings.quick else _WARM_UP_BATCHES)
    size = _QUICK_SIZE if settings.quick else _SIZE
    runs: list[Run] = []
    with data_root(settings.data) as root:
        pictures = make_pictures(images, size, root, progress=sys.stderr.isatty())
        order = DecodeOrder(
            directory=str(pictures.directory),
            index_directory=str(pictures.index_directory),
            address=str(pictures.directory),
            daemon_pid=NO_DAEMON,
            images=images,
            batch=batch,
            threads=settings.threads,
            record_bytes=pictures.record_bytes,
            device=settings.device,
            window=Window(
                warm_up_bytes=warm_up * pictures.record_bytes,
                sample_bytes=images * pictures.record_bytes,
                least_ns=1,
                most_ns=_MOST_NS,
            ),
        )
        with Progress("decoding", settings.repeats * len(decoders)) as bar:
            for number in range(settings.repeats):
                for place, decoder in enumerate(rotated(decoders, number)):
                    measured = decoder.measure(order.of_epochs(decoder.epochs * epochs))
                    runs.append(_run(decoder, number, place, measured))
                    bar.add(1)
    told = {
        "subjects": tuple(decoder.name for decoder in decoders),
        "images": images,
        "image_size": f"{size[0]}x{size[1]}",
        "mean_record_bytes": pictures.record_bytes,
        "batch": batch,
        "threads": settings.threads,
        "warm_up_images": warm_up,
        **({} if settings.device == "cpu" else {"device": settings.device}),
        **({} if epochs == 1 else {"epochs": epochs}),
    }
    return results_of("decode", told, decode_figures(runs), runs)


def _run(decoder: Decoder, number: int, place: int, measured: Measurement) -> Run:
    values = {SPEED: measured.records_per_s, CPU: measured.receiver_cpu_ns / measured.records / 1e6}
    if decoder.has_daemon:
        values[DAEMON_CPU] = measured.sender_cpu_ns / measured.records / 1e6
    return Run(
        scenario=decoder.scenario,
        subject=decoder.name,
        round=number,
        place=place,
        values={name: Value(value=value) for name, value in values.items()},
    )


def _on_gpu(decoders: Sequence[Decoder]) -> list[Decoder]:
    """Return the subjects that can decode on a GPU.

    Raises:
        ConfigError: there are none, or there is no GPU.
    """
    able = [decoder for decoder in decoders if decoder.scenario == DALI]
    if not able:
        raise ConfigError(f"--device gpu needs a subject with {DALI}, got {','.join(one.name for one in decoders)}")
    if (reason := why_no_gpu()) is not None:
        raise ConfigError(f"--device gpu needs a GPU: {reason}")
    return able


COMMAND: Final = Command(
    name="decode",
    settings=DecodeSettings,
    run=lambda settings, _: run_decode(settings),
    text="pictures decoded for training, beside DALI's reader and PyTorch's DataLoader",
    draw=draw_decode,
)
