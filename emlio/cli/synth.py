"""`emlio synth`: make a synthetic dataset."""

import argparse
import re
import sys
import time
from pathlib import Path

from emlio.errors import ConfigError
from emlio.prepare.synth import SYNTH_FORMS, SYNTH_KINDS, SynthOptions, synthesise
from emlio.units import counted, format_duration, format_size, parse_size

__all__ = ["HELP", "add_arguments", "run"]

HELP = "Make a synthetic dataset: photo-like JPEGs, or random bytes for benchmarks."

_SIZE_OF_IMAGE = re.compile(r"([0-9]{1,5})x([0-9]{1,5})")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("out", metavar="OUT", type=Path, help="directory of the new dataset")
    parser.add_argument(
        "--kind",
        choices=SYNTH_KINDS,
        default="images",
        help="images: JPEGs similar to ImageNet (default); opaque: the record's number and random bytes; example: "
        "small tf.train.Example records of random bytes",
    )
    parser.add_argument(
        "--as",
        dest="form",
        choices=SYNTH_FORMS,
        default="tfrecord",
        help="tfrecord: TFRecord files (default); files: a file for each record, in a folder for each class",
    )
    amount = parser.add_mutually_exclusive_group(required=True)
    amount.add_argument("--records", metavar="N", type=int, help="number of records")
    amount.add_argument("--size", metavar="SIZE", help="approximate total size, for example 10GB")
    parser.add_argument(
        "--record-size",
        metavar="SIZE",
        help="size of a record with --kind opaque (default: 100kB) or example (default: 3kB)",
    )
    parser.add_argument(
        "--spread",
        metavar="SHARE",
        type=float,
        default=0.0,
        help="variation of the record size: 0.5 turns 100 kB into 50 to 150 kB (default: 0)",
    )
    parser.add_argument(
        "--image-size", metavar="WxH", default="500x375", help="width and height of the images (default: 500x375)"
    )
    parser.add_argument("--classes", metavar="N", type=int, default=1000, help="number of labels (default: 1000)")
    parser.add_argument(
        "--shard-size", metavar="SIZE", default="256MiB", help="approximate size of a shard (default: 256MiB)"
    )
    parser.add_argument("--seed", metavar="N", type=int, default=0, help="seed of the contents (default: 0)")
    parser.add_argument("--workers", metavar="N", type=int, help="number of threads (default: one per core)")
    parser.add_argument(
        "--force",
        action="store_true",
        help="replace a dataset that emlio convert or emlio synth made in OUT; other files there are an error",
    )
    parser.epilog = (
        "The same arguments make the same bytes. A few hundred images are drawn and repeated with different labels, "
        "names and JPEG comments. Random bytes come from a pool of 16 MiB."
    )


def run(arguments: argparse.Namespace) -> int:
    """Make the dataset and print a summary."""
    options = _options(arguments)
    out: Path = arguments.out
    begun = time.monotonic_ns()
    try:
        synthesise(options, out, progress=True)
    except KeyboardInterrupt:
        finished = sum(1 for _ in out.glob("mapping_shard_*.json"))
        print(
            f"emlio synth: interrupted, {counted(finished, 'finished shard')} in {out}. Run the same command again to "
            "continue",
            file=sys.stderr,
        )
        raise
    took = format_duration(time.monotonic_ns() - begun)
    if options.form == "files":
        print(f"{out}: files of {counted(options.classes, 'class', 'classes')}, made in {took}")
        return 0
    shards = [path.stat().st_size for path in out.glob("shard-*.tfrecord")]
    print(f"{out}: {format_size(sum(shards))} in {counted(len(shards), 'shard')}, made in {took}")
    return 0


def _options(arguments: argparse.Namespace) -> SynthOptions:
    image_size = _SIZE_OF_IMAGE.fullmatch(arguments.image_size)
    if image_size is None:
        raise ConfigError(f"--image-size must be width and height, like 500x375, got {arguments.image_size!r}")
    shard_bytes = _size("--shard-size", arguments.shard_size)
    assert shard_bytes is not None
    return SynthOptions(
        kind=arguments.kind,
        records=arguments.records,
        size_bytes=_size("--size", arguments.size),
        record_bytes=_size("--record-size", arguments.record_size),
        spread=arguments.spread,
        image_size=(int(image_size[1]), int(image_size[2])),
        classes=arguments.classes,
        shard_bytes=shard_bytes,
        seed=arguments.seed,
        workers=arguments.workers,
        force=arguments.force,
        form=arguments.form,
    )


def _size(flag: str, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return parse_size(text)
    except ConfigError as error:
        raise ConfigError(f"{flag} {error}") from error
