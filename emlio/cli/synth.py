"""`emlio synth`: make a synthetic dataset.

Covers: the command's arguments and output. Does not cover: making it (emlio.prepare.synth).
"""

import argparse
import re
import sys
import time
from pathlib import Path

from emlio.errors import ConfigError
from emlio.prepare.synth import SYNTH_KINDS, SynthOptions, synthesise
from emlio.units import format_duration, format_size, parse_size

__all__ = ["HELP", "add_arguments", "run"]

HELP = "Make a synthetic dataset: photo-like JPEGs, or random bytes for benchmarks."

_SIZE_OF_IMAGE = re.compile(r"([0-9]{1,5})x([0-9]{1,5})")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("out", metavar="OUT", type=Path, help="the directory of the new dataset")
    parser.add_argument(
        "--kind",
        choices=SYNTH_KINDS,
        default="images",
        help="images: JPEGs like ImageNet's (default); opaque: random bytes after the record's number; "
        "example: small Examples of such bytes",
    )
    amount = parser.add_mutually_exclusive_group(required=True)
    amount.add_argument("--records", metavar="N", type=int, help="how many records")
    amount.add_argument("--size", metavar="SIZE", help="about how much in all, for example 10GB")
    parser.add_argument("--record-size", metavar="SIZE", help="of opaque (default: 100kB) and example (3kB)")
    parser.add_argument(
        "--spread",
        metavar="SHARE",
        type=float,
        default=0.0,
        help="of the record size: 0.5 makes 50 to 150 kB of 100 kB",
    )
    parser.add_argument("--image-size", metavar="WxH", default="500x375", help="default: 500x375")
    parser.add_argument("--classes", metavar="N", type=int, default=1000, help="how many labels (default: 1000)")
    parser.add_argument("--shard-size", metavar="SIZE", default="256MiB", help="about how large a shard is (256MiB)")
    parser.add_argument("--seed", metavar="N", type=int, default=0, help="default: 0")
    parser.add_argument("--workers", metavar="N", type=int, help="threads (default: one a core)")
    parser.add_argument(
        "--force", action="store_true", help="replace a dataset that emlio convert or synth made in OUT before"
    )
    parser.epilog = (
        "The same arguments make the same bytes. Some hundred pictures are drawn and repeated under other labels, names and "
        "JPEG comments; random bytes come from a pool of 16 MiB."
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
            f"emlio synth: stopped; {finished} shards are finished in {out}. Run the same command again to go on",
            file=sys.stderr,
        )
        raise
    shards = [path.stat().st_size for path in out.glob("shard-*.tfrecord")]
    took = format_duration(time.monotonic_ns() - begun)
    print(f"{out}: {format_size(sum(shards))} in {len(shards)} shards, made in {took}")
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
    )


def _size(flag: str, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return parse_size(text)
    except ConfigError as error:
        raise ConfigError(f"{flag} {error}") from error
