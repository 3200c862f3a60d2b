"""`emlio inspect`: show a dataset's content and verify it."""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from emlio.errors import CorruptRecordError, DatasetError
from emlio.formats.contents import TFRECORD, FieldType
from emlio.index.dataset import Dataset
from emlio.index.opening import DatasetPath, open_dataset
from emlio.index.parallel import for_each_shard
from emlio.index.summary import Summary, summarise
from emlio.reading.pictures import find_bad_pictures
from emlio.reading.preview import draw_preview
from emlio.reading.random_reader import RandomReader, bad_records
from emlio.units import counted, format_size

__all__ = ["HELP", "add_arguments", "run"]

HELP = "Show the contents of a dataset, and optionally check every record."

_SHOWN = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "directory", metavar="DIR", help="directory of the dataset, with options if any: DIR?OPTION=VALUE"
    )
    parser.add_argument("--verify", action="store_true", help="read every byte and check every record's checksum")
    parser.add_argument(
        "--decode",
        action="store_true",
        help="decode every picture and list the records that have one that cannot be decoded (requires Pillow)",
    )
    parser.add_argument(
        "--preview",
        metavar="PICTURE",
        type=Path,
        help="write a picture with some of the images to this file (requires Pillow)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    parser.add_argument("--cache-dir", metavar="FOLDER", type=Path, help="directory of indexes, as for emlio index")


def run(arguments: argparse.Namespace) -> int:
    """Show one dataset. Return 1 if a record is corrupt, or a picture cannot be decoded."""
    place = DatasetPath.parse(arguments.directory)
    with open_dataset(
        place.directory.name, place.directory, arguments.cache_dir, progress=True, options=place.options
    ) as dataset:
        bad = _verify(dataset) if arguments.verify else None
        pictures = find_bad_pictures(dataset, progress=True) if arguments.decode else None
        if pictures is not None and not pictures.features and bad is None:
            raise DatasetError(
                f"dataset directory {dataset.place}: nothing to decode, no picture in the sampled records"
            )
        if pictures is not None:
            bad = _joined(bad or (), pictures.bad)
        summary = summarise(dataset)
        drawn = draw_preview(dataset, arguments.preview) if arguments.preview is not None and not bad else 0
    if arguments.json:
        print(_as_json(summary, bad))
    else:
        print("\n".join(_as_text(summary)))
        if bad is not None:
            print(f"  checked      {counted(summary.records, 'record')}, {len(bad):,} bad")
        if pictures is not None and not pictures.features:
            print("  decoded      nothing: no picture in the sampled records")
        elif pictures is not None:
            names = _list(list(pictures.features))
            print(f"  decoded      {counted(pictures.pictures, 'picture')} of {names}, {len(pictures.bad):,} bad")
        if drawn:
            print(f"  preview      {counted(drawn, 'image')} in {arguments.preview}")
    for error in bad or ():
        print(f"emlio inspect: {error}", file=sys.stderr)
    return 1 if bad else 0


def _verify(dataset: Dataset) -> list[CorruptRecordError]:
    def check(number: int, advance: Callable[[int], None]) -> list[CorruptRecordError]:
        return list(bad_records(reader, number, advance))

    numbers, total = range(len(dataset.shards)), dataset.size_bytes
    with RandomReader(dataset) as reader:
        found = for_each_shard(numbers, check, label="checking", total_bytes=total, progress=True)
    return [error for errors in found for error in errors]


def _joined(bad: Sequence[CorruptRecordError], more: Sequence[CorruptRecordError]) -> list[CorruptRecordError]:
    """Return all bad records, each once, with the first reason."""
    found: dict[tuple[str, int], CorruptRecordError] = {}
    for error in (*bad, *more):
        found.setdefault((error.shard, error.record), error)
    return list(found.values())


def _as_json(summary: Summary, bad: list[CorruptRecordError] | None) -> str:
    facts = msgspec.to_builtins(summary)
    facts["bad_records"] = (
        None
        if bad is None
        else [
            {"shard": error.shard, "record": error.record, "offset": error.offset, "reason": str(error)}
            for error in bad
        ]
    )
    return msgspec.json.format(msgspec.json.encode(facts), indent=2).decode()


def _as_text(summary: Summary) -> Iterator[str]:
    sizes = summary.record_sizes
    yield summary.directory
    framed = summary.format == TFRECORD.format
    mapped = f", {'mapped' if summary.mapped else 'without mappings'}" if framed else ""
    yield f"  format       {summary.format}"
    yield f"  shards       {summary.shards:,} ({format_size(summary.size_bytes)}){mapped}"
    if summary.missing:
        yield f"  missing      {len(summary.missing):,}: {_list(list(summary.missing))}"
    yield f"  records      {summary.records:,}"
    figures = (("min", sizes.min), ("mean", sizes.mean), ("p50", sizes.p50), ("p99", sizes.p99), ("max", sizes.max))
    yield f"  record size  {'  '.join(f'{name} {format_size(value)}' for name, value in figures)}"
    yield f"  fingerprint  {summary.fingerprint}"
    if summary.features:
        source = "  (from a sample of records)" if summary.features_sampled else ""
        names = sorted(summary.features)
        yield f"  features     {_feature(names[0], summary.features[names[0]])}{source}"
        for name in names[1:]:
            yield f"               {_feature(name, summary.features[name])}"
    else:
        yield "  features     unknown: the sampled records are not tf.train.Example"
    if summary.advice:
        yield f"  advice       {_plain(summary.advice)}"
    if not framed:
        names = [f"{label} {name}" for label, name in (summary.label_names or {}).items()]
        # Without names nothing is known: labels may still be in the records.
        if names:
            yield f"  labels       {len(names):,}: {_list(names)}"
    elif summary.label_counts is None:
        yield "  labels       unknown: not in the mappings"
    else:
        called = summary.label_names or {}
        common = sorted(summary.label_counts.items(), key=lambda item: (-item[1], item[0]))
        shown = [f"{label}{f' {called[label]}' if label in called else ''}: {count:,}" for label, count in common]
        yield f"  labels       {len(shown):,}: {_list(shown)}"


def _feature(name: str, feature: FieldType) -> str:
    shape = "" if feature.shape is None else f" {list(feature.shape)}"
    return f"{_plain(name)}  {feature.kind}{shape}"


def _list(items: list[str]) -> str:
    more = f", and {len(items) - _SHOWN:,} more" if len(items) > _SHOWN else ""
    return ", ".join(_plain(item) for item in items[:_SHOWN]) + more


def _plain(text: str) -> str:
    """Return text from a file in a form that is safe for a terminal, without escape sequences."""
    return text if text.isprintable() else repr(text)
