from hypothesis import given
from hypothesis import strategies as st

from emlio.energy.values.counter import Counter, Event

SECOND = 1_000_000_000


@given(data=st.data(), range_uj=st.integers(4_000_000, 2**40), reads=st.integers(1, 30))
def test_energy_is_conserved_wherever_the_counter_wraps(data: st.DataObject, range_uj: int, reads: int) -> None:
    """Any range, any start, any work that the device can do: the total is the work, and the wraps are those that were."""
    most_uj = range_uj // 3  # in a second and what a counter may be late, so that no wrap stays unseen
    watts = most_uj / 1e6 / 1.25
    true_uj = start_uj = data.draw(st.integers(0, range_uj - 1), label="start")
    counter = Counter(range_uj=range_uj, most_watts=watts)
    counter.step(start_uj, 0)
    for number in range(1, reads + 1):
        before, true_uj = true_uj, true_uj + data.draw(st.integers(0, int(watts * 1e6)), label="work")
        step = counter.step(true_uj % range_uj, number * SECOND)
        assert step.total_uj == true_uj - start_uj
        assert step.event is (Event.WRAPPED if before // range_uj != true_uj // range_uj else Event.NONE)


@given(
    raws=st.lists(st.one_of(st.none(), st.integers(0, 2**34)), max_size=40),
    gaps_ns=st.lists(st.integers(0, 20 * SECOND), min_size=40, max_size=40),
    range_uj=st.one_of(st.none(), st.integers(2, 2**34)),
    watts=st.one_of(st.none(), st.floats(0.001, 5_000)),
)
def test_the_total_never_falls_and_never_passes_what_the_device_can_draw(
    raws: list[int | None], gaps_ns: list[int], range_uj: int | None, watts: float | None
) -> None:
    counter = Counter(range_uj=range_uj, most_watts=watts)
    at_ns, total_uj, most_uj = 0, 0, 0.0
    for raw, gap_ns in zip(raws, gaps_ns, strict=False):
        at_ns += gap_ns
        step = counter.step(raw, at_ns)
        assert step.total_uj >= total_uj
        if raw is None or step.event in (Event.RESET, Event.GLITCH):
            assert step.total_uj == total_uj
        total_uj = step.total_uj
        if watts is not None:
            most_uj += watts * (gap_ns + SECOND / 4) / 1000
            assert total_uj <= most_uj * (1 + 1e-9) + 1
