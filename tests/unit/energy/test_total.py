import pytest

from emlio.energy.values.device import Device, Domain, Method
from emlio.energy.values.plausibility import Judgement, Verdict, judge
from emlio.energy.values.total import DeviceEnergy, Total, sum_of, total_of
from emlio.errors import ConfigError

SECOND = 1_000_000_000
JOULE = 1_000_000


def _device(name: str, method: Method = Method.MEASURED, *, rated: float | None = None, adds: bool = True) -> Device:
    source = {Method.MEASURED: "powercap", Method.DERIVED: "hwmon", Method.ESTIMATED: "model"}[method]
    error = 0.5 if method is Method.ESTIMATED else None
    domain = Domain.CPU if adds else Domain.BOARD
    return Device(name=name, domain=domain, source=source, method=method, rated_watts=rated, error=error, adds=adds)


def _used(device: Device, joules: float | None, idle: float | None = None, *, uncounted: bool = False) -> DeviceEnergy:
    return DeviceEnergy(
        device=device,
        energy_uj=None if joules is None else round(joules * JOULE),
        idle_uj=None if idle is None else round(idle * JOULE),
        uncounted=uncounted,
    )


# ---- sums -----------------------------------------------------------------------------------------------------------


def test_a_sum_is_measured_only_if_all_of_it_is() -> None:
    measured = total_of([_used(_device("a"), 3), _used(_device("b"), 4)], node="n")
    assert (measured.energy_uj, measured.method, measured.error) == (7 * JOULE, Method.MEASURED, None)
    with_sensor = total_of([_used(_device("a"), 3), _used(_device("b", Method.DERIVED), 4)], node="n")
    assert (with_sensor.method, with_sensor.error) == (Method.DERIVED, None)
    assert list(with_sensor.by_method) == [Method.MEASURED, Method.DERIVED]


def test_an_estimate_in_a_sum_makes_it_one_with_the_error_that_is_its_part() -> None:
    total = total_of([_used(_device("a"), 30), _used(_device("b", Method.ESTIMATED), 10)], node="n")
    assert total.method is Method.ESTIMATED
    assert total.error == pytest.approx(5 / 40)
    assert total.by_method == {Method.MEASURED: 30, Method.ESTIMATED: 10}


def test_what_is_not_known_is_not_zero_but_makes_the_sum_a_least() -> None:
    total = total_of([_used(_device("a"), 3), _used(_device("b"), None)], node="n", lacks=["DRAM of n"])
    assert total.energy_uj == 3 * JOULE
    assert total.lacks == ("DRAM of n", "b of n")


def test_nothing_known_is_none_and_has_no_method() -> None:
    total = total_of([_used(_device("b"), None)], node="n")
    assert (total.energy_uj, total.method, total.error) == (None, None, None)
    assert total_of([], node="n") == Total(joules=None)


def test_a_device_that_used_nothing_is_known_to_have_used_nothing() -> None:
    total = total_of([_used(_device("b", Method.ESTIMATED), 0)], node="n")
    assert (total.energy_uj, total.method, total.error) == (0, Method.ESTIMATED, None)


def test_what_was_counted_in_part_is_said_to_be() -> None:
    assert total_of([_used(_device("a"), 3, uncounted=True)], node="n").lacks == ("some of a of n",)


def test_what_contains_others_is_never_added_and_never_missed() -> None:
    total = total_of([_used(_device("a"), 3), _used(_device("psys", adds=False), 90)], node="n")
    assert total == total_of([_used(_device("a"), 3), _used(_device("psys", adds=False), None)], node="n")
    assert total.energy_uj == 3 * JOULE


def test_sums_of_nodes_keep_what_each_of_them_lacks() -> None:
    one = total_of([_used(_device("a"), 3), _used(_device("b"), None)], node="n")
    two = total_of([_used(_device("a", Method.ESTIMATED), 2), _used(_device("b"), None)], node="m")
    whole = sum_of([one, two])
    assert whole.by_method == {Method.MEASURED: 3, Method.ESTIMATED: 2}
    assert (whole.lacks, whole.error) == (("b of n", "b of m"), 1 / 5)


# ---- what can be true -----------------------------------------------------------------------------------------------


def test_more_than_the_sockets_can_draw_cannot_be_right() -> None:
    """600 kJ in 1699 s from two sockets of 125 W each would be 353 W."""
    parts = [_used(_device(f"package-{number}", rated=125.0), 300_000) for number in range(2)]
    found = judge("n, CPU", parts, 1699 * SECOND)
    assert found.verdict is Verdict.IMPOSSIBLE
    assert str(found) == "n, CPU: cannot be right: 353 W from package-0 and package-1, built for 250 W"


@pytest.mark.parametrize(
    ("joules", "verdict"),
    [(4.9, Verdict.IMPOSSIBLE), (5.0, Verdict.PLAUSIBLE), (114.9, Verdict.PLAUSIBLE), (115.1, Verdict.IMPOSSIBLE)],
)
def test_the_limits_are_half_of_idle_and_a_little_more_than_rated(joules: float, verdict: Verdict) -> None:
    assert judge("n", [_used(_device("a", rated=100.0), joules, 10)], SECOND).verdict is verdict


def test_without_limits_nothing_is_checked_and_that_is_said() -> None:
    assert judge("n", [_used(_device("a"), 5)], SECOND) == Judgement(
        subject="n", verdict=Verdict.UNCHECKED, reason="idle and rated watts are unknown"
    )
    assert judge("n", [_used(_device("a", rated=9.0), None, 3)], SECOND).reason == "no value is known"


def test_an_estimate_is_not_compared_with_the_limits_that_it_was_computed_from() -> None:
    estimated = _used(_device("memory", Method.ESTIMATED, rated=10.0), 10, 10)
    assert str(judge("vm, DRAM", [estimated], SECOND)) == "vm, DRAM: not checked: an estimate by a model"
    mixed = judge("vm", [estimated, _used(_device("a", rated=100.0), 50)], SECOND)
    assert (mixed.verdict, mixed.reason) == (Verdict.PLAUSIBLE, "50 W of 100 W rated")


def test_one_device_without_limits_does_not_hide_another_that_is_beyond_its_own() -> None:
    parts = [_used(_device("a", rated=100.0), 300), _used(_device("b"), 1)]
    assert judge("n", parts, SECOND).verdict is Verdict.IMPOSSIBLE


def test_what_was_counted_in_part_may_be_below_half_of_idle() -> None:
    assert judge("n", [_used(_device("a"), 1, 10, uncounted=True)], SECOND).verdict is Verdict.UNCHECKED


def test_energy_takes_time() -> None:
    with pytest.raises(ConfigError, match="a duration of energy must be above 0"):
        judge("n", [], 0)
