import pytest

from emlio.energy.recording.recorder import Schedule
from emlio.errors import ConfigError


def test_moments_do_not_drift_however_late_each_is_served() -> None:
    schedule = Schedule(start_ns=1_000, interval_ns=100)
    served = []
    for _ in range(50):
        served.append(schedule.next_ns)
        assert schedule.take(schedule.next_ns + 99) == 0
    assert served == [1_000 + 100 * number for number in range(50)]


def test_moments_that_passed_are_missed_and_the_next_lies_on_the_grid() -> None:
    schedule = Schedule(start_ns=0, interval_ns=100)
    assert schedule.take(0) == 0
    assert schedule.take(3_150) == 30, "100 to 3000; the one at 3100 is served now"
    assert schedule.next_ns == 3_200


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match="interval must be above 0"):
        Schedule(start_ns=0, interval_ns=0)
    with pytest.raises(ConfigError, match="1 ns too early"):
        Schedule(start_ns=10, interval_ns=5).take(9)
