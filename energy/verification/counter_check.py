"""Selection of counters that can be checked against another measurement, and the checks.

Covers: GPUs' counters against their own power, packages against the perf program. Does not cover:
the comparison itself (emlio.energy.verification.crosscheck).
"""

from collections.abc import Callable
from contextlib import ExitStack

from emlio.clock import Clock
from emlio.energy.sources.energy_counter import EnergyCounter
from emlio.energy.sources.finding import Finding
from emlio.energy.sources.probe import ProbeReport
from emlio.energy.values.counter import Counter
from emlio.energy.values.domain import Domain
from emlio.energy.verification.crosscheck import Crosscheck, Pair, crosscheck
from emlio.energy.verification.perf_stat import PerfStat, total_joules

__all__ = ["check_packages", "check_power"]

_PACKAGES = "power/energy-pkg/"


def check_power(
    report: ProbeReport, *, clock: Clock, wait: Callable[[int], None], duration_ns: int
) -> tuple[Crosscheck, ...]:
    """Check every counter with its own power sensor, such as a GPU's, against integrated power."""
    with ExitStack() as stack:
        pairs = [
            Pair(counter=_opened(stack, counter), other=_opened(stack, other))
            for counter in report.live
            for other in report.findings
            if other is not counter and other.name == counter.name and other.method != counter.method and other.open
        ]
        return crosscheck(pairs, clock=clock, wait=wait, duration_ns=duration_ns) if pairs else ()


def check_packages(
    report: ProbeReport, *, clock: Clock, wait: Callable[[int], None], duration_ns: int, events: str = _PACKAGES
) -> tuple[Crosscheck, ...]:
    """Check all packages together against the perf program.

    Raises:
        ConfigError: perf is not installed, or does not count here.
    """
    packages = [one for one in report.live if one.domain is Domain.CPU and one.source in ("powercap", "perf")]
    if not packages:
        return ()
    with ExitStack() as stack:
        sources = [_opened(stack, finding) for finding in packages]
        counters = [
            Counter(range_uj=device.range_uj, most_watts=device.most_watts)
            for source in sources
            for device in source.devices
        ]
        with PerfStat((events,)) as perf:
            begun_ns = clock.monotonic_ns()
            _total_uj(sources, counters, begun_ns)
            wait(duration_ns)
            ended_ns = clock.monotonic_ns()
            counter_uj = _total_uj(sources, counters, ended_ns)
    joules = total_joules(perf.lines, events)
    names = ", ".join(finding.name for finding in packages)
    return (
        Crosscheck(
            device=names,
            against="the program perf",
            duration_ns=ended_ns - begun_ns,
            counter_uj=counter_uj,
            other_uj=round((joules or 0.0) * 1e6),
        ),
    )


def _opened(stack: ExitStack, finding: Finding) -> EnergyCounter:
    source = finding.opened()
    stack.callback(source.close)
    return source


def _total_uj(sources: list[EnergyCounter], counters: list[Counter], at_ns: int) -> int:
    raws = [raw for source in sources for raw in source.read()]
    return sum(counter.step(raw, at_ns).total_uj for counter, raw in zip(counters, raws, strict=True))
