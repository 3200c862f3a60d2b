from typing import Any

import pytest

from emlio.clocks.fit import ClockFit, ClockLine
from emlio.energy.export.wire_rows import row_of_device, row_of_reading
from emlio.receiver.engine.energy_questions import energy_of
from emlio.wire.energy import ReadingRow
from emlio.wire.questions import Energy
from emlio_testing.energy_series import SECOND_NS, make_device, make_reading

AHEAD_NS = 1000 * SECOND_NS
CLOCK = ClockFit(
    lines=(
        ClockLine(
            from_ns=0, to_ns=SECOND_NS, offset_ns=AHEAD_NS, drift_ppb=0.0, error_ns=5, round_trip_ns=10, exchanges=1
        ),
    )
)


def _rows(*seconds: int) -> list[ReadingRow]:
    return [row_of_reading(make_reading(at, AHEAD_NS + at * SECOND_NS, at * 5_000_000)) for at in seconds]


def _part(*seconds: int, **more: Any) -> Energy:
    fields: dict[str, Any] = {
        "node": "s1",
        "boot": "b",
        "recording": 1,
        "interval_ns": SECOND_NS,
        "devices": [row_of_device(make_device())],
        "readings": _rows(*seconds),
    }
    return Energy(**(fields | more))


def test_parts_become_one_series_by_the_daemons_clock_ready_for_a_report() -> None:
    found = energy_of("store1:5555", [_part(0, 1, 2), _part(3, 4)], "", CLOCK)
    assert (found.daemon, found.node, found.boot, found.interval_ns) == ("store1:5555", "s1", "b", SECOND_NS)
    assert found.series is not None
    assert found.series.end_ns == AHEAD_NS + 4 * SECOND_NS
    assert found.series.energy_uj("package-0", AHEAD_NS + SECOND_NS, AHEAD_NS + 3 * SECOND_NS) == 10_000_000
    assert found.clock is CLOCK


def test_what_is_absent_keeps_its_reason() -> None:
    found = energy_of("store1:5555", [], "no recorder runs", None)
    assert (found.series, found.clock, found.absent) == (None, None, "no recorder runs")


def test_what_came_before_an_answer_failed_is_kept() -> None:
    found = energy_of("store1:5555", [_part(0, 1)], "it did not answer within 5 s", CLOCK)
    assert found.series is not None
    assert len(found.series.readings) == 2


@pytest.mark.parametrize(
    ("parts", "what"),
    [
        ((_part(0, 1), _part(1, 2)), "in order of time"),
        ((_part(0), _part(1, devices=[row_of_device(make_device("other"))])), "with the same devices"),
        ((_part(0, node=""),), "from one node"),
        ((_part(0, devices=[row_of_device(make_device())] * 2),), "names of their own"),
    ],
)
def test_parts_that_cannot_be_are_as_good_as_none(parts: tuple[Energy, ...], what: str) -> None:
    found = energy_of("store1:5555", parts, "", CLOCK)
    assert found.series is None
    assert found.absent.startswith("the daemon sent an invalid answer")
    assert what in found.absent
