from emlio.energy.recording.tally import Tally
from emlio.energy.values.counter import Event
from emlio.energy.values.device import Domain, Method
from emlio_testing.energy_series import SECOND_NS, make_device, make_reading

DEVICES = (make_device(), make_device("GPU-1", Domain.GPU, source="nvml", method=Method.DERIVED))


def test_a_device_that_never_had_a_value_has_no_energy_and_one_that_rested_has_none_used() -> None:
    tally = Tally(DEVICES)
    for seq in range(3):
        tally.add(make_reading(seq, seq * SECOND_NS, 5, None, events=(Event.NONE, Event.GAP)))
    rested, silent = tally.devices
    assert (rested.energy_uj, rested.mean_watts, rested.last_uj) == (0, 0.0, 5)
    assert (silent.energy_uj, silent.mean_watts, silent.last_uj, silent.events) == (None, None, None, {Event.GAP: 3})
    assert not silent.lower_bound, "there is no figure that could be too low"


def test_one_reading_is_no_stretch() -> None:
    tally = Tally(DEVICES)
    tally.add(make_reading(0, 5, 7, 7))
    assert (tally.duration_ns, tally.devices[0].energy_uj) == (0, None)


def test_mean_power_is_over_the_time_in_which_the_device_could_be_read() -> None:
    tally = Tally(DEVICES)
    tally.add(make_reading(0, 0, 0, None))
    tally.add(make_reading(1, 2 * SECOND_NS, 8_000_000, 0, missed=19))
    tally.add(make_reading(2, 4 * SECOND_NS, 8_000_000, 6_000_000))
    package, gpu = tally.devices
    assert (package.mean_watts, gpu.mean_watts) == (2.0, 3.0)
    assert (package.duration_ns, gpu.duration_ns) == (4 * SECOND_NS, 2 * SECOND_NS)
    assert (tally.readings, tally.missed) == (3, 19)


def test_what_could_not_be_counted_makes_a_lower_bound() -> None:
    tally = Tally(DEVICES)
    tally.add(make_reading(0, 0, 0, 0))
    tally.add(make_reading(1, 1, None, None, events=(Event.GAP, Event.GAP)))
    tally.add(make_reading(2, 2, 9, 9, events=(Event.WRAPPED, Event.NONE)))
    package, gpu = tally.devices
    assert (package.lower_bound, gpu.lower_bound) == (False, True), "a counter goes on counting, a sensor does not"
    assert package.events == {Event.GAP: 1, Event.WRAPPED: 1}
    tally.add(make_reading(3, 3, 9, 9, events=(Event.RESET, Event.NONE)))
    assert package.lower_bound
