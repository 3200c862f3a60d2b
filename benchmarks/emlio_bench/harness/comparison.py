"""The comparison of two runs of the same benchmark, to show the effect of a change of software."""

from typing import Final

from emlio.errors import ConfigError
from emlio_bench.harness.environment import Environment
from emlio_bench.harness.results import Results, unlike
from emlio_bench.harness.spread import Spread, Value, ratio, spread, text
from emlio_bench.harness.table import Table

__all__ = ["NO_DIFFERENCE", "compare"]

NO_DIFFERENCE: Final = "no difference to be seen"
"""The judgement of figures that could be of the same software."""

_VERSIONS: Final = ("emlio", "commit", "python", "pyzmq", "libzmq", "numpy", "iperf3")
_MAY_DIFFER: Final = frozenset((*_VERSIONS, "entrants", "repeats", "rounds"))
"""The versions, which are what is compared, and what only changes the number of runs."""

_READING: Final = (
    "Median (least..most). A difference is told only where the two do not overlap; the extremes of a ratio are the\n"
    "furthest that any two runs allow."
)


def compare(first: Results, second: Results) -> str:
    """Return a table of all values and figures that both runs have.

    Raises:
        ConfigError: the runs are not comparable; the message names the differences.
    """
    differences = unlike(first, second, but=_MAY_DIFFER)
    if differences:
        raise ConfigError(
            f"only runs of the same contests on the same machine may be compared, these differ in {'; '.join(differences)}"
        )
    ours, theirs = _spreads(first), _spreads(second)
    table = Table(
        header=("", "figure", "A", "B", "B / A", ""),
        rows=tuple(_row(*key, of, theirs[key]) for key, of in ours.items() if key in theirs),
        names=2,
    )
    names = [dict.fromkeys(name for name, _ in own) for own in (ours, theirs)]
    alone = [
        f"only {letter} has {name}"
        for letter, own, others in (("A", *names), ("B", *reversed(names)))
        for name in own
        if name not in others
    ]
    parts = (
        f"A -> B: {_changed(first.environment, second.environment)}",
        *((table.text(), _READING) if table.rows else ("They have no figure in common.",)),
        "\n".join(alone),
    )
    return "\n\n".join(filter(None, parts))


def _spreads(results: Results) -> dict[tuple[str, str], Spread]:
    values: dict[tuple[str, str], list[Value]] = {}
    for run in results.runs:
        name = ", ".join(filter(None, (run.scenario, run.subject, run.setting)))
        for quantity, value in run.values.items():
            values.setdefault((name, quantity), []).append(value)
    found = {key: spread(of) for key, of in values.items() if len({one.beyond for one in of} - {""}) < 2}
    return found | {(one.name, one.unit): spread(one.values) for one in results.figures}


def _changed(first: Environment, second: Environment) -> str:
    values = [(name, getattr(first, name), getattr(second, name)) for name in _VERSIONS]
    changed = [f"{name}: {old or '?'} -> {new or '?'}" for name, old, new in values if old != new]
    return "; ".join(changed) or "the same software"


def _row(name: str, quantity: str, first: Spread, second: Spread) -> tuple[str, ...]:
    known = not first.beyond and first.least > 0
    times = text(ratio(second, first) if known else None)
    return name, quantity, text(first), text(second), times, _judgement(first, second)


def _judgement(first: Spread, second: Spread) -> str:
    if first.beyond or second.beyond:
        return "some runs were cut"
    if first.least <= second.most and second.least <= first.most:
        return NO_DIFFERENCE
    if min(first.count, second.count) < 2:
        return "one run is too few to tell"
    return "B is more" if second.median > first.median else "B is less"
