import pytest

from emlio.energy.values.domain import Domain, Method
from emlio.energy.values.series import Series
from emlio_bench.harness.contest import Energy
from emlio_bench.race.run.joules import energy_of
from emlio_testing.energy_series import SECOND_NS, make_device, make_reading, make_series

HALF = SECOND_NS // 2


def test_energy_is_that_of_steps_and_that_of_waiting() -> None:
    # 10 W, and 40 W in the second second.
    series = make_series((0,), (10_000_000,), (50_000_000,), (60_000_000,))
    steps = [(SECOND_NS, SECOND_NS + HALF), (2 * SECOND_NS, 2 * SECOND_NS + HALF)]
    energy = energy_of(series, 0, 3 * SECOND_NS, steps)
    assert energy == Energy(joules=60.0, method="measured", train_joules=25.0, read_joules=35.0)


def test_a_consumer_without_steps_only_waits() -> None:
    energy = energy_of(make_series((0,), (10_000_000,)), 0, SECOND_NS, [])
    assert energy == Energy(joules=10.0, method="measured", train_joules=0.0, read_joules=10.0)


def test_steps_count_as_far_as_they_lie_in_the_stretch_and_once() -> None:
    series = make_series((0,), (10_000_000,), (20_000_000,))
    energy = energy_of(
        series, HALF, SECOND_NS + HALF, [(0, SECOND_NS), (HALF, SECOND_NS), (2 * SECOND_NS, 3 * SECOND_NS)]
    )
    assert energy is not None
    assert (energy.joules, energy.train_joules, energy.read_joules) == (10.0, 5.0, 5.0)


def test_what_is_known_of_the_whole_alone_is_not_told_by_stage() -> None:
    # Of a GPU nothing is said for less than a second, so its stages in it are not known either.
    series = Series(
        devices=(make_device(), make_device("gpu-0", Domain.GPU, source="nvml", method=Method.MEASURED)),
        readings=tuple(make_reading(seq, seq * SECOND_NS, seq * 10_000_000, seq * 100_000_000) for seq in range(2)),
    )
    energy = energy_of(series, 0, HALF, [(0, HALF)])
    assert energy is not None
    assert (energy.joules, energy.train_joules, energy.read_joules) == (55.0, None, None)


@pytest.mark.parametrize("to_ns", [0, 5 * SECOND_NS], ids=["no time", "beyond the recording"])
def test_where_nothing_was_recorded_nothing_is_said(to_ns: int) -> None:
    assert energy_of(make_series((0,), (10_000_000,)), 0, to_ns, []) is None
