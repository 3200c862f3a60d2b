"""Conversion from any source to shuffled, verified shards."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emlio.errors import DatasetError
from emlio.formats.tfrecord.mapping import ShardMapping
from emlio.index.parallel import Engine, ForEachShard, for_each_shard
from emlio.prepare.convert_options import ConvertOptions, default_workers
from emlio.prepare.elsewhere import Elsewhere, with_whole_paths
from emlio.prepare.recipes import has_keys, recipe_of
from emlio.prepare.sources.choice import guess_kind, open_source, plain_source, split_source, usual_name
from emlio.prepare.sources.record_source import Ignored, RecordSource
from emlio.prepare.targets.shard_set import Recipe, finished_shard, write_shards
from emlio.prepare.targets.tar_set import SampleKeys, TarSummary, finished_tar, write_tars
from emlio.prepare.targets.target import TARGETS, UNPACKED_NAME, clear_unfinished, remove_shards, sole_writer

__all__ = ["ConvertReport", "convert"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertReport:
    """The result of a conversion.

    Attributes:
        source_kind: the source's given or guessed format.
        records: in the dataset.
        size_bytes: of its shards.
        shards: how many there are.
        shards_found: how many of them an earlier run had finished.
        classes: how many different labels occur.
        ignored: the files of the source that are not of its format.
        skipped: items that were left out, each with the reason.
    """

    source_kind: str
    records: int
    size_bytes: int
    shards: int
    shards_found: int
    classes: int
    ignored: Ignored
    skipped: tuple[str, ...]


def convert(options: ConvertOptions, progress: bool = False, engine: Engine | None = None) -> ConvertReport:
    """Make a dataset; shards that an earlier run of the same conversion finished are kept.

    An interrupt takes effect within one record and leaves only complete shards.

    Args:
        options: the options.
        progress: show a line of progress.
        engine: where shards are written, on hosts that see the source and the target under the same paths; by default
            in this process.

    Raises:
        ConfigError: the options contradict each other or the target's content.
        DatasetError: the source, or none of its items, cannot be read, or the target cannot be written.
    """
    of_text = options.settings.tokenizer is not None
    path, given = split_source(options.source, options.source_options)
    kind = usual_name(options.source_kind or guess_kind(path, of_text=of_text))
    with sole_writer(options.out):
        if engine is not None:
            if not path.exists():
                raise DatasetError(f"source {path}: no such file or directory")
            options = with_whole_paths(options)
            path, plain = plain_source(path.absolute(), kind, options.out / UNPACKED_NAME, given)
            given = dict(plain)
        with closing(_open(options, path, kind, given)) as source:
            listing = source.listing
            recipe = recipe_of(
                options, kind, source, lambda shards: SampleKeys(options.out, shards) if has_keys(options) else None
            )
            if engine is None:
                shards, found = _write(options, recipe, for_each_shard, progress=progress)
            else:
                elsewhere = Elsewhere.of(options, path, kind, given, recipe, listing.fingerprint, engine)
                try:
                    shards, found = _write(options, recipe, engine.each(elsewhere), progress=progress)
                finally:
                    elsewhere.gate.close()
                    clear_unfinished(options.out)  # what lost hosts left, and those that were interrupted
                _check_finished(options, recipe)
        skipped = _skipped(options, len(shards))
        if not any(shard.records for shard in shards):
            remove_shards(options.out)
            raise DatasetError(
                f"source {options.source}: must have an item that can be read, all were skipped: "
                + "".join(skipped[:1])
            )
    labels = {label for shard in shards for label in shard.label_counts or ()}
    return ConvertReport(
        source_kind=kind,
        records=sum(shard.records for shard in shards),
        size_bytes=sum(shard.size_bytes for shard in shards),
        shards=len(shards),
        shards_found=found,
        classes=len(labels),
        ignored=listing.ignored,
        skipped=skipped,
    )


def _open(options: ConvertOptions, path: Path, kind: str, given: Mapping[str, str]) -> RecordSource:
    return open_source(path, kind, options.labels, options.out / UNPACKED_NAME, given, options.settings)


def _write(
    options: ConvertOptions, recipe: Recipe, each: ForEachShard[int, Any], *, progress: bool
) -> tuple[Sequence[ShardMapping | TarSummary], int]:
    write = write_tars if options.to == "wds" else write_shards
    return write(
        options.out,
        recipe,
        each,
        workers=options.workers if options.workers is not None else default_workers(),
        verify=True,
        force=options.force,
        progress=progress,
    )


def _check_finished(options: ConvertOptions, recipe: Recipe) -> None:
    finished = finished_tar if options.to == "wds" else finished_shard
    lost = [shard for shard in range(recipe.shards) if finished(options.out, shard, recipe.shards) is None]
    if lost:
        raise DatasetError(
            f"{options.out}: {len(lost)} shards were finished and are not whole any more, such as number {lost[0]}. Run the "
            "same command again"
        )


def _skipped(options: ConvertOptions, shards: int) -> tuple[str, ...]:
    lines: list[str] = []
    for shard in range(shards):
        path = options.out / TARGETS[options.to].skips_name(shard)
        if path.is_file():
            lines += path.read_text(encoding="utf-8", errors="replace").splitlines()
    return tuple(lines)
