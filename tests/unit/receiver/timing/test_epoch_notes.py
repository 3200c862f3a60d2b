import logging
import time

import pytest

from emlio.energy.values.spans import Span, Stage
from emlio.receiver.iteration.epoch_pass import Iteration
from emlio.receiver.iteration.tally import Tally
from emlio.receiver.timing.decode_times import WorkLog
from emlio.receiver.timing.device_steps import DeviceSteps
from emlio.receiver.timing.epoch_notes import EpochNotes
from emlio_testing.clock import ManualClock

MS = 1_000_000
BEGUN = 7 * 10**9


class Device:
    """Reaches what it is given 3 ms later, as long as it is well."""

    name = "cuda:1"

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.broken = False

    def mark(self, used: object) -> "Event":
        if self.broken:
            raise RuntimeError("the device is lost")
        return Event(self.clock.monotonic_ns() + 3 * MS)


class Counted:
    steps_done = 0


class InterruptedNotes(EpochNotes):
    """Is interrupted as soon as a batch is asked for."""

    def asked(self, at_ns: int) -> None:
        raise KeyboardInterrupt


class Event:
    def __init__(self, at_ns: int) -> None:
        self.at_ns = at_ns

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        """It needs no time."""

    def elapsed_time(self, end_event: "Event") -> float:
        return (end_event.at_ns - self.at_ns) / MS


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(BEGUN)


@pytest.fixture
def device(clock: ManualClock) -> Device:
    return Device(clock)


def an_epoch(clock: ManualClock, device: Device | None, *, breaks_after: int = 99) -> tuple[Span, ...]:
    """Three batches that come after 10 ms each, and steps of which the host gets to know 5 ms."""
    steps = None if device is None else DeviceSteps(device, clock)
    if steps is not None:
        steps.begin()
    notes = EpochNotes(epoch=4, from_ns=BEGUN, work=WorkLog(), steps=steps)
    for number in range(3):
        if device is not None:
            device.broken = number >= breaks_after
        asked_ns = clock.monotonic_ns()
        notes.asked(asked_ns)
        clock.advance(10 * MS)
        notes.handed(asked_ns, clock.monotonic_ns())
        clock.advance(5 * MS)
    notes.asked(clock.monotonic_ns())
    notes.failed()
    notes.settle()
    notes.finish(clock.monotonic_ns())
    return notes.spans(clock.monotonic_ns())


def of(spans: tuple[Span, ...], stage: Stage) -> list[tuple[int, int, str]]:
    """Milliseconds since the beginning."""
    return [
        ((span.start_ns - BEGUN) // MS, (span.end_ns - BEGUN) // MS, span.thread)
        for span in spans
        if span.stage is stage
    ]


def test_without_a_device_a_step_is_the_time_that_the_user_is_away(clock: ManualClock) -> None:
    spans = an_epoch(clock, None)
    assert of(spans, Stage.TRAIN) == [(10, 15, "user"), (25, 30, "user"), (40, 45, "user")]
    assert of(spans, Stage.READ) == [(0, 10, "user"), (15, 25, "user"), (30, 40, "user")]


def test_with_a_device_a_step_is_the_devices(clock: ManualClock, device: Device) -> None:
    device_begun = 10  # events come 3 ms late, those of the beginning too
    assert of(an_epoch(clock, device), Stage.TRAIN) == [
        (device_begun + 15 * number, device_begun + 15 * number + 5, "cuda:1") for number in range(3)
    ]


def test_a_device_that_fails_is_one_warning_and_the_hosts_steps_are_told(
    clock: ManualClock, device: Device, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        spans = an_epoch(clock, device, breaks_after=1)
    assert of(spans, Stage.TRAIN) == [(10, 15, "user"), (25, 30, "user"), (40, 45, "user")]
    assert len(caplog.records) == 1
    assert "the device is lost" in caplog.text


def test_what_this_thread_does_to_make_a_batch_is_no_training() -> None:
    notes = EpochNotes(epoch=0, from_ns=time.monotonic_ns(), work=WorkLog(), steps=None)
    asked_ns = time.monotonic_ns()
    notes.asked(asked_ns)
    until_ns = time.thread_time_ns() + 50 * MS
    while time.thread_time_ns() < until_ns:
        pass
    notes.handed(asked_ns, time.monotonic_ns())
    cpu = notes.finish(time.monotonic_ns())
    assert 50 * MS <= cpu.preprocess_ns < 80 * MS
    assert cpu.train_ns < 50 * MS
    assert cpu.node_ns is None


def _enter_nothing(_: object) -> None:
    return None


def test_an_interrupt_before_a_threads_first_work_reaches_the_user() -> None:
    work = WorkLog()
    notes = InterruptedNotes(epoch=0, from_ns=BEGUN, work=work, steps=None)
    iteration = Iteration(
        _enter_nothing, lambda *_: pytest.fail("it was interrupted"), Counted(), Tally(skips=False), None, notes
    )
    with pytest.raises(KeyboardInterrupt):
        next(iteration)
    assert work.cut(0, time.monotonic_ns()) == []


def test_the_first_word_that_an_iteration_was_left_counts() -> None:
    notes = EpochNotes(epoch=0, from_ns=0, work=WorkLog(), steps=None)
    assert notes.left_ns is None
    notes.left()
    first = notes.left_ns
    notes.left()
    assert notes.left_ns == first
