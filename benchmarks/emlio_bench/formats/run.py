"""`emlio-bench formats`: the same records in several formats, served without conversion, and beside the formats' own loaders."""

import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from emlio_bench.formats.contests import BESIDE, FormatsSettings, beside_field, form_fields, pairs
from emlio_bench.formats.subjects import ServedForm, ready_once
from emlio_bench.harness.command import Command, World
from emlio_bench.harness.report import Part, Table
from emlio_bench.harness.results import Figure, Results, figure
from emlio_bench.race.needs.environments import cache_folder
from emlio_bench.race.records.stored_forms import PICTURE_FORMS, TOKEN_FORMS
from emlio_bench.race.report.standing import Standing
from emlio_bench.race.run.fields import draw_fields, fields_parts, run_fields, times_table
from emlio_bench.race.run.one_machine import warm
from emlio_bench.race.run.turns import Field

__all__ = ["COMMAND", "run_formats"]

_FIRSTS: Final = (PICTURE_FORMS[0].name, TOKEN_FORMS[0].name)
_READING: Final = (
    "An epoch counts from before the loader's constructor, imports done, to its last batch; the loader's host meets the daemon "
    "for the first time. Median (least..most) over rounds, in which all take turns; ratios are of runs in the same round. CPU "
    "seconds are of all processes of a side. Beside: each pair reads the same files, WebDataset and Hugging Face datasets over "
    "HTTP, MosaicML Streaming from an S3 server, PyTorch's DataLoader over sshfs, EMLIO from its daemon."
)


def run_formats(settings: FormatsSettings, world: World) -> Results:
    """Run all rounds."""
    fields = form_fields(settings)
    if settings.beside:
        fields.append(beside_field(settings, cache_folder(settings.cache, world.environment), world.tell))
    told = {"formats": ",".join(settings.formats), "beside": settings.beside}
    return run_fields("formats", fields, settings, world, told, first=_starts)


def _starts(fields: Sequence[Field], prepared: Mapping[tuple[str, str], Path]) -> Iterator[Figure]:
    """Yield the seconds of a daemon's first start with a folder, which indexes it, and of the next."""
    seen: set[str] = set()
    for field in fields:
        for entry in field.entries:
            system = entry.system
            if not isinstance(system, ServedForm) or system.name in seen:
                continue
            seen.add(system.name)
            place = prepared[field.contest.name, system.name]
            warm(place)
            unseen = place.with_name(f"{place.name}.unseen")
            shutil.rmtree(unseen, ignore_errors=True)
            try:
                copy = unseen / "data"
                shutil.copytree(place, copy, copy_function=os.link, ignore=_left_by_daemons)
                for which in ("first", "next"):
                    begun_ns = time.monotonic_ns()
                    with ready_once(copy, system.options(place)):
                        seconds = (time.monotonic_ns() - begun_ns) / 1e9
                    yield figure(f"{which} start, {system.name}", "s", (seconds,))
            finally:
                shutil.rmtree(unseen, ignore_errors=True)


def _left_by_daemons(folder: str, found: list[str]) -> set[str]:
    return {name for name in found if ".tfrecord." in name or name.startswith("mapping_shard_")}


def formats_parts(results: Results) -> tuple[Part, ...]:
    """Return the report."""
    ours_of = {other.name: ours.name for other, ours in pairs(Path())}

    def tables(rows: Sequence[Standing]) -> tuple[Table, ...]:
        named = {row.entrant.subject: row for row in rows}
        if rows[0].contest.name == BESIDE:
            return (
                times_table(
                    rows, lambda row: named.get(ours_of.get(row.entrant.subject, "")), "it / EMLIO on the same files"
                ),
            )
        first = next((named[name] for name in _FIRSTS if name in named), None)
        words = f"/ {first.entrant.subject}" if first is not None else ""
        return (times_table(rows, lambda row: first if row is not first else None, words),)

    return fields_parts(results, _READING, tables)


COMMAND: Final = Command(
    name="formats",
    settings=FormatsSettings,
    run=run_formats,
    text="the same records in several formats, served without conversion, over loopback and a long link",
    parts=formats_parts,
    draw=draw_fields,
    keeps=True,
)
