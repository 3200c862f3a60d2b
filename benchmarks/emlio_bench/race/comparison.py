"""The comparison of two runs, to show the effect of a change of software.

Covers: whether the runs are comparable, ratios of their figures, when a difference is visible, the
table. Pure. Does not cover: reading the runs (emlio_bench.race.reading_commands).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from emlio.errors import ConfigError
from emlio.units import format_size
from emlio_bench.harness.environment import Environment
from emlio_bench.harness.report import align
from emlio_bench.harness.results import Results
from emlio_bench.harness.summary import Spread, summarise
from emlio_bench.race.censored_range import Extent, Seen, extent, number, ratio, text
from emlio_bench.race.outcome import Race
from emlio_bench.race.quantity import MEANINGS, Quantity
from emlio_bench.race.standing import Standing, standings

__all__ = ["NO_DIFFERENCE", "Pair", "compare_races", "compare_results"]

NO_DIFFERENCE: Final = "no difference to be seen"

_MACHINE: Final = ("cpu", "cores", "kernel", "tcp_wmem", "tcp_rmem", "tcp_congestion_control")
_VERSIONS: Final = ("emlio", "commit", "python", "pyzmq", "libzmq", "numpy", "iperf3")
_MAY_DIFFER: Final = ("repeats", "rounds")
"""Settings that only change the number of runs."""

_COMPARED: Final = (
    Quantity.FIRST_EPOCH,
    Quantity.LATER_EPOCHS,
    Quantity.FIRST_BATCH,
    Quantity.BIT_RATE,
    Quantity.TRAINING_CPU,
    Quantity.STORAGE_CPU,
    Quantity.PEAK_MEMORY,
    Quantity.ENERGY,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A figure of both runs.

    Attributes:
        name: subject of the figure.
        words: quantity, with its unit.
        first: value in A.
        second: value in B.
        less: whether less is better; None if this is unknown.
        form: formats one value.
    """

    name: str
    words: str
    first: Extent
    second: Extent
    less: bool | None
    form: Callable[[float], str] = number

    @property
    def judgement(self) -> str:
        """Judgement of B in words."""
        if self.first.beyond or self.second.beyond:
            return self._of_cut()
        if self.first.least <= self.second.most and self.second.least <= self.first.most:
            return NO_DIFFERENCE
        if min(self.first.count, self.second.count) < 2:
            return "one run is too few to tell"
        return self._better(more=self.second.median > self.first.median)

    @property
    def ratio(self) -> Extent | None:
        """B divided by A; None if it cannot be computed."""
        return None if self.first.beyond or self.first.least <= 0 else ratio(self.second, self.first)

    def _of_cut(self) -> str:
        first, second = self.first, self.second
        if first.bound and second.bound:
            return "both were cut"
        if first.bound or second.bound:
            bound, known = (first, second) if first.bound else (second, first)
            told = known.most < bound.median if bound.sign == ">" else known.least > bound.median
            return self._better(more=second.bound == (bound.sign == ">")) if told else "a cut run says too little"
        return "some runs were cut"

    def _better(self, *, more: bool) -> str:
        if self.less is None:
            return "more" if more else "less"
        return "worse" if more == self.less else "better"


def compare_races(first: Race, second: Race) -> str:
    """Return a table of all subjects that ran in both races.

    Raises:
        ConfigError: the races are not comparable; the message names the differences.
    """
    differences = [
        *_environment_differences(first.environment, second.environment),
        *_settings_differences(first, second),
    ]
    if set(first.contests) != set(second.contests):
        names = sorted({contest.name for contest in set(first.contests) ^ set(second.contests)})
        differences.append(f"contests {', '.join(names)}")
    links = [{name: (link.kind, link.tuned) for name, link in race.links} for race in (first, second)]
    differences += [
        f"link of {name} {links[0][name]} and {links[1][name]}"
        for name in links[0]
        if name in links[1] and links[0][name] != links[1][name]
    ]
    _refuse(differences)
    rows = [{_key(row): row for row in standings(race)} for race in (first, second)]
    pairs = [pair for key, row in rows[0].items() if key in rows[1] for pair in _race_pairs(row, rows[1][key])]
    alone = [
        f"only {letter} has {', '.join(key)}"
        for letter, own, other in (("A", *rows), ("B", *reversed(rows)))
        for key in own
        if key not in other
    ]
    return _render(first.environment, second.environment, pairs, alone)


def compare_results(first: Results, second: Results) -> str:
    """Return the table of two runs of any other benchmark. See `compare_races`."""
    differences = [
        *_environment_differences(first.environment, second.environment),
        *_settings_differences(first, second),
    ]
    if first.benchmark != second.benchmark:
        differences.insert(0, f"benchmark {first.benchmark!r} and {second.benchmark!r}")
    _refuse(differences)
    rows = [{(row.scenario, row.subject): row for row in summarise(results)} for results in (first, second)]
    pairs: list[Pair] = []
    for key, row in rows[0].items():
        other = rows[1].get(key)
        if other is not None:
            counts = row.rounds, other.rounds
            name = ", ".join(key)
            pairs += [
                Pair(name=name, words=words, first=_of(one, counts[0]), second=_of(two, counts[1]), less=less)
                for words, one, two, less in (
                    ("bytes/s", row.bytes_per_s, other.bytes_per_s, False),
                    ("sender, CPU s/GB", row.sender_s_per_gb, other.sender_s_per_gb, True),
                    ("receiver, CPU s/GB", row.receiver_s_per_gb, other.receiver_s_per_gb, True),
                    ("first batch, ms", row.first_batch_ms, other.first_batch_ms, True),
                )
                if one is not None and two is not None
            ]
    figures = {(figure.name, figure.unit): figure for figure in second.figures}
    for figure in first.figures:
        fellow = figures.get((figure.name, figure.unit))
        if fellow is not None:
            values = [extent([Seen(value=value) for value in one.values]) for one in (figure, fellow)]
            pairs.append(Pair(name=figure.name, words=figure.unit, first=values[0], second=values[1], less=None))
    names = [
        [*(", ".join(key) for key in own), *(figure.name for figure in one.figures)]
        for one, own in ((first, rows[0]), (second, rows[1]))
    ]
    alone = [
        f"only {letter} has {name}"
        for letter, own, others in (("A", *names), ("B", *reversed(names)))
        for name in own
        if name not in others
    ]
    return _render(first.environment, second.environment, pairs, alone)


def _of(spread: Spread, count: int) -> Extent:
    return Extent(median=spread.median, least=spread.least, most=spread.most, count=count)


def _key(row: Standing) -> tuple[str, str, str]:
    return row.contest.name, row.entrant.subject, row.entrant.setting


def _race_pairs(first: Standing, second: Standing) -> Iterator[Pair]:
    for quantity in _COMPARED:
        one, two = first.of(quantity), second.of(quantity)
        if one is not None and two is not None:
            meaning = MEANINGS[quantity]
            form = format_size if meaning.unit == "B" else number
            unit = "" if meaning.unit == "B" else f", {meaning.unit}"
            yield Pair(
                name=", ".join(_key(first)),
                words=f"{quantity.value}{unit}",
                first=one,
                second=two,
                less=meaning.less,
                form=form,
            )


def _environment_differences(first: Environment, second: Environment) -> list[str]:
    found = [
        f"{name} {getattr(first, name)!r} and {getattr(second, name)!r}"
        for name in _MACHINE
        if getattr(first, name) != getattr(second, name)
    ]
    sizes = format_size(first.memory_bytes), format_size(second.memory_bytes)
    return [*found, f"memory {sizes[0]} and {sizes[1]}"] if sizes[0] != sizes[1] else found


def _settings_differences(first: Any, second: Any) -> list[str]:
    told = [{name: value for name, value in one.settings if name not in _MAY_DIFFER} for one in (first, second)]
    names = dict.fromkeys([*told[0], *told[1]])
    return [
        f"setting {name} {told[0].get(name)!r} and {told[1].get(name)!r}"
        for name in names
        if told[0].get(name) != told[1].get(name)
    ]


def _refuse(differences: Sequence[str]) -> None:
    if differences:
        raise ConfigError(
            f"only runs of the same contests on the same machine may be compared, these differ in {'; '.join(differences)}"
        )


def _render(first: Environment, second: Environment, pairs: Sequence[Pair], alone: Sequence[str]) -> str:
    changed = [
        f"{name}: {getattr(first, name) or '?'} -> {getattr(second, name) or '?'}"
        for name in _VERSIONS
        if getattr(first, name) != getattr(second, name)
    ]
    parts = ["A -> B: " + ("; ".join(changed) if changed else "the same software")]
    if pairs:
        table = [("", "figure", "A", "B", "B / A", "B is")]
        table += [
            (
                pair.name,
                pair.words,
                text(pair.first, pair.form),
                text(pair.second, pair.form),
                text(pair.ratio),
                pair.judgement,
            )
            for pair in pairs
        ]
        parts.append(align(table))
        parts.append(
            "Median (least..most). A difference is told only where the two do not overlap; the extremes of a ratio are the\n"
            "furthest that any two runs allow."
        )
    else:
        parts.append("They have no figure in common.")
    return "\n\n".join([*parts, *(["\n".join(alone)] if alone else [])])
