import json

from emlio.cli.energy.recorded import recording_document, recording_text
from emlio.energy.recording.store import Recording
from emlio.energy.recording.tally import Tally
from emlio.energy.values.counter import Event
from emlio.energy.values.device import Domain, Method
from emlio.energy.values.run import Run
from emlio_testing.energy_series import SECOND_NS, make_device, make_reading

DEVICES = (
    make_device(),
    make_device("dram-model", Domain.DRAM, source="model", method=Method.ESTIMATED, error=0.5),
    make_device("GPU-1", Domain.GPU, source="nvml", method=Method.DERIVED),
    make_device("GPU-2", Domain.GPU, source="nvml"),
    make_device("psys-0", Domain.BOARD, adds=False),
)
RUN = Run(
    node="s1", devices=DEVICES, interval_ns=100_000_000, begun_mono_ns=0, begun_real_ns=1_700_000_000 * SECOND_NS,
    warnings=("not counted: GPU-3 (dead); totals of gpu lack it",),
)  # fmt: skip
NONE, GAP = Event.NONE, Event.GAP


def tally() -> Tally:
    made = Tally(DEVICES)
    made.add(make_reading(0, 0, 0, 0, 0, None, 0, cpu_busy_ns=0, cpu_total_ns=0))
    made.add(make_reading(1, 5 * SECOND_NS, None, 1, None, None, 1, events=(GAP, NONE, GAP, GAP, NONE), missed=49))
    made.add(
        make_reading(
            2, 10 * SECOND_NS, 12_345_678_901, 50_000_000, 1_000_000, None, 0 + 1,
            events=(Event.WRAPPED, NONE, NONE, GAP, NONE), edge=True, cpu_busy_ns=1, cpu_total_ns=4, net_rx_bytes=0,
        )
    )  # fmt: skip
    return made


def cells() -> dict[str, list[str]]:
    lines = recording_text(Recording(number=1, run=RUN, ended_mono_ns=1), tally()).splitlines()
    return {line.split()[0]: line.split() for line in lines if line and not line.startswith("warning")}


def test_every_figure_says_what_it_is_from_and_how_far_it_can_be_believed() -> None:
    rows = cells()
    assert rows["package-0"][1:6] == ["cpu", "powercap", "measured", "12,345.7", "1,234.6"]
    assert rows["dram-model"][3:6] == ["estimated", "~50.0", "~5.0"]
    assert rows["GPU-1"][3:6] == ["derived", ">=1.0", ">=0.1"]


def test_what_is_not_known_is_a_dash_and_never_zero() -> None:
    rows = cells()
    assert rows["GPU-2"][3:6] == ["measured", "-", "-"]
    assert recording_document(Recording(number=1, run=RUN, ended_mono_ns=1), tally())["devices"][3]["joules"] is None


def test_what_is_wrong_with_a_recording_stands_in_it() -> None:
    text = recording_text(Recording(number=1, run=RUN, ended_mono_ns=None), tally())
    assert "s1, from 2023-11-14 22:13:20 UTC for 10 s" in text
    assert "3 readings every 100 ms, 49 missed\n" in text
    assert "not finished: the recorder is still running, or was killed" in text
    assert "warning: not counted: GPU-3 (dead); totals of gpu lack it" in text
    assert "do not add to the others, which it contains: psys-0" in text
    assert ">= is a lower bound: a part could not be counted" in text
    assert cells()["package-0"][6:] == ["1", "gap,", "1", "wrapped"]


def test_a_recording_of_which_nothing_is_known_yet_is_shown_too() -> None:
    text = recording_text(Recording(number=1, run=RUN, ended_mono_ns=None), Tally(DEVICES))
    assert "0 readings every 100 ms, 0 missed\n" in text
    json.dumps(recording_document(Recording(number=1, run=RUN, ended_mono_ns=None), Tally(DEVICES)), allow_nan=False)


def test_a_program_finds_the_same_as_a_reader() -> None:
    found = recording_document(Recording(number=7, run=RUN, ended_mono_ns=1), tally())
    package = found["devices"][0]
    assert (package["joules"], package["mean_watts"]) == (12345.678901, 1234.5678901)
    assert (package["events"], package["lower_bound"]) == ({"gap": 1, "wrapped": 1}, False)
    assert (found["run"], found["ended"], found["missed"]) == (7, True, 49)
