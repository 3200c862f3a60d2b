from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from emlio.energy.values.series import Series
from emlio_testing.energy_series import make_device, make_reading

STEPS = st.lists(
    st.tuples(st.integers(1, 3 * 10**9), st.one_of(st.none(), st.integers(0, 10**12))), min_size=2, max_size=25
)


def series_of(steps: list[tuple[int, int | None]]) -> Series:
    """Readings so many nanoseconds apart, with so much more energy; None where the counter could not be read."""
    at_ns = total_uj = 0
    readings = []
    for seq, (gap_ns, used_uj) in enumerate(steps):
        at_ns += gap_ns
        total_uj += used_uj or 0
        readings.append(make_reading(seq, at_ns, None if used_uj is None else total_uj))
    return Series(devices=(make_device(),), readings=tuple(readings))


@given(steps=STEPS, data=st.data())
def test_energy_is_conserved_wherever_a_recording_is_cut(
    steps: list[tuple[int, int | None]], data: st.DataObject
) -> None:
    series = series_of(steps)
    points = [(one.mono_ns, one.totals[0]) for one in series.readings if one.totals[0] is not None]
    if not points:
        return
    (begun_ns, first_uj), (ended_ns, last_uj) = points[0], points[-1]
    cuts = data.draw(st.lists(st.integers(begun_ns, ended_ns), max_size=20))
    edges = sorted([begun_ns, *cuts, ended_ns])
    parts = [series.energy_uj("package-0", before, after) for before, after in pairwise(edges)]
    assert all(part is not None and part >= 0 for part in parts)
    assert sum(filter(None, parts)) == last_uj - first_uj


@given(steps=STEPS, data=st.data())
def test_between_readings_the_total_lies_on_the_line(steps: list[tuple[int, int | None]], data: st.DataObject) -> None:
    series = series_of(steps)
    points = [(one.mono_ns, one.totals[0]) for one in series.readings if one.totals[0] is not None]
    if len(points) < 2:
        return
    place = data.draw(st.integers(0, len(points) - 2))
    (from_ns, from_uj), (to_ns, to_uj) = points[place], points[place + 1]
    at_ns = data.draw(st.integers(from_ns, to_ns))
    found = series.total_uj("package-0", at_ns)
    assert found is not None
    assert abs((found - from_uj) * (to_ns - from_ns) - (to_uj - from_uj) * (at_ns - from_ns)) < to_ns - from_ns
