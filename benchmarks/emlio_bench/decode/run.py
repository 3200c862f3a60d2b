"""`emlio-bench decode`: the cost of reading pictures with EMLIO, DALI's reader and DataLoader.

Covers: the pictures, the order of measurements, results. Does not cover: the subjects
(emlio_bench.decode.subjects), figures (emlio_bench.decode.figures), the plot
(emlio_bench.decode.plot).
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from emlio.errors import ConfigError, DatasetError
from emlio.index.dali_index import dali_index_name, write_dali_index
from emlio.index.opening import open_dataset
from emlio.prepare.synth import SynthOptions, synthesise
from emlio.progress import Progress
from emlio.tfrecord import FRAME_BYTES
from emlio_bench.decode.figures import decode_figures, render_decode
from emlio_bench.decode.order import GPU, NO_DAEMON, DecodeOrder
from emlio_bench.decode.plot import plot_decode
from emlio_bench.decode.subjects import DALI, DECODERS, Decoder, check_installed
from emlio_bench.experiment.command import Command
from emlio_bench.experiment.figures import results_of
from emlio_bench.harness.cuda import why_no_gpu
from emlio_bench.harness.data import data_root, warm_cache
from emlio_bench.harness.results import Results, Sample
from emlio_bench.harness.runner import rotated
from emlio_bench.harness.scenario import Window
from emlio_bench.harness.settings import DecodeSettings

__all__ = ["COMMAND", "Pictures", "make_pictures", "run_decode", "turns"]

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


def turns(decoders: Sequence[Decoder], rounds: int) -> Iterator[tuple[int, int, Decoder]]:
    """Yield round, position in the round, and subject; see `rotated`."""
    for number in range(rounds):
        for place, decoder in enumerate(rotated(decoders, number)):
            yield number, place, decoder


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
    samples: list[Sample] = []
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
            for number, place, decoder in turns(decoders, settings.repeats):
                measured = decoder.measure(order.of_epochs(decoder.epochs * epochs))
                samples.append(
                    Sample(
                        scenario=decoder.scenario, subject=decoder.name, round=number, place=place, measured=measured
                    )
                )
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
    return results_of("decode", told, decode_figures(samples), samples)


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
    run=run_decode,
    text="pictures decoded for training, beside DALI's reader and PyTorch's DataLoader",
    render=render_decode,
    plot=plot_decode,
)
