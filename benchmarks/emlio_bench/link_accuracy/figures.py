"""The figures of a link's measurement with their bounds, and their tables.

Covers: names of figures, bounds, text for people. Pure. Does not cover: measuring
(emlio_bench.link_accuracy.run), the plot (emlio_bench.link_accuracy.plot).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from emlio_bench.experiment.figures import by_name, figure, rtt_text
from emlio_bench.harness.report import missed_bounds, render
from emlio_bench.harness.results import Figure, Results
from emlio_bench.harness.spread import spread
from emlio_bench.harness.table import align
from emlio_bench.link.measurement.accuracy import least_bits_per_s, rtt_bounds_ns, summarise_pings
from emlio_bench.link.measurement.throughput import Load
from emlio_bench.link.spec import LinkSpec

__all__ = ["LinkSample", "link_figures", "link_streams", "ping_name", "render_link", "stream_name"]

_MS: Final = 1e6
_OWN: Final = "the link's own"
_LINK_CPU: Final = "the link's processor time"


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSample:
    """A throughput sample of a link, optionally with pings.

    Attributes:
        rtt_ns: requested round trip.
        pings_ns: pings of the idle link; may be empty.
        own_ns: time that the link itself adds to a round trip; None if unknown, or reported in
            another sample.
        load: throughput without other load.
    """

    rtt_ns: int
    pings_ns: tuple[int, ...]
    own_ns: int | None = None
    load: Load


def ping_name(rtt_ns: int, what: str = "") -> str:
    """Return the name of the figure of pings, in ms; `what` names a part of them."""
    return f"round trip of {rtt_text(rtt_ns)}" + (f": {what}" if what else "")


def stream_name(rtt_ns: int, streams: int, what: str = "") -> str:
    """Return the name of the figure of some streams, in Gbit/s; `what` names a related figure."""
    return f"{rtt_text(rtt_ns)}, {_streams(streams)}" + (f": {what}" if what else "")


def link_streams(results: Results) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the round trips, in ns, and the numbers of streams of a run."""
    told = dict(results.settings)
    rtts, streams = (tuple(map(int, told[name].split(","))) for name in ("rtts_ns", "streams"))
    return rtts, streams


def link_figures(samples: Sequence[LinkSample], *, note: str, bounded: bool) -> tuple[Figure, ...]:
    """Return all figures of a run.

    Args:
        samples: samples in the order of measurement.
        note: note for all figures.
        bounded: whether the figures have bounds.
    """
    figures: list[Figure] = []
    for rtt_ns in dict.fromkeys(sample.rtt_ns for sample in samples):
        chosen = [sample for sample in samples if sample.rtt_ns == rtt_ns]
        low, high = rtt_bounds_ns(rtt_ns)
        figures.append(
            figure(
                ping_name(rtt_ns),
                "ms",
                (ping / _MS for sample in chosen for ping in sample.pings_ns),
                note,
                at_least=low / _MS if bounded and low else None,
                at_most=high / _MS if bounded else None,
            )
        )
        own = [sample.own_ns / _MS for sample in chosen if sample.own_ns is not None]
        if own:
            figures.append(figure(ping_name(rtt_ns, _OWN), "ms", own, note))
        for streams in dict.fromkeys(sample.load.streams for sample in chosen):
            loads = [sample.load for sample in chosen if sample.load.streams == streams]
            figures += _stream_figures(rtt_ns, streams, loads, note, bounded=bounded)
    return tuple(figures)


def _stream_figures(rtt_ns: int, streams: int, loads: Sequence[Load], note: str, *, bounded: bool) -> list[Figure]:
    least = least_bits_per_s(LinkSpec(rtt_ns=rtt_ns), streams) if bounded else None
    again = [float(load.retransmits) for load in loads if load.retransmits is not None]
    cpu = [load.link_cpu_s_per_gb for load in loads if load.link_cpu_s_per_gb is not None]
    return [
        figure(
            stream_name(rtt_ns, streams),
            "Gbit/s",
            (load.bits_per_s / 1e9 for load in loads),
            note,
            at_least=least / 1e9 if least is not None else None,
        ),
        figure(
            stream_name(rtt_ns, streams, "dropped"),
            "packets",
            (float(load.dropped_packets) for load in loads),
            note,
            at_most=0 if bounded else None,
        ),
        *([figure(stream_name(rtt_ns, streams, "retransmits"), "segments", again, note)] if again else []),
        *([figure(stream_name(rtt_ns, streams, _LINK_CPU), "s/GB", cpu, note)] if cpu else []),
    ]


def render_link(results: Results) -> str:
    """Return the whole report of a run."""
    figures = by_name(results)
    rtts, streams = link_streams(results)
    return "\n\n".join(
        (
            render(replace(results, figures=())),
            _ping_table([(rtt, figures[ping_name(rtt)], figures.get(ping_name(rtt, _OWN))) for rtt in rtts]),
            _stream_table(figures, rtts, streams),
            results.figures[0].note,
        )
    )


def _ping_table(chosen: Sequence[tuple[int, Figure, Figure | None]]) -> str:
    table = [("round trip", "median", "5th..95th", "most", "link's own", "unit", "pings", "must be", "")]
    for rtt_ns, found, own in chosen:
        pings = summarise_pings([round(value * _MS) for value in found.values])
        bounds = " and ".join(
            f"{sign} {bound:.4g}"
            for sign, bound in ((">=", found.at_least), ("<=", found.at_most))
            if bound is not None
        )
        table.append(
            (
                rtt_text(rtt_ns),
                _ms(pings.median),
                f"{_ms(pings.low)}..{_ms(pings.high)}",
                _ms(pings.most),
                f"{spread(own.values).median:.3g}" if own is not None else "?",
                found.unit,
                str(pings.pings),
                bounds,
                _verdict(found),
            )
        )
    return align(table)


def _stream_table(figures: dict[str, Figure], rtts: Sequence[int], streams: Sequence[int]) -> str:
    table = [("streams", "Gbit/s", "least..most", "retransmits", "dropped", "link's CPU, s/GB", "must be", "")]
    for rtt_ns in rtts:
        for count in streams:
            carried, dropped = (figures[stream_name(rtt_ns, count, what)] for what in ("", "dropped"))
            again = figures.get(stream_name(rtt_ns, count, "retransmits"))
            cpu = figures.get(stream_name(rtt_ns, count, _LINK_CPU))
            of = spread(carried.values)
            table.append(
                (
                    carried.name,
                    f"{of.median:.3g}",
                    f"{of.least:.3g}..{of.most:.3g}",
                    f"{spread(again.values).median:,.0f}" if again is not None else "?",
                    f"{spread(dropped.values).median:,.0f}",
                    f"{spread(cpu.values).median:.2f}" if cpu is not None else "-",
                    f">= {carried.at_least:g}" if carried.at_least is not None else "",
                    _verdict(carried) or _verdict(dropped),
                )
            )
    return align(table)


def _verdict(of: Figure) -> str:
    if of.at_most is None and of.at_least is None:
        return ""
    return "MISSED" if missed_bounds([of]) else "ok"


def _streams(count: int) -> str:
    return f"{count} stream" + ("s" if count > 1 else "")


def _ms(duration_ns: int) -> str:
    return f"{duration_ns / _MS:.4g}"
