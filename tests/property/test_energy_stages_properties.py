from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from emlio.energy.job.baseline import Baseline
from emlio.energy.job.stages import CpuUse, StageShare, blocked, cpu_share
from emlio.energy.values.device import Device, Domain, Method
from emlio.energy.values.reading import Reading
from emlio.energy.values.series import Series
from emlio.energy.values.spans import Span, Stage, apportion, partition
from emlio.energy.values.window import Window

PACKAGE = Device(name="package-0", domain=Domain.CPU, source="powercap", method=Method.MEASURED)
BOARD = Device(name="GPU-1", domain=Domain.GPU, source="nvml", method=Method.MEASURED)
SECOND = 1_000_000_000
WATTS = st.floats(0, 2_000)
CPU_NS = st.integers(0, 10**13)


@st.composite
def series(draw: st.DrawFn) -> Series:
    """Counters that rise by any amount between readings at any distance."""
    steps = draw(st.lists(st.tuples(st.integers(1, 10**10), *[st.integers(0, 10**10)] * 2), min_size=2, max_size=9))
    at_ns, package_uj, gpu_uj = draw(st.integers(0, 10**16)), 0, 0
    readings = list[Reading]()
    for seq, (gap_ns, package_rise_uj, gpu_rise_uj) in enumerate(steps):
        at_ns, package_uj, gpu_uj = at_ns + gap_ns, package_uj + package_rise_uj, gpu_uj + gpu_rise_uj
        readings.append(
            Reading(seq=seq, mono_ns=at_ns, real_ns=at_ns, spread_ns=10, totals=(package_uj, gpu_uj), cpu_busy_ns=at_ns)
        )
    return Series(devices=(PACKAGE, BOARD), readings=tuple(readings))


@st.composite
def windows(draw: st.DrawFn) -> Window:
    recorded = draw(series())
    first_ns, last_ns = recorded.readings[0].mono_ns, recorded.readings[-1].mono_ns
    from_ns = draw(st.integers(first_ns, last_ns - 1))
    return Window(series=recorded, from_ns=from_ns, to_ns=draw(st.integers(from_ns + 1, last_ns)))


@st.composite
def spans(draw: st.DrawFn, window: Window) -> list[Span]:
    """Of several threads, overlapping as they like, some of them out of the window."""
    near = st.integers(window.from_ns - 10**6, window.to_ns + 10**6)
    stage = st.sampled_from([Stage.TRAIN, Stage.PREPROCESS, Stage.READ])
    drawn = draw(st.lists(st.tuples(stage, near, near), max_size=20))
    return [
        Span(stage=one, start_ns=min(a, b), end_ns=max(a, b), thread=f"t{number % 3}")
        for number, (one, a, b) in enumerate(drawn)
    ]


def _conserves(shares: Sequence[StageShare], window: Window, baseline: Baseline) -> None:
    assert sum(share.duration_ns for share in shares) == window.duration_ns
    for place, device in enumerate(window.series.devices):
        used = [share.parts[place].energy_uj for share in shares]
        if device is BOARD and window.duration_ns < SECOND:
            assert set(used) == {None}  # too short for a GPU
            continue
        assert sum(part or 0 for part in used) == window.energy_uj(device.name)
        idle_uj = baseline.idle_uj(device.name, window.duration_ns)
        if idle_uj is not None:
            assert sum(share.parts[place].idle_uj or 0 for share in shares) == idle_uj


@given(data=st.data(), window=windows(), watts=WATTS)
def test_the_blocked_view_loses_and_doubles_no_microjoule_and_no_nanosecond(
    data: st.DataObject, window: Window, watts: float
) -> None:
    baseline = Baseline(watts={"package-0": watts})
    _conserves(blocked(window, data.draw(spans(window)), baseline), window, baseline)


@given(data=st.data(), window=windows(), watts=WATTS, used=st.tuples(CPU_NS, CPU_NS, CPU_NS, CPU_NS))
def test_the_view_by_processor_time_loses_and_doubles_no_microjoule(
    data: st.DataObject, window: Window, watts: float, used: tuple[int, int, int, int]
) -> None:
    """Also where less was drawn than at rest, and where a node's coarse clock saw less than the threads' did."""
    baseline = Baseline(watts={"package-0": watts, "GPU-1": watts})
    cpu = CpuUse(train_ns=used[0] + 1, preprocess_ns=used[1], read_ns=used[2], node_ns=used[3])
    _conserves(cpu_share(window, data.draw(spans(window)), baseline, cpu), window, baseline)


@given(data=st.data(), window=windows())
def test_each_moment_has_the_stage_of_who_was_waited_for(data: st.DataObject, window: Window) -> None:
    known = data.draw(spans(window))
    stretches = partition(known, window.from_ns, window.to_ns)
    assert [one.start_ns for one in stretches] == [window.from_ns, *(one.end_ns for one in stretches[:-1])]
    assert stretches[-1].end_ns == window.to_ns
    for at_ns in data.draw(st.lists(st.integers(window.from_ns, window.to_ns - 1), max_size=20)):
        going_on = {span.stage for span in known if span.start_ns <= at_ns < span.end_ns}
        expected = next((one for one in (Stage.TRAIN, Stage.PREPROCESS) if one in going_on), Stage.READ)
        (found,) = [one.stage for one in stretches if one.start_ns <= at_ns < one.end_ns]
        assert found is expected


@given(whole=st.integers(-(10**15), 10**15), weights=st.lists(st.integers(0, 10**15), min_size=1, max_size=9))
def test_parts_add_up_to_the_whole_and_are_less_than_one_off_their_due(whole: int, weights: list[int]) -> None:
    weights[0] += 1
    parts = apportion(whole, weights)
    assert sum(parts) == whole
    for part, weight in zip(parts, weights, strict=True):
        assert abs(part * sum(weights) - whole * weight) < sum(weights)
