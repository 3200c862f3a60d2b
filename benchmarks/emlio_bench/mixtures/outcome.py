"""The outcome of `emlio-bench mixtures`: its results with their runs and their draws.

Covers: the values, the draws of a run, the exactness of a loader in a contest. Pure. Does not cover: measuring, tables
(emlio_bench.mixtures.report).
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import msgspec

from emlio_bench.harness.results import MEASURED, TURNS, Results
from emlio_bench.link.measurement.accuracy import LinkReport
from emlio_bench.mixtures.exactness import Deviations, Drawn, Draws, batch_deviations, early_repeats, window_deviations
from emlio_bench.mixtures.mix import Mix
from emlio_bench.race.outcome import Contest, Entrant, Run

__all__ = ["MixturesResults", "draws_of", "is_faultless", "without_ids"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MixturesResults(Results):
    """The results of a run.

    Attributes:
        mixes: mixtures in the order of running.
        window: number of samples in the windows in which proportions are counted.
        contests: contests of the mixtures, in the same order.
        entrants: all entrants, also those that could not run; the same name is in each contest.
        links: report of the emulated link, if it was measured.
        runs: runs in the order of their ends, without ids.
        draws: draws of each run that began an epoch.
    """

    benchmark: str = "mixtures"
    mixes: tuple[Mix, ...]
    window: int
    contests: tuple[Contest, ...]
    entrants: tuple[Entrant, ...]
    links: tuple[LinkReport, ...] = field(default=(), metadata=MEASURED)
    runs: tuple[Run, ...] = field(default=(), metadata=TURNS)
    draws: tuple[Draws, ...] = field(default=(), metadata=TURNS)

    def mix(self, contest: Contest) -> Mix:
        """Return the mixture of a contest."""
        return next(mix for mix in self.mixes if mix.name == contest.name)

    def subjects(self, contest: Contest) -> list[str]:
        """Return the subjects of a contest in the order of the entrants."""
        ran = {run.subject for run in self.runs if run.contest == contest.name}
        return [name for name in dict.fromkeys(entrant.subject for entrant in self.entrants) if name in ran]

    def of(self, contest: Contest, subject: str) -> list[Run]:
        """Return the runs of a subject in a contest that began an epoch, by round."""
        runs = [run for run in self.runs if (run.contest, run.subject) == (contest.name, subject) and run.epochs]
        return sorted(runs, key=lambda run: run.round)

    def drawn(self, contest: Contest, subject: str) -> list[Draws]:
        """Return the draws of a subject in a contest, by round."""
        found = [one for one in self.draws if (one.contest, one.subject) == (contest.name, subject)]
        return sorted(found, key=lambda one: one.round)

    def windows(self, contest: Contest, subject: str) -> list[Deviations]:
        """Return the deviations in windows of each round that has a window."""
        weights = self.mix(contest).weights
        return self._deviations(contest, subject, lambda drawn: window_deviations(drawn, weights, self.window))

    def batches(self, contest: Contest, subject: str) -> list[Deviations]:
        """Return the deviations in whole batches of each round that has one."""
        weights = self.mix(contest).weights
        return self._deviations(contest, subject, lambda drawn: batch_deviations(drawn, weights, contest.batch))

    def _deviations(self, contest: Contest, subject: str, count: Callable[[Drawn], Deviations]) -> list[Deviations]:
        counted = [count(one.drawn()) for one in self.drawn(contest, subject)]
        return [one for one in counted if len(one)]


def draws_of(run: Run, mix: Mix) -> Draws:
    """Return the draws of a run's first epoch.

    Raises:
        ConfigError: an id is of no dataset of the mixture.
    """
    epoch = run.epochs[0]
    ids = epoch.ids
    distinct = set(ids)
    return Draws(
        subject=run.subject,
        round=run.round,
        place=run.place,
        contest=run.contest,
        packed=Drawn(mix.sources(ids), epoch.batch_records).packed(),
        early=early_repeats(ids, mix),
        distinct=tuple(sum(one in of for one in distinct) for of in mix.ids),
    )


def without_ids(run: Run) -> Run:
    """Return a run without the ids of its epochs, which are long."""
    epochs = (msgspec.structs.replace(epoch, ids=(), batch_records=()) for epoch in run.epochs)
    return replace(run, epochs=tuple(epochs))


def is_faultless(draws: Draws, mix: Mix) -> bool:
    """Return whether an epoch has the samples of each dataset that its weight gives it, and none came again too early."""
    sources = draws.drawn().sources.tolist()
    counts = tuple(sources.count(number) for number in range(len(mix.sizes)))
    wanted = tuple(min(size, draw) for size, draw in zip(mix.sizes, mix.draws, strict=True))
    return counts == mix.draws and draws.distinct == wanted and not draws.early
