"""The measurement of a link before a benchmark uses it.

Covers: pings, then streams. Does not cover: the command `emlio-bench link`
(emlio_bench.link_accuracy.run).
"""

from collections.abc import Sequence

from emlio_bench.link.contract import Link
from emlio_bench.link.measurement.accuracy import LinkReport, judge
from emlio_bench.link.measurement.ping import ping_ns
from emlio_bench.link.measurement.throughput import measure_load

__all__ = ["measure_link"]


def measure_link(
    link: Link,
    *,
    pings: int = 41,
    streams: Sequence[int] = (1, 8),
    warm_up_s: int = 1,
    span_s: int = 2,
    iperf: str | None,
) -> LinkReport:
    """Measure the round trip and the throughput of a link.

    Args:
        link: the link. It must carry no other traffic meanwhile.
        pings: number of pings over the idle link.
        streams: numbers of concurrent streams, one sample for each.
        warm_up_s: warm-up of each sample, in whole seconds.
        span_s: length of each sample, in whole seconds.
        iperf: path of iperf3, or None if it is not installed.
    """
    idle = ping_ns(link, pings)
    loads = [measure_load(link, count, warm_up_s=warm_up_s, span_s=span_s, iperf=iperf) for count in streams]
    return judge(link.spec, link.kind, idle, loads, own_ns=link.own_ns, moved_by=link.moved_by)
