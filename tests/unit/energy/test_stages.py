from collections.abc import Sequence

import pytest

from emlio.energy.job.baseline import Baseline, measure_idle
from emlio.energy.job.stages import CpuUse, StageShare, blocked, cpu_share, steps_of
from emlio.energy.values.counter import Event
from emlio.energy.values.device import Device, Domain, Method
from emlio.energy.values.reading import Reading
from emlio.energy.values.series import Series
from emlio.energy.values.spans import Span, Stage, apportion
from emlio.energy.values.window import Window
from emlio.errors import ConfigError

SECOND = 1_000_000_000
JOULE = 1_000_000
CPU = Device(name="package-0", domain=Domain.CPU, source="powercap", method=Method.MEASURED)
GPU = Device(name="GPU-1", domain=Domain.GPU, source="nvml", method=Method.MEASURED)
IDLE = Baseline(watts={"package-0": 10.0, "GPU-1": 5.0})


def _series(watts: Sequence[float], device: Device = CPU, events: Sequence[Event] = ()) -> Series:
    """One reading a second; between two the device draws what is said."""
    totals = [0]
    for power in watts:
        totals.append(totals[-1] + round(power * JOULE))
    readings = tuple(
        Reading(
            seq=number,
            mono_ns=number * SECOND,
            real_ns=0,
            spread_ns=0,
            totals=(total,),
            events=(events[number],) if events else (),
            cpu_busy_ns=number * SECOND // 2,
        )
        for number, total in enumerate(totals)
    )
    return Series(devices=(device,), readings=readings)


def _window(watts: Sequence[float], device: Device = CPU) -> Window:
    return Window(series=_series(watts, device), from_ns=0, to_ns=len(watts) * SECOND)


def _span(stage: Stage, start_s: float, end_s: float) -> Span:
    return Span(stage=stage, start_ns=int(start_s * SECOND), end_ns=int(end_s * SECOND), thread="t")


def _joules(shares: Sequence[StageShare]) -> dict[str, float | None]:
    return {
        one.stage: None if part.energy_uj is None else part.energy_uj / JOULE for one in shares for part in one.parts
    }


# ---- the two views ------------------------------------------------------------------------------------------------


def test_a_moment_belongs_to_the_stage_that_everybody_waits_for() -> None:
    spans = [_span(Stage.TRAIN, 1, 2), _span(Stage.PREPROCESS, 1.5, 3), _span(Stage.READ, 0, 4)]
    shares = blocked(_window([10, 20, 40, 80]), spans, IDLE)
    assert _joules(shares) == {"train": 20, "preprocess": 40, "read": 90}
    assert [share.duration_ns / SECOND for share in shares] == [1, 1, 2]
    assert [share.parts[0].idle_uj for share in shares] == [10 * JOULE, 10 * JOULE, 20 * JOULE]


def test_without_spans_all_of_it_was_waiting() -> None:
    assert _joules(blocked(_window([10, 20]), [], IDLE)) == {"train": 0, "preprocess": 0, "read": 30}


def test_a_device_that_was_not_recorded_from_edge_to_edge_has_no_shares_and_not_zero() -> None:
    window = Window(series=_series([10, 20]), from_ns=0, to_ns=3 * SECOND)
    assert _joules(blocked(window, [_span(Stage.TRAIN, 0, 1)], IDLE)) == {
        "train": None,
        "preprocess": None,
        "read": None,
    }


def test_steps_shorter_than_the_readings_are_said_to_be_divided_by_time() -> None:
    short = [_span(Stage.TRAIN, number / 10, number / 10 + 0.05) for number in range(20)]
    steps = steps_of(_window([10, 20]), short)
    assert (steps.mean_step_ns, steps.by_time_only) == (SECOND // 20, True)
    assert not steps_of(_window([10, 20]), [_span(Stage.TRAIN, 0, 2)]).by_time_only
    assert not steps_of(_window([10, 20]), []).by_time_only


def test_by_processor_time_what_is_above_idle_goes_to_whose_threads_worked_and_the_rest_has_a_row() -> None:
    spans = [_span(Stage.TRAIN, 0, 1)]
    cpu = CpuUse(train_ns=1, preprocess_ns=2, read_ns=0, node_ns=4)
    table = cpu_share(_window([30, 30, 30, 30]), spans, IDLE, cpu)  # 40 J at rest, 80 J above
    assert _joules(table) == {"train": 10 + 20, "preprocess": 40, "read": 30, "other": 20}


def test_by_processor_time_nothing_is_divided_without_a_baseline_or_without_processor_time() -> None:
    unknown = {"train": None, "preprocess": None, "read": None, "other": None}
    assert _joules(cpu_share(_window([30, 30]), [], Baseline(), CpuUse(train_ns=1))) == unknown
    assert _joules(cpu_share(_window([30, 30]), [], IDLE, CpuUse())) == unknown


def test_processor_time_says_nothing_of_a_gpu_which_is_divided_by_who_was_waited_for() -> None:
    spans = [_span(Stage.TRAIN, 0, 1)]
    table = cpu_share(_window([70, 30], GPU), spans, IDLE, CpuUse(preprocess_ns=99))
    assert _joules(table) == {"train": 70, "preprocess": 0, "read": 30, "other": 0}


@pytest.mark.parametrize("weights", [[], [0, 0], [-1, 2]])
def test_nothing_can_be_apportioned_without_weights(weights: list[int]) -> None:
    with pytest.raises(ConfigError, match="weights must be at least 0"):
        apportion(10, weights)


def test_processor_time_is_not_below_zero() -> None:
    with pytest.raises(ConfigError, match="processor time"):
        CpuUse(read_ns=-1)


# ---- windows --------------------------------------------------------------------------------------------------------


def test_a_window_knows_how_much_the_processors_worked() -> None:
    assert Window(series=_series([1] * 9), from_ns=SECOND // 2, to_ns=3 * SECOND).cpu_busy_ns == 5 * SECOND // 4
    assert Window(series=_series([1] * 9), from_ns=-1, to_ns=3 * SECOND).cpu_busy_ns is None


def test_a_window_without_two_readings_has_no_resolution() -> None:
    assert Window(series=_series([1] * 9), from_ns=10, to_ns=20).resolution_ns is None


def test_a_window_must_not_end_before_it_begins() -> None:
    with pytest.raises(ConfigError, match="must end after it begins"):
        Window(series=_series([1]), from_ns=5, to_ns=5)


# ---- the baseline ---------------------------------------------------------------------------------------------------


def test_idle_watts_are_the_mean_of_the_quiet_part() -> None:
    baseline = measure_idle(_window([9, 10, 11, 10, 9, 11]))
    assert baseline.watts == {"package-0": pytest.approx(10)}
    assert baseline.idle_uj("package-0", 2 * SECOND) == 20 * JOULE
    assert baseline.idle_uj("package-1", SECOND) is None


def test_a_counter_that_started_anew_meanwhile_makes_no_baseline() -> None:
    events = [Event.NONE, Event.NONE, Event.RESET, Event.NONE, Event.NONE, Event.NONE]
    window = Window(series=_series([10] * 5, events=events), from_ns=0, to_ns=5 * SECOND)
    assert measure_idle(window) == Baseline()


def test_a_baseline_is_not_made_of_a_moment() -> None:
    with pytest.raises(ConfigError, match="at least 5 s"):
        measure_idle(_window([10, 10]))


def test_what_cannot_be_a_baseline_is_refused() -> None:
    with pytest.raises(ConfigError, match="0 or more"):
        Baseline(watts={"package-0": -1.0})
