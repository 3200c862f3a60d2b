"""The figures of quiet and attacked spans, and their table.

Covers: the number of records at a time, ratios of adjacent spans, bounds, text for people. Pure.
Does not cover: measuring spans (emlio_bench.attacks.stage), the plot
(emlio_bench.attacks.plot).
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from emlio.errors import ConfigError
from emlio_bench.attacks.rank import Tick
from emlio_bench.harness.report import align, missed_bounds, render
from emlio_bench.harness.results import Figure, Results
from emlio_bench.harness.summary import spread

__all__ = ["LEAST_KEPT", "Span", "attack_figures", "kept", "kept_figures", "records_until", "render_attacks"]

LEAST_KEPT: Final = 0.9
"""The share of its speed that a rank must keep, in the median."""

_KEPT: Final = "speed kept"
_WIDE: Final = 0.2
_FEW: Final = 5
_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """The measurements of one span.

    Attributes:
        attacked: whether there was an attack.
        records_per_s: records that the rank received per second, by the rank's clock.
        longest_wait_s: longest wait of the rank for a batch.
        daemon_s: processor seconds of the daemon.
        rank_s: processor seconds of the rank.
        attacker_s: processor seconds of the attacker.
        daemon_bytes: most memory of the daemon's own.
        acts_per_s: acts of the attacker per second.
    """

    attacked: bool
    records_per_s: float
    longest_wait_s: float
    daemon_s: float
    rank_s: float
    attacker_s: float
    daemon_bytes: int
    acts_per_s: float = 0.0


def records_until(ticks: Sequence[Tick], at_ns: int) -> float:
    """Return the number of records received by a time, interpolated between two ticks."""
    place = bisect_left(ticks, at_ns, key=lambda tick: tick.at_ns)
    if place == len(ticks) or (not place and ticks[0].at_ns > at_ns):
        raise ConfigError(f"the rank must have told how far it was before and after {at_ns} ns")
    after = ticks[place]
    if after.at_ns == at_ns:
        return after.records
    before = ticks[place - 1]
    return before.records + (after.records - before.records) * (at_ns - before.at_ns) / (after.at_ns - before.at_ns)


def kept(spans: Sequence[Span]) -> tuple[float, ...]:
    """Return the speed of each attacked span, divided by the mean of its two quiet neighbours."""
    if len(spans) % 2 == 0 or any(span.attacked != bool(place % 2) for place, span in enumerate(spans)):
        raise ConfigError(f"spans must be quiet and attacked in turns, and end quiet, got {len(spans)}")
    rates = [span.records_per_s for span in spans]
    return tuple(2 * rates[place] / (rates[place - 1] + rates[place + 1]) for place in range(1, len(rates), 2))


def attack_figures(name: str, act: str, spans: Sequence[Span], *, bound: bool) -> tuple[Figure, ...]:
    """Return all figures of one attack.

    Args:
        name: name of the attack, for people.
        act: name of the attacker's acts, in the plural.
        spans: quiet and attacked spans in turns.
        bound: whether the rank must keep its speed.
    """
    quiet, attacked = spans[::2], spans[1::2]
    least = LEAST_KEPT if bound else None
    figures = [Figure(name=f"{name}: {_KEPT}", unit="of quiet", values=kept(spans), at_least=least)]
    for when, chosen in (("quiet", quiet), ("attacked", attacked)):
        figures += [
            _figure(f"{name}: speed, {when}", "records/s", [span.records_per_s for span in chosen]),
            _figure(f"{name}: longest wait, {when}", "s", [span.longest_wait_s for span in chosen]),
            _figure(f"{name}: daemon's CPU, {when}", "s per span", [span.daemon_s for span in chosen]),
            _figure(f"{name}: rank's CPU, {when}", "s per span", [span.rank_s for span in chosen]),
        ]
    return (
        *figures,
        _figure(f"{name}: attacker's CPU", "s per span", [span.attacker_s for span in attacked]),
        _figure(f"{name}: acts", f"{act}/s", [span.acts_per_s for span in attacked]),
        _figure(f"{name}: daemon's memory, before", "MiB", [quiet[0].daemon_bytes / _MIB]),
        _figure(f"{name}: daemon's memory, attacked", "MiB", [span.daemon_bytes / _MIB for span in attacked]),
        _figure(f"{name}: daemon's memory, after", "MiB", [quiet[-1].daemon_bytes / _MIB]),
    )


def _figure(name: str, unit: str, values: Sequence[float]) -> Figure:
    return Figure(name=name, unit=unit, values=tuple(values))


def kept_figures(results: Results) -> dict[str, Figure]:
    """Return the figures of the kept speed by attack, in the order of the run."""
    found: dict[str, Figure] = {}
    for figure in results.figures:
        name, _, what = figure.name.rpartition(": ")
        if what == _KEPT:
            found[name] = figure
    return found


def render_attacks(results: Results) -> str:
    """Render the tables of speed, costs and memory, reasons for doubt, and the other figures."""
    all_kept, figures = kept_figures(results), {figure.name: figure for figure in results.figures}
    missed = missed_bounds(results.figures)

    def cell(name: str, what: str, form: str, *, spread_too: bool = False) -> str:
        of = spread(figures[f"{name}: {what}"].values)
        extremes = f" ({form.format(of.least)}..{form.format(of.most)})" if spread_too else ""
        return form.format(of.median) + extremes

    speeds: list[tuple[str, ...]] = [
        ("", "records/s, quiet", "attacked", _KEPT, "must be", "", "longest wait, quiet", "attacked")
    ]
    costs: list[tuple[str, ...]] = [
        ("CPU seconds in a span", "daemon, quiet", "attacked", "rank, quiet", "attacked", "attacker", "he did")
    ]
    memory: list[tuple[str, ...]] = [("daemon's memory, MiB", "before", "at most", "after")]
    for name, figure in all_kept.items():
        told = [cell(name, f"{side}'s CPU, {when}", "{:.2f}") for side in ("daemon", "rank") for when in _WHEN]
        speeds.append((
            name,
            *(cell(name, f"speed, {when}", "{:,.0f}") for when in _WHEN),
            cell(name, _KEPT, "{:.3f}", spread_too=True),
            "" if figure.at_least is None else f">= {figure.at_least:g}",
            "" if figure.at_least is None else "MISSED" if figure.name in missed else "met",
            *(f"{1000 * spread(figures[f'{name}: longest wait, {when}'].values).most:.0f} ms" for when in _WHEN),
        ))  # fmt: skip
        did = cell(name, "acts", "{:,.0f}") + f" {figures[f'{name}: acts'].unit}"
        costs.append((name, *told, cell(name, "attacker's CPU", "{:.2f}"), did))
        most = spread(figures[f"{name}: daemon's memory, attacked"].values).most
        before, after = (cell(name, f"daemon's memory, {when}", "{:.1f}") for when in ("before", "after"))
        memory.append((name, before, f"{most:.1f}", after))
    others = tuple(figure for figure in results.figures if figure.name.rpartition(": ")[0] not in all_kept)
    parts = [*map(align, (speeds, costs, memory)), *_doubts(all_kept)]
    # The first part of the rendered text is the machine, the others are the figures that belong to
    # no attack.
    world, *rest = render(replace(results, figures=others)).split("\n\n", 1)
    return "\n\n".join((world, *parts, *rest))


_WHEN: Final = ("quiet", "attacked")


def _doubts(found: dict[str, Figure]) -> list[str]:
    said: list[str] = []
    for name, figure in found.items():
        of = spread(figure.values)
        if len(figure.values) < _FEW:
            said.append(f"{name}: only {len(figure.values)} span(s) of attack: {_FEW} or more make a median")
        if of.width > _WIDE:
            said.append(f"{name}: wandered from {of.least:.2f} to {of.most:.2f}: measure on a quieter machine")
    return ["\n".join(["Do not believe blindly:", *(f"  {doubt}" for doubt in said)])] if said else []
