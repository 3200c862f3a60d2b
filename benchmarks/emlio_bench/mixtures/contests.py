"""The contests of `emlio-bench mixtures`, one for each mixture, and who takes part.

Covers: contests, entries. Does not cover: loaders (emlio_bench.mixtures.subjects), running.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from emlio_bench.experiment.figures import rtt_text
from emlio_bench.mixtures.mix import Mix
from emlio_bench.mixtures.settings import RECORD_BYTES, MixturesSettings
from emlio_bench.mixtures.subjects import subjects
from emlio_bench.race.outcome import Contest, Entrant
from emlio_bench.race.records.corpus import Corpus
from emlio_bench.race.systems.entries import Entry, entered

__all__ = ["Field", "fields_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A contest with its entries.

    Attributes:
        mix: the mixture that is read.
        contest: the contest; it has the mixture's name.
        entries: those that can run; they take turns.
        unable: those that cannot, with the reasons.
    """

    mix: Mix
    contest: Contest
    entries: tuple[Entry, ...]
    unable: tuple[Entrant, ...]


def fields_of(settings: MixturesSettings, cache: Path, tell: Callable[[str], None]) -> list[Field]:
    """Return the contests, after making the other loaders' environments if need be.

    Args:
        settings: settings of the command.
        cache: folder of environments and programs.
        tell: called with progress messages.
    """
    found: list[Field] = []
    for mix in settings.chosen_mixes:
        corpus = Corpus(records=mix.samples, record_bytes=RECORD_BYTES)
        contest = Contest(
            name=mix.name,
            words=f"{_datasets(mix)}, read over a link of {rtt_text(settings.rtt)} in batches of {settings.batch}",
            corpus=corpus,
            rtt_ns=settings.rtt,
            batch=settings.batch,
            epochs=1,
            limit_ns=settings.limit,
        )
        entries, unable = entered(
            [
                one
                for one in subjects(mix, cache, every=settings.every)
                if one.name.partition(",")[0] in settings.subjects
            ],
            [settings.rtt],
            cache=cache,
            every=True,
            make=not settings.no_install,
            tell=tell,
        )
        found.append(Field(mix=mix, contest=contest, entries=entries, unable=unable))
    return found


def _datasets(mix: Mix) -> str:
    sizes = ", ".join(f"{size:,}" for size in mix.sizes)
    draws = ", ".join(f"{draw:,}" for draw in mix.draws)
    return (
        f"Three datasets of {sizes} records of 100 kB with weights {', '.join(map(str, mix.weights))}; an epoch of "
        f"{mix.samples:,} samples takes {draws} of them"
    )
