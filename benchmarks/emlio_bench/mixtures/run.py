"""`emlio-bench mixtures`: three datasets mixed in given proportions over a link: time and exactness, beside others."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from emlio_bench.harness.command import Command, World
from emlio_bench.harness.contest import Contest, Corpus
from emlio_bench.harness.options import flag, names, out
from emlio_bench.harness.report import Part, Table
from emlio_bench.harness.results import Results, rtt_text
from emlio_bench.harness.spread import spread, text
from emlio_bench.mixtures.mix import (
    BATCH,
    DISTINCT,
    EARLY,
    MIX_NAMES,
    STEP,
    WEIGHTS,
    WINDOW,
    Mix,
    mix_of,
    values_of_mix,
    wrong_mix,
)
from emlio_bench.mixtures.subjects import OURS, SUBJECTS, subjects
from emlio_bench.race.needs.environments import cache_folder
from emlio_bench.race.report.standing import Standing
from emlio_bench.race.run.fields import FieldsSettings, draw_fields, fields_parts, run_fields, times_table
from emlio_bench.race.run.turns import Field
from emlio_bench.race.systems.entries import entered

__all__ = ["COMMAND", "MixturesSettings", "run_mixtures"]

_RECORD_BYTES: Final = 100_000
_TINY: Final = 4 * STEP
_READING: Final = (
    "An epoch counts from before the loader's constructor, imports done, to its last batch; the loader's host has no files of "
    "an earlier run. Median (least..most) over rounds, in which all take turns. A deviation is the number of records of a "
    "dataset in a window or a batch, minus its weight times the samples there; of all datasets and windows, the largest. A "
    "window begins at each sample. A record came too early if it came again before all records of its dataset had come."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MixturesSettings(FieldsSettings):
    """`emlio-bench mixtures`."""

    mixes: tuple[str, ...] = names(
        tuple(MIX_NAMES),
        "mixtures to read, all with weights 0.6, 0.3 and 0.1: once has datasets with sizes in these proportions, again has "
        "datasets of one size, so that the first is read 1.8 times in an epoch",
    )
    subjects: tuple[str, ...] = names(SUBJECTS, "loaders that take turns")
    every: bool = flag("also read with all other settings of the other loaders in the race, to see which is their best")
    out: Path = out("emlio-mixtures")

    @property
    def batch(self) -> int:
        """Records in a batch."""
        return 16 if self.tiny else 64

    @property
    def window(self) -> int:
        """Samples in the windows in which proportions are counted."""
        return 50 if self.tiny else 1000

    @property
    def chosen_mixes(self) -> tuple[Mix, ...]:
        """The mixtures."""
        records = max(self.records(_RECORD_BYTES, _TINY) // STEP, 1) * STEP
        return tuple(mix_of(MIX_NAMES[name], records) for name in self.mixes)


def run_mixtures(settings: MixturesSettings, world: World) -> Results:
    """Run all rounds."""
    mixes = {mix.name: mix for mix in settings.chosen_mixes}
    cache = cache_folder(settings.cache, world.environment)
    fields = [_field(settings, mix, cache, world) for mix in mixes.values()]
    told = {"mixes": ",".join(settings.mixes), "batch": settings.batch, "window": settings.window}
    return run_fields(
        "mixtures",
        fields,
        settings,
        world,
        told,
        look=lambda contest, heard: values_of_mix(heard.epochs[0], mixes[contest.name], contest.batch, settings.window),
        wrong=lambda run: wrong_mix(run, mixes[run.scenario]),
    )


def _field(settings: MixturesSettings, mix: Mix, cache: Path, world: World) -> Field:
    sizes, draws = (", ".join(f"{one:,}" for one in of) for of in (mix.sizes, mix.draws))
    contest = Contest(
        name=mix.name,
        words=f"Three datasets of {sizes} records of 100 kB with weights {', '.join(map(str, mix.weights))}; an epoch of "
        f"{mix.samples:,} samples takes {draws} of them, over a link of {rtt_text(settings.rtt)}",
        corpus=Corpus(records=mix.samples, record_bytes=_RECORD_BYTES),
        rtt_ns=settings.rtt,
        batch=settings.batch,
        epochs=1,
        limit_ns=settings.limit,
    )
    chosen = (
        one for one in subjects(mix, cache, every=settings.every) if one.name.partition(",")[0] in settings.subjects
    )
    entries, unable = entered(
        chosen, [settings.rtt], cache=cache, every=True, make=not settings.no_install, tell=world.tell
    )
    return Field(contest=contest, entries=entries, unable=unable)


def mixtures_parts(results: Results) -> tuple[Part, ...]:
    """Return the report."""

    def tables(rows: Sequence[Standing]) -> tuple[Table, ...]:
        ours = next((row for row in rows if row.entrant.subject == OURS), None)
        times = times_table(rows, lambda row: ours if row is not ours else None, "EMLIO / it", inverse=True)
        return times, _exactness(rows)

    return fields_parts(results, _READING, tables)


def _exactness(rows: Sequence[Standing]) -> Table:
    quantities = (WINDOW, BATCH, DISTINCT, EARLY)
    return Table(
        title=f"Records of a dataset too many or too few, weights {', '.join(map(str, WEIGHTS))}",
        header=("loader", *quantities),
        rows=tuple((row.entrant.subject, *(_cell(row, quantity) for quantity in quantities)) for row in rows),
    )


def _cell(row: Standing, quantity: str) -> str:
    found = [run.values[quantity] for run in row.runs if quantity in run.values]
    return text(spread(found)) if found else "-"


def _draw(results: Results) -> Any:
    return draw_fields(results, WINDOW, f"{WINDOW}: records")


COMMAND: Final = Command(
    name="mixtures",
    settings=MixturesSettings,
    run=run_mixtures,
    text="three datasets mixed in given proportions over a long link, by this loader and others: time and exactness",
    parts=mixtures_parts,
    draw=_draw,
    keeps=True,
)
