from dataclasses import replace
from pathlib import Path

import pytest

from emlio.energy.recording.excerpt import Excerpt, Stretch, take_excerpt
from emlio.energy.recording.store import Store
from emlio.energy.values.run import Run
from emlio.errors import ConfigError
from emlio_testing.energy_series import SECOND_NS, make_device, make_reading

RUN = Run(
    node="s1",
    devices=(make_device(), make_device("dram-0")),
    interval_ns=SECOND_NS,
    begun_mono_ns=0,
    begun_real_ns=0,
    boot="now",
)


def _record(path: Path, run: Run, seconds: range) -> None:
    with Store(path, read_only=False) as store:
        number = store.begin(run)
        store.append(number, [make_reading(seq, at * SECOND_NS, at, None) for seq, at in enumerate(seconds)])


def _take(path: Path, from_s: float, to_s: float, *, most_values: int = 10_000, **more: int) -> Excerpt:
    stretch = Stretch(boot="now", from_ns=round(from_s * SECOND_NS), to_ns=round(to_s * SECOND_NS), **more)
    return take_excerpt(path, stretch, most_readings=1000, most_values=most_values)


def _seconds(excerpt: Excerpt) -> list[int]:
    return [reading.mono_ns // SECOND_NS for reading in excerpt.readings]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "energy.sqlite"


@pytest.mark.parametrize(
    ("from_s", "to_s", "seconds"),
    [
        (20.5, 22.5, [20, 21, 22, 23]),
        (20, 22, [20, 21, 22]),
        (0, 11, [10, 11]),
        (38.5, 99, [38, 39]),
        (50, 60, [39]),
        (0, 5, [10]),
    ],
)
def test_a_stretch_has_a_reading_before_and_one_after_it(
    path: Path, from_s: float, to_s: float, seconds: list[int]
) -> None:
    _record(path, RUN, range(10, 40))
    assert _seconds(_take(path, from_s, to_s)) == seconds


def test_a_recorder_that_left_readings_out_is_searched_as_well(path: Path) -> None:
    with Store(path, read_only=False) as store:
        number = store.begin(RUN)
        store.append(number, [make_reading(seq, seq * SECOND_NS, seq, None) for seq in (5, 6, 40, 41, 97)])
    for from_s, to_s, seconds in ((6.5, 39, [6, 40]), (41, 90, [41, 97]), (5, 5, [5]), (98, 99, [97])):
        assert _seconds(_take(path, from_s, to_s)) == seconds


def test_what_has_no_room_comes_with_the_next_question(path: Path) -> None:
    _record(path, RUN, range(30))
    first = _take(path, 3, 20, most_values=14 * 10)
    assert (_seconds(first), first.more) == ([*range(3, 13)], True)
    rest = _take(path, 3, 20, most_values=14 * 10, number=1, first=first.readings[-1].seq + 1)
    assert (_seconds(rest), rest.more) == ([*range(13, 21)], False)


def test_one_reading_is_told_however_little_room_there_is(path: Path) -> None:
    _record(path, RUN, range(3))
    assert _seconds(_take(path, 0, 2, most_values=1)) == [0]


def test_a_recorder_that_was_started_anew_does_not_hide_what_the_one_before_recorded(path: Path) -> None:
    _record(path, RUN, range(30))
    _record(path, replace(RUN, begun_mono_ns=30 * SECOND_NS), range(30, 60))
    assert _take(path, 10, 20).recording.number == 1
    assert _take(path, 40, 50).recording.number == 2
    assert _take(path, 10, 50, number=1).recording.number == 1


def test_a_recording_of_an_earlier_start_of_the_machine_has_another_clock(path: Path) -> None:
    _record(path, replace(RUN, boot="before"), range(30))
    with pytest.raises(ConfigError, match="0 of its 1 recordings are"):
        _take(path, 10, 20)


def test_a_file_that_is_not_there_is_named(path: Path) -> None:
    with pytest.raises(ConfigError, match=r"energy\.sqlite"):
        _take(path, 10, 20)
