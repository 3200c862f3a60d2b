"""The energy monitor's own outside: the program perf, busy processes, this machine's counters as they are."""

import os
import shutil
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import psutil
import pytest

from emlio.energy.sources.liveness import burn
from emlio.energy.sources.perf import PerfEvent, open_event
from emlio.energy.sources.probe import open_sources, probe
from emlio.energy.values.device import Device
from emlio.energy.values.domain import Domain, Method
from emlio.energy.verification.busy_cores import BusyCores
from emlio.energy.verification.counter_check import check_packages
from emlio.energy.verification.perf_stat import PerfStat
from emlio.errors import ConfigError
from emlio_testing.clock import ManualClock
from emlio_testing.energy_machines import MovingCounters, machine_at, write_proc, write_zone
from emlio_testing.processes import settles

SOFTWARE_PMU = 1
CPU_CLOCK = 0


def test_busy_cores_are_processes_that_end_with_the_block() -> None:
    before = psutil.Process().children()
    with BusyCores(2):
        assert len(psutil.Process().children()) == len(before) + 2
    assert psutil.Process().children() == before
    with pytest.raises(ConfigError):
        BusyCores(-1)


@pytest.mark.skipif(shutil.which("perf") is None, reason="the program perf is not installed")
def test_perf_that_cannot_count_an_event_is_told_with_its_own_words() -> None:
    with pytest.raises(ConfigError, match="failed: "), PerfStat(("power/energy-of-nothing/",)):
        pass


PERF = """#!/bin/sh
trap 'echo "     0.1,7.5,Joules,power/energy-pkg/,100,100.00,," >&2; exit 0' INT
: > "$(dirname "$0")/ready"
while :; do sleep 0.02; done
"""


def test_packages_are_held_against_the_program_perf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin/perf"
    program.parent.mkdir()
    program.write_text(PERF)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    write_proc(tmp_path / "proc")
    clock = ManualClock()
    burner = MovingCounters(clock)
    burner.add(write_zone(tmp_path / "sys/class/powercap", "intel-rapl:0", "package-0"), 100)
    report = probe(machine_at(tmp_path, clock=clock, burner=burner))

    def wait(duration_ns: int) -> None:
        assert settles((program.parent / "ready").exists, 20)
        burner(duration_ns)

    (check,) = check_packages(report, clock=clock, wait=wait, duration_ns=100_000_000)
    assert (check.device, check.counter_uj, check.other_uj) == ("package-0", 10_000_000, 7_500_000)
    assert check_packages(replace(report, findings=()), clock=clock, wait=wait, duration_ns=1) == ()


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
        (before,) = event.read()
        burn(20_000_000)
        (after,) = event.read()
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
        assert tuple(device for source in sources for device in source.devices) == report.devices
        first = [value for source in sources for value in source.read()]
        report.machine.burner(1_000_000_000)
        second = [value for source in sources for value in source.read()]
    finally:
        for source in sources:
            source.close()
    for device, before, after in zip(report.devices, first, second, strict=True):
        assert before is not None, device.name
        assert after is not None, device.name
        assert after > before or device.range_uj is not None, device.name
