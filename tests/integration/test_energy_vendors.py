"""The energy monitor's own outside: the program perf, busy processes, this machine's counters as they are."""

import os
from fractions import Fraction

import pytest

from emlio.energy.sources.machine import burn
from emlio.energy.sources.perf import PerfEvent, open_event
from emlio.energy.sources.probe import open_sources, probe
from emlio.energy.values.device import Device, Domain, Method

SOFTWARE_PMU = 1
CPU_CLOCK = 0


def test_the_kernel_counts_what_it_is_asked_to_count() -> None:
    """Time on a CPU, which every kernel can count, by the same call as energy."""
    cpu = min(os.sched_getaffinity(0))
    try:
        fd = open_event(SOFTWARE_PMU, CPU_CLOCK, cpu)
    except OSError as error:
        pytest.skip(f"the kernel does not let this user count: {error}")
    device = Device(name="package-0", domain=Domain.CPU, source="perf", method=Method.MEASURED)
    event = PerfEvent(device, fd, Fraction(1, 10**9))
    try:
        before = event.read()
        burn(20_000_000)
        after = event.read()
    finally:
        event.close()
    assert before is not None
    assert after is not None
    assert after - before >= 20_000  # microseconds of a clock of a whole CPU
    with pytest.raises(OSError, match="on CPU 99999"):
        open_event(SOFTWARE_PMU, CPU_CLOCK, 99999)


def test_what_this_machine_offers_can_be_opened_and_rises() -> None:
    report = probe()
    sources = open_sources(report)
    try:
        assert tuple(source.device for source in sources) == report.devices
        first = [source.read() for source in sources]
        report.machine.burner(1_000_000_000)
        second = [source.read() for source in sources]
    finally:
        for source in sources:
            source.close()
    for device, before, after in zip(report.devices, first, second, strict=True):
        assert before is not None, device.name
        assert after is not None, device.name
        assert after > before or device.range_uj is not None, device.name
