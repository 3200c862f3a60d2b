"""The truth of the emulated link: round trips and what streams carry, by the round trip that was asked for."""

from collections.abc import Iterator

from emlio_bench.costs.settings import CostsSettings
from emlio_bench.harness.results import Figure, figure, rtt_text
from emlio_bench.link.accuracy import LinkReport, measure_link
from emlio_bench.link.choice import open_link
from emlio_bench.link.contract import LinkSpec
from emlio_bench.link.iperf import find_iperf

__all__ = ["link_figures"]


def link_figures(settings: CostsSettings) -> Iterator[Figure]:
    """Yield the median round trips, what streams carry, and how often a link was out of its bounds."""
    iperf = find_iperf()
    for rtt_ns in (0, 1_000_000, 10_000_000, settings.rtt):
        reports: list[LinkReport] = []
        for _ in range(settings.repeats):
            with open_link(LinkSpec(rtt_ns=rtt_ns)) as link:
                reports.append(measure_link(link, streams=() if settings.quick else (1, 16, 32), iperf=iperf))
        asked = f"{rtt_text(rtt_ns)} asked"
        yield figure(f"round trip, {asked}", "ms", (report.measured.median / 1e6 for report in reports))
        for loads in zip(*(report.loads for report in reports), strict=True):
            name = f"{loads[0].streams} streams, {asked}"
            yield figure(name, "Gbit/s", (load.bits_per_s / 1e9 for load in loads))
        told = "; ".join(dict.fromkeys(reason for report in reports for reason in report.missed))
        yield figure(f"links out of bounds, {asked}", "", (bool(report.missed) for report in reports), told, at_most=0)
