"""The table of energy: host by host and domain by domain, at rest and above it.

A loader that waits keeps two hosts running that do nothing: its energy at rest grows with its
epoch. That is the first of the two terms shown; the second is the energy of the work itself. Where both
hosts are one machine, each has its power at rest.

Covers: the table of one contest. Does not cover: dividing the energy between the hosts
(emlio_bench.race.run.host_energy).
"""

from collections.abc import Callable, Sequence
from typing import Final

from emlio.energy.values.domain import Method
from emlio_bench.harness.spread import Seen, Spread, spread, text
from emlio_bench.harness.table import Table
from emlio_bench.race.outcome import HostEnergy, HostName
from emlio_bench.race.report.energy_ratio import energy_ratio
from emlio_bench.race.report.standing import Standing

__all__ = ["energy_table", "joules_an_epoch", "method_words"]

_HOSTS: Final[tuple[HostName, ...]] = ("compute", "storage")
_NAMES: Final = {"cpu": "CPU", "dram": "DRAM", "gpu": "GPU"}


def energy_table(rows: Sequence[Standing]) -> Table:
    """Return the table; it has no rows if the energy of no host is known."""
    known = [row for row in rows if any(_hosts(row))]
    parts: list[tuple[HostName, str]] = [
        (host, domain)
        for host in _HOSTS
        for domain in _NAMES
        if any((one.host, one.domain) == (host, domain) for row in known for of in _hosts(row) for one in of)
    ]
    ours = next((row for row in known if row.is_ours), None)
    return Table(
        title="Energy of an epoch in joules: at rest + above",
        header=(
            "system",
            "setting",
            "both hosts",
            "at rest",
            "above",
            "mJ a record",
            "times ours, and more at rest + above",
            *(f"{host}, {_NAMES[domain]}" for host, domain in parts),
            "method",
        ),
        rows=tuple(
            (
                row.entrant.subject,
                row.entrant.setting,
                text(joules_an_epoch(row)),
                text(joules_an_epoch(row, of=_idle), spread=False),
                text(joules_an_epoch(row, of=_active), spread=False),
                text(_scaled(joules_an_epoch(row), 1000 / row.contest.corpus.records), spread=False),
                _beside(row, ours),
                *(_two_terms(row, host, domain) for host, domain in parts),
                ", ".join(_methods(row)),
            )
            for row in known
        ),
        names=2,
        ours=frozenset(number for number, row in enumerate(known) if row.is_ours),
    )


def joules_an_epoch(
    row: Standing,
    *,
    of: Callable[[HostEnergy], float] | None = None,
    host: HostName | None = None,
    domain: str | None = None,
) -> Spread | None:
    """Return the energy of both hosts in an epoch; None if it is unknown.

    Args:
        row: an entrant in a contest.
        of: the part of it; None for all.
        host: only this host.
        domain: only this domain.
    """
    part = of or _whole
    seen: list[Seen] = []
    for run in row.runs:
        if run.energy is None or not run.energy.hosts or not run.epochs:
            continue
        chosen = [
            one for one in run.energy.hosts if host in (None, one.host) and (domain is None or one.domain == domain)
        ]
        if chosen:
            seen.append(Seen(value=sum(map(part, chosen)) / len(run.epochs), beyond=">" if run.cut else ""))
    return spread(seen) if seen else None


def method_words(method: str) -> str:
    """Return the method of a figure for a reader: what was read from a counter is "counted"."""
    return method.replace(Method.MEASURED, "counted")


def _whole(one: HostEnergy) -> float:
    return one.idle_joules + one.active_joules


def _idle(one: HostEnergy) -> float:
    return one.idle_joules


def _active(one: HostEnergy) -> float:
    return one.active_joules


def _hosts(row: Standing) -> list[tuple[HostEnergy, ...]]:
    return [run.energy.hosts for run in row.runs if run.energy is not None and run.energy.hosts]


def _two_terms(row: Standing, host: HostName, domain: str) -> str:
    idle = joules_an_epoch(row, of=_idle, host=host, domain=domain)
    active = joules_an_epoch(row, of=_active, host=host, domain=domain)
    if idle is None or active is None:
        return "-"
    return f"{text(idle, spread=False)} + {text(active, spread=False)}"


def _beside(row: Standing, ours: Standing | None) -> str:
    if ours is None or row is ours:
        return "-"
    found = energy_ratio(row, ours)
    return "-" if found is None else found.text


def _methods(row: Standing) -> list[str]:
    return list(dict.fromkeys(f"{_NAMES[one.domain]} {method_words(one.method)}" for of in _hosts(row) for one in of))


def _scaled(of: Spread | None, factor: float) -> Spread | None:
    return None if of is None else of.scaled(factor)
