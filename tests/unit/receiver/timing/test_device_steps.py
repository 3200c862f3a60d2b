"""A device's steps against a device that a test moves: what the host does is never what is told."""

import pytest

from emlio.receiver.timing.device_steps import DeviceSteps
from emlio_testing.clock import ManualClock

US, MS, S = 1000, 1_000_000, 1_000_000_000


class Device:
    """Works through what it is given, one thing after the other, by its own clock.

    It is given work by `give` and reaches an event when all that was given before it is done.
    """

    name = "cuda:0"

    def __init__(self, clock: ManualClock, *, drift: float = 0.0) -> None:
        self.clock = clock
        self.drift = drift
        self.free_ns = 0
        self.events = 0
        self.waits = 0

    def give(self, work_ns: int) -> None:
        self.free_ns = max(self.free_ns, self.clock.monotonic_ns()) + work_ns

    def mark(self, used: "Event | None") -> "Event":
        event = used if used is not None else Event(self)
        self.events += used is None
        self.free_ns = max(self.free_ns, self.clock.monotonic_ns())
        event.reached_ns = self.free_ns
        return event


class Event:
    def __init__(self, device: Device) -> None:
        self.device = device
        self.reached_ns = 0

    def query(self) -> bool:
        return self.reached_ns <= self.device.clock.monotonic_ns()

    def synchronize(self) -> None:
        self.device.waits += 1
        self.device.clock.advance(max(self.reached_ns - self.device.clock.monotonic_ns(), 0))

    def elapsed_time(self, end_event: "Event") -> float:
        assert self.query(), "both must have been reached"
        assert end_event.query(), "both must have been reached"
        return (end_event.reached_ns - self.reached_ns) * (1 + self.device.drift) / 1e6


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(5 * S)


def test_a_step_lasts_as_long_as_the_device_works_however_far_the_host_is_ahead(clock: ManualClock) -> None:
    device = Device(clock)
    steps = DeviceSteps(device, clock)
    steps.begin()
    for _ in range(3):
        steps.handed()
        device.give(40 * MS)
        clock.advance(1 * MS)  # the host is done in no time
        steps.asked()
        clock.advance(1 * MS)
    begun = 5 * S
    assert steps.end() == [(begun + number * 40 * MS, begun + (number + 1) * 40 * MS) for number in range(3)]
    assert clock.monotonic_ns() == begun + 120 * MS, "at the edge it was waited for"


def test_a_device_that_waits_for_batches_is_not_at_work(clock: ManualClock) -> None:
    device = Device(clock)
    steps = DeviceSteps(device, clock)
    steps.begin()
    for _ in range(2):
        clock.advance(100 * MS)  # the batch takes its time
        steps.handed()
        device.give(10 * MS)
        steps.asked()
    assert steps.end() == [(5 * S + 100 * MS, 5 * S + 110 * MS), (5 * S + 200 * MS, 5 * S + 210 * MS)]


def test_nothing_is_waited_for_within_an_epoch_and_events_are_used_again(clock: ManualClock) -> None:
    device = Device(clock)
    steps = DeviceSteps(device, clock)
    steps.begin()
    at_begin = device.waits
    for _ in range(500):
        steps.handed()
        device.give(2 * MS)
        clock.advance(2 * MS)
        steps.asked()
    assert device.waits == at_begin
    assert device.events < 20
    assert len(steps.end()) == 500
    assert device.waits == at_begin + 2


def test_work_of_before_the_epoch_is_not_in_it(clock: ManualClock) -> None:
    device = Device(clock)
    device.give(300 * MS)
    steps = DeviceSteps(device, clock)
    steps.begin()
    assert clock.monotonic_ns() == 5 * S + 300 * MS
    steps.handed()
    device.give(5 * MS)
    assert steps.end() == [(5 * S + 300 * MS, 5 * S + 305 * MS)], "the step that was under way has ended, too"


def test_a_device_whose_clock_runs_otherwise_is_read_by_the_hosts(clock: ManualClock) -> None:
    device = Device(clock, drift=50e-6)  # 180 ms in an hour
    steps = DeviceSteps(device, clock)
    steps.begin()
    clock.advance(3600 * S)
    steps.handed()
    device.give(1 * S)
    steps.asked()
    ((begun_ns, ended_ns),) = steps.end()
    assert abs(begun_ns - 3605 * S) < 10 * US
    assert abs(ended_ns - 3606 * S) < 10 * US


def test_one_epoch_knows_nothing_of_the_last(clock: ManualClock) -> None:
    device = Device(clock)
    steps = DeviceSteps(device, clock)
    for _ in range(2):
        steps.begin()
        steps.handed()
        device.give(MS)
        steps.asked()
        assert len(steps.end()) == 1
    assert steps.end() == [], "nor does what was never begun"
