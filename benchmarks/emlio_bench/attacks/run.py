"""`emlio-bench attacks`: the speed that a legitimate rank keeps while its daemon is attacked.

Quiet and attacked spans alternate, and each attacked span is compared with its two quiet
neighbours. The rank takes half of its possible speed. At full speed, daemon, rank and attacker
would compete for the processors of one machine, and the result would mostly show that.

Covers: the sequence of spans, the pace, results. Does not cover: the attackers
(emlio_bench.attacks.attackers), measuring a span (emlio_bench.attacks.stage), the table
(emlio_bench.attacks.figures).
"""

from pathlib import Path
from typing import Final

from emlio.progress import Progress
from emlio_bench.attacks.attackers import ATTACKS, MOST_OF_A_CORE, NOTHING
from emlio_bench.attacks.figures import Span, attack_figures, render_attacks
from emlio_bench.attacks.plot import plot_attacks
from emlio_bench.attacks.rank import MADE_UP_NS, Finished
from emlio_bench.attacks.stage import Besieged, opened_store
from emlio_bench.experiment.command import Command
from emlio_bench.experiment.data import prepared
from emlio_bench.experiment.figures import figure, results_of
from emlio_bench.harness.results import Figure, Results
from emlio_bench.harness.scenario import DataSpec
from emlio_bench.harness.settings import AttacksSettings

__all__ = ["COMMAND", "run_attacks"]

_RECORD_BYTES: Final = 4000
_RECORDS: Final = 64_000
_QUICK_RECORDS: Final = 4000
_BATCH: Final = 256
_PART: Final = 0.5
"""The share of the possible speed that a paced rank takes."""

_SETTLE_S: Final = 1.0
_QUICK_SPAN_S: Final = 0.3
_QUICK_SETTLE_S: Final = 0.1


def run_attacks(settings: AttacksSettings) -> Results:
    """Run each attack against a new daemon."""
    data = DataSpec(kind="opaque", record_bytes=_RECORD_BYTES, records=_QUICK_RECORDS if settings.quick else _RECORDS)
    repeats = min(settings.repeats, 1) if settings.quick else settings.repeats
    span_s = _QUICK_SPAN_S if settings.quick else settings.span / 1e9
    settle_s = _QUICK_SETTLE_S if settings.quick else _SETTLE_S
    figures: list[Figure] = []
    ends: list[Finished] = []
    total = repeats * len(settings.attacks)
    with prepared(data, settings.data) as directory, Progress("spans of attack", total) as bar:
        possible = _possible(directory, span_s, settle_s)
        interval_ns = 0 if settings.unpaced else round(_BATCH * 1e9 / (possible * _PART))
        for name in settings.attacks:
            with opened_store(directory) as store, Besieged(store, store.rank_order(_BATCH, interval_ns)) as besieged:
                besieged.reads()
                besieged.settle(span_s)  # the daemon's memory for records fills up, once
                spans = [_quiet(besieged, span_s, settle_s)]
                for _ in range(repeats):
                    spans += [besieged.attacked(name, span_s, settle_s), _quiet(besieged, span_s, settle_s)]
                    bar.add(1)
                ends.append(besieged.end())
            attack = ATTACKS[name]
            figures += attack_figures(attack.title, attack.act, spans, bound=name != NOTHING)
    told = {
        "attacks": settings.attacks,
        "repeats": repeats,
        "span_s": f"{span_s:g}",
        "unpaced": settings.unpaced,
        "records": data.records,
        "record_bytes": _RECORD_BYTES,
        "batch": _BATCH,
    }
    note = _note(span_s, settle_s, unpaced=settings.unpaced)
    figures += [
        figure("an unpaced rank, before all attacks", "records/s", (possible,), note),
        figure(
            "streams that were opened again, or daemons taken for lost",
            "times",
            (float(end.reopened + end.lost) for end in ends),
            at_most=0,
            every=True,
        ),
    ]
    return results_of("attacks", told, figures)


def _quiet(besieged: Besieged, span_s: float, settle_s: float) -> Span:
    besieged.settle(settle_s)
    return besieged.quiet(span_s)


def _possible(directory: Path, span_s: float, settle_s: float) -> float:
    """Return the records per second of an unpaced rank without an attack."""
    with opened_store(directory) as store, Besieged(store, store.rank_order(_BATCH, 0)) as besieged:
        besieged.reads()
        span = _quiet(besieged, span_s, settle_s)
        besieged.end()
    return span.records_per_s


def _note(span_s: float, settle_s: float, *, unpaced: bool) -> str:
    pace = (
        "The rank reads as fast as it can, so what it loses is in part processor time that the attacker takes here."
        if unpaced
        else f"The rank takes at most {_PART:.0%} of what an unpaced one gets, and makes up for delays of up to "
        f"{MADE_UP_NS / 1e6:g} ms."
    )
    lines = (
        "Daemon, rank and attacker are processes of this machine, over loopback; keys, sealed payloads, records of",
        f"{_RECORD_BYTES:,} bytes, prefetch 8 MiB, a fresh daemon for each attack. Spans of {span_s:g} s, {settle_s:g} s "
        "after an attack has begun or ended.",
        pace,
        "Speeds and costs are medians of the spans; speed kept has least..most; a longest wait and a memory are the most of",
        f"all spans. An attacker rests when he has had {MOST_OF_A_CORE:.0%} of a core. Memory is the daemon's own pages, "
        "looked at ten times a second.",
    )
    return "\n".join(lines)


COMMAND: Final = Command(
    name="attacks",
    settings=AttacksSettings,
    run=run_attacks,
    text="how much of its speed a rank keeps while its daemon is attacked",
    render=render_attacks,
    plot=plot_attacks,
)
