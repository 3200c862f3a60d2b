"""The comparison of two runs, to show the effect of a change of software.

Covers: whether the runs are comparable, ratios of their figures, when a difference is visible, the
table. Pure. Does not cover: the figures of a race (emlio_bench.race.report.standing).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, TypeVar

from emlio.errors import ConfigError
from emlio_bench.harness.environment import Environment
from emlio_bench.harness.page import Part, text_page
from emlio_bench.harness.results import Results, unlike
from emlio_bench.harness.spread import Spread, number, ratio, spread, text
from emlio_bench.harness.summary import summarise
from emlio_bench.harness.table import Table

__all__ = ["NO_DIFFERENCE", "Compared", "compare", "compared"]

_Results = TypeVar("_Results", bound=Results)

NO_DIFFERENCE: Final = "no difference to be seen"

_VERSIONS: Final = ("emlio", "commit", "python", "pyzmq", "libzmq", "numpy", "iperf3")
_MAY_DIFFER: Final = frozenset((*_VERSIONS, "entrants", "repeats", "rounds"))
"""The versions, which are what is compared, and what only changes the number of runs."""

_READING: Final = (
    "Median (least..most). A difference is told only where the two do not overlap; the extremes of a ratio are the\n"
    "furthest that any two runs allow."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A figure of one run.

    Attributes:
        name: subject of the figure.
        words: quantity, with its unit.
        of: values.
        less: whether less is better; None if this is unknown.
        form: formats one value.
    """

    name: str
    words: str
    of: Spread
    less: bool | None = None
    form: Callable[[float], str] = number


def compared(results: Results) -> list[Compared]:
    """Return the figures by which a run is compared with another."""
    found: list[Compared] = []
    for row in summarise(results):
        quantities = (
            ("bytes/s", row.bytes_per_s, False),
            ("sender, CPU s/GB", row.sender_s_per_gb, True),
            ("receiver, CPU s/GB", row.receiver_s_per_gb, True),
            ("first batch, ms", row.first_batch_ms, True),
        )
        name = f"{row.scenario}, {row.subject}"
        found += [
            Compared(name=name, words=words, of=of, less=less) for words, of, less in quantities if of is not None
        ]
    return found + [Compared(name=one.name, words=one.unit, of=spread(one.values)) for one in results.figures]


def compare(first: _Results, second: _Results, of: Callable[[_Results], Iterable[Compared]]) -> str:
    """Return a table of all figures that both runs have.

    Args:
        first: results of run A.
        second: results of run B.
        of: returns the figures of a run.

    Raises:
        ConfigError: the runs are not comparable; the message names the differences.
    """
    differences = unlike(first, second, but=_MAY_DIFFER)
    if differences:
        raise ConfigError(
            f"only runs of the same contests on the same machine may be compared, these differ in {'; '.join(differences)}"
        )
    ours, theirs = ({(one.name, one.words): one for one in of(run)} for run in (first, second))
    rows = tuple(_row(one, theirs[key]) for key, one in ours.items() if key in theirs)
    names = [dict.fromkeys(name for name, _ in own) for own in (ours, theirs)]
    alone = [
        f"only {letter} has {name}"
        for letter, own, others in (("A", *names), ("B", *reversed(names)))
        for name in own
        if name not in others
    ]
    table = Table(header=("", "figure", "A", "B", "B / A", "B is"), rows=rows, names=2)
    parts = (
        Part(text=f"A -> B: {_changed(first.environment, second.environment)}"),
        Part(tables=(table,) if rows else ()),
        Part(text=_READING if rows else "They have no figure in common."),
        Part(text="\n".join(alone)),
    )
    return text_page(parts)


def _changed(first: Environment, second: Environment) -> str:
    values = [(name, getattr(first, name), getattr(second, name)) for name in _VERSIONS]
    changed = [f"{name}: {old or '?'} -> {new or '?'}" for name, old, new in values if old != new]
    return "; ".join(changed) or "the same software"


def _row(first: Compared, second: Compared) -> tuple[str, ...]:
    known = not first.of.beyond and first.of.least > 0
    return (
        first.name,
        first.words,
        text(first.of, first.form),
        text(second.of, first.form),
        text(ratio(second.of, first.of) if known else None),
        _judgement(first.of, second.of, less=first.less),
    )


def _judgement(first: Spread, second: Spread, *, less: bool | None) -> str:
    """Return a judgement of B in words."""
    if first.beyond or second.beyond:
        return _judgement_of_cut(first, second, less=less)
    if first.least <= second.most and second.least <= first.most:
        return NO_DIFFERENCE
    if min(first.count, second.count) < 2:
        return "one run is too few to tell"
    return _better(less, more=second.median > first.median)


def _judgement_of_cut(first: Spread, second: Spread, *, less: bool | None) -> str:
    if first.bound and second.bound:
        return "both were cut"
    if first.bound or second.bound:
        bound, known = (first, second) if first.bound else (second, first)
        told = known.most < bound.median if bound.sign == ">" else known.least > bound.median
        return _better(less, more=second.bound == (bound.sign == ">")) if told else "a cut run says too little"
    return "some runs were cut"


def _better(less: bool | None, *, more: bool) -> str:
    if less is None:
        return "more" if more else "less"
    return "worse" if more == less else "better"
