"""A link measured before anything else is measured over it.

Covers: pings, then streams. Does not cover: the command `emlio-bench link` (emlio.benchmarks.link_accuracy).
"""

from collections.abc import Sequence

from emlio.benchmarks.link.accuracy import LinkReport, judge
from emlio.benchmarks.link.contract import Link
from emlio.benchmarks.link.ping import ping_ns
from emlio.benchmarks.link.throughput import measure_load

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
    """Find out what it is.

    Args:
        link: which nobody else should use meanwhile.
        pings: of the idle link.
        streams: how many at once, one sample for each number.
        warm_up_s: of each sample, in whole seconds.
        span_s: how long each is.
        iperf: where iperf3 is installed, if it is.
    """
    idle = ping_ns(link, pings)
    loads = [measure_load(link, count, warm_up_s=warm_up_s, span_s=span_s, iperf=iperf) for count in streams]
    return judge(link.spec, link.kind, idle, loads, own_ns=link.own_ns)
