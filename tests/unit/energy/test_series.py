from dataclasses import replace
from typing import Any

import pytest

from emlio.energy.values.counter import Event
from emlio.energy.values.device import Domain, Method
from emlio.energy.values.series import Series
from emlio.errors import ConfigError
from emlio_testing.energy_series import SECOND_NS, make_device, make_reading, make_series


def test_at_a_reading_the_total_is_what_was_read() -> None:
    series = make_series([0], [70], [1_000])
    assert [series.total_uj("package-0", at * SECOND_NS) for at in range(3)] == [0, 70, 1_000]
    assert (series.start_ns, series.end_ns) == (0, 2 * SECOND_NS)


def test_outside_of_what_is_known_there_is_no_figure() -> None:
    series = make_series([None], [0], [100], [None])
    assert series.energy_uj("package-0", SECOND_NS, 2 * SECOND_NS) == 100
    assert series.energy_uj("package-0", SECOND_NS - 1, 2 * SECOND_NS) is None
    assert series.energy_uj("package-0", SECOND_NS, 2 * SECOND_NS + 1) is None
    assert make_series().energy_uj("package-0", 0, 0) is None


def test_a_value_that_was_used_by_nobody_is_zero_and_not_absent() -> None:
    assert make_series([5], [5]).energy_uj("package-0", 0, SECOND_NS) == 0


def test_devices_are_told_apart_and_one_that_is_unreadable_does_not_hide_another() -> None:
    series = make_series([0, 0], [None, 40], [200, 100], names=("package-0", "dram-0"))
    assert series.energy_uj("package-0", 0, SECOND_NS) == 100
    assert series.energy_uj("dram-0", 0, SECOND_NS) == 40


def marked(event: Event, total: int | None, method: Method = Method.MEASURED) -> Series:
    """Four readings; the third has an event."""
    readings = [make_reading(number, number * SECOND_NS, number * 10) for number in range(4)]
    readings[2] = make_reading(2, 2 * SECOND_NS, total, events=(event,), missed=7)
    return Series(devices=(make_device(method=method),), readings=tuple(readings))


def test_missed_moments_belong_to_the_stretch_before_the_next_reading() -> None:
    series = marked(Event.RESET, 20)
    assert [series.missed(0, SECOND_NS), series.missed(0, SECOND_NS + 1)] == [0, 7]
    assert [series.missed(SECOND_NS, 3 * SECOND_NS), series.missed(2 * SECOND_NS, 3 * SECOND_NS)] == [7, 0]


@pytest.mark.parametrize(
    ("event", "total", "method", "lower"),
    [
        (Event.WRAPPED, 20, Method.MEASURED, False),
        (Event.RESET, 20, Method.MEASURED, True),
        (Event.GLITCH, 20, Method.MEASURED, True),
        (Event.GAP, 20, Method.MEASURED, True),
        (Event.GAP, None, Method.MEASURED, False),
        (Event.GAP, None, Method.DERIVED, True),
    ],
)
def test_a_figure_says_when_there_may_be_more(event: Event, total: int | None, method: Method, lower: bool) -> None:
    series = marked(event, total, method)
    assert series.is_lower_bound("package-0", 0, 3 * SECOND_NS) is lower
    assert not series.is_lower_bound("package-0", 0, SECOND_NS)


def test_what_cannot_be_a_series_is_refused() -> None:
    device = make_device()
    first, second = make_reading(0, 0, 10), make_reading(1, SECOND_NS, 20)
    with pytest.raises(ConfigError, match="order of time, got 0 after 1"):
        Series(devices=(device,), readings=(second, first))
    with pytest.raises(ConfigError, match="must have a total for each of 2 devices, got 1"):
        Series(devices=(device, make_device("dram-0", Domain.DRAM)), readings=(first,))
    with pytest.raises(ConfigError, match="must not fall, got 9 µJ after 10 µJ"):
        Series(devices=(device,), readings=(first, make_reading(1, SECOND_NS, 9)))
    with pytest.raises(ConfigError, match="names of their own"):
        Series(devices=(device, device), readings=())


def test_a_question_that_cannot_be_is_refused() -> None:
    series = make_series([0], [1])
    with pytest.raises(ConfigError, match="must be one of package-0, got 'package-1'"):
        series.energy_uj("package-1", 0, 1)
    with pytest.raises(ConfigError, match="must not end before it begins"):
        series.energy_uj("package-0", 1, 0)


@pytest.mark.parametrize(
    "wrong", [{"seq": -1}, {"missed": -1}, {"spread_ns": -1}, {"totals": (-1,)}, {"events": (Event.NONE, Event.NONE)}]
)
def test_what_cannot_be_a_reading_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="must"):
        replace(make_reading(0, 0, 5), **wrong)
