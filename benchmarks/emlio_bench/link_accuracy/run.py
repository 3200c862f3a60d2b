"""`emlio-bench link`: a measurement of the link that other benchmarks use.

Covers: rounds of new links, pings and then streams over each. Does not cover: figures and tables
(emlio_bench.link_accuracy.figures), the link (emlio_bench.link).
"""

from typing import Final

from emlio.progress import Progress
from emlio_bench.experiment.command import Command
from emlio_bench.experiment.figures import results_of
from emlio_bench.harness.results import Results
from emlio_bench.link.choice import choose_kind, open_link
from emlio_bench.link.contract import LinkKind
from emlio_bench.link.measurement.ping import ping_ns
from emlio_bench.link.measurement.throughput import measure_load
from emlio_bench.link.spec import LinkSpec
from emlio_bench.link_accuracy.figures import LinkSample, link_figures, render_link
from emlio_bench.link_accuracy.plot import plot_link
from emlio_bench.link_accuracy.settings import LinkSettings
from emlio_bench.subjects.iperf import find_iperf

__all__ = ["COMMAND", "run_link"]

_WARM_UP_S: Final = 2
"""The warm-up of streams. At 100 ms, a stream with stock buffers needs a second to reach its speed.
"""
_QUICK_PINGS: Final = 11
_QUICK_COUNT: Final = 2


def run_link(settings: LinkSettings) -> Results:
    """Measure all requested rounds."""
    iperf = find_iperf()
    kind, missing = choose_kind(settings.kind)
    quick = settings.quick
    rtts_ns, streams = settings.rtts, settings.streams
    if quick:
        rtts_ns, streams = rtts_ns[:_QUICK_COUNT], streams[:_QUICK_COUNT]
    pings = _QUICK_PINGS if quick else settings.pings
    warm_up_s, span_s = (0, 1) if quick else (_WARM_UP_S, settings.seconds)
    rounds = 1 if quick else settings.repeats
    samples: list[LinkSample] = []
    moved_by = ""
    with Progress("samples", rounds * len(rtts_ns) * (1 + len(streams))) as bar:
        for _ in range(rounds):
            for rtt_ns in rtts_ns:
                with open_link(LinkSpec(rtt_ns=rtt_ns, tuned=settings.tuned), kind) as link:
                    idle, own_ns = ping_ns(link, pings), link.own_ns if link.kind is LinkKind.EMULATED else None
                    moved_by = link.moved_by
                    bar.add(1)
                    for count in streams:
                        load = measure_load(link, count, warm_up_s=warm_up_s, span_s=span_s, iperf=iperf)
                        samples.append(LinkSample(rtt_ns=rtt_ns, pings_ns=idle, own_ns=own_ns, load=load))
                        idle, own_ns = (), None
                        bar.add(1)
    told = {
        "kind": kind,
        "moved_by": moved_by,
        "rtts_ns": rtts_ns,
        "streams": streams,
        "pings": pings,
        "seconds": span_s,
        "tuned": settings.tuned,
    }
    figures = link_figures(samples, note=_note(kind, missing, moved_by, iperf), bounded=not quick)
    return results_of("link", told, figures, iperf=iperf)


def _note(kind: LinkKind, missing: tuple[str, ...], moved_by: str, iperf: str | None) -> str:
    words = [f"kind: {kind}" if kind is LinkKind.RELAY else f"kind: {kind}, packets moved by {moved_by}"]
    if missing:
        words.append(f" ({'; '.join(missing)})")
    if kind is LinkKind.RELAY:
        words.append(", on loopback: TCP does not see the distance, so its streams say nothing of a network")
    words.append(". Pings of one byte over an open TCP connection of an idle link; streams by ")
    words.append("iperf3." if iperf is not None else "sockets of our own, since there is no iperf3.")
    return "".join(words)


COMMAND: Final = Command(
    name="link",
    settings=LinkSettings,
    run=run_link,
    text="how true the emulated link is that other benchmarks use: round trips, and what streams carry",
    render=render_link,
    plot=plot_link,
)
