"""Devices and readings on their way: as they were, within bounds, and what cannot be refused."""

from typing import Any

import pytest

from emlio.energy.export.wire_rows import device_of, reading_of, row_of_device, row_of_reading
from emlio.energy.values.counter import Event
from emlio.energy.values.device import Domain, Method
from emlio.errors import RemoteProtocolError
from emlio.wire.control import ControlMessage, Pong, decode_control, encode_control
from emlio.wire.energy import DeviceRow, ReadingRow
from emlio.wire.limits import (
    MAX_CONTROL_BYTES,
    MAX_ENERGY_DEVICES,
    MAX_NOTE_LENGTH,
    READINGS_PER_ENERGY,
    VALUES_PER_ENERGY,
)
from emlio.wire.questions import Answer, AskEnergy, Energy, Question
from emlio_testing.energy_series import make_device, make_reading

_LARGEST = 2**62 - 1


def _device(**changes: Any) -> DeviceRow:
    fields: dict[str, Any] = {
        "name": "package-0",
        "domain": "cpu",
        "source": "powercap",
        "method": "measured",
        "range_uj": None,
        "most_watts": None,
        "rated_watts": None,
        "error": None,
        "note": "",
        "adds": True,
    }
    return DeviceRow(**(fields | changes))


def _reading(*totals: int | None, events: tuple[str, ...] = (), seq: int = 0, count: int | None = None) -> ReadingRow:
    return ReadingRow(seq, 1, 1, 0, list(totals), list(events), 0, False, *[count] * 6)


def _answer(**changes: Any) -> Answer:
    fields: dict[str, Any] = {
        "node": "s1",
        "boot": "b",
        "recording": 1,
        "interval_ns": 1,
        "devices": [],
        "readings": [],
    }
    return Answer(number=1, told=Energy(**(fields | changes)))


def _question(from_ns: int, to_ns: int) -> Question:
    return Question(session=1, number=1, about=AskEnergy(from_ns=from_ns, to_ns=to_ns))


def _over_the_wire(answer: Answer) -> Energy:
    came = decode_control(encode_control(answer))
    assert isinstance(came, Answer)
    assert isinstance(came.told, Energy)
    return came.told


def test_devices_and_readings_come_back_as_they_were() -> None:
    devices = [
        make_device(range_uj=262_143_328_850, most_watts=500.0, rated_watts=125.0),
        make_device("dram-model", Domain.DRAM, source="model", method=Method.ESTIMATED, error=0.5, note="0.39 W/GB"),
        make_device("psys-0", Domain.BOARD, adds=False),
    ]
    readings = [
        make_reading(3, 10, 0, None, 2**60, events=(Event.NONE, Event.GAP, Event.WRAPPED), missed=4, edge=True),
        make_reading(4, 20, 1, 2, 2**60, cpu_busy_ns=1, cpu_steal_ns=0, cpu_total_ns=9, net_rx_bytes=2, net_tx_bytes=3),
        make_reading(5, 30, 1, 2, 2**60, memory_bytes=2**45),
    ]
    came = _over_the_wire(
        _answer(
            devices=[row_of_device(device) for device in devices],
            readings=[row_of_reading(reading) for reading in readings],
        )
    )
    assert [device_of(row) for row in came.devices] == devices
    assert [reading_of(row) for row in came.readings] == readings


def test_a_note_that_is_too_long_is_cut() -> None:
    row = row_of_device(make_device(note="ä" * (MAX_NOTE_LENGTH + 1)))
    assert device_of(row).note == "ä" * MAX_NOTE_LENGTH


@pytest.mark.parametrize(
    ("row", "what"),
    [
        (_device(domain="soul"), "soul"),
        (_device(method="guessed"), "guessed"),
        (_device(source="rumour"), "rumour"),
        (_device(most_watts=float("nan")), "most_watts"),
        (_device(method="estimated"), "must have an error"),
        (_device(name="a\nb"), "printable"),
        (_device(domain="board"), "must not be added"),
    ],
)
def test_a_device_that_cannot_be_is_the_daemons_fault(row: DeviceRow, what: str) -> None:
    with pytest.raises(RemoteProtocolError, match=what):
        device_of(_over_the_wire(_answer(devices=[row])).devices[0])


@pytest.mark.parametrize("row", [_reading(1, events=("exploded",)), _reading(1, 2, events=("gap",))])
def test_a_reading_that_cannot_be_is_the_daemons_fault(row: ReadingRow) -> None:
    with pytest.raises(RemoteProtocolError, match="invalid reading 0"):
        reading_of(_over_the_wire(_answer(readings=[row])).readings[0])


@pytest.mark.parametrize(
    ("largest", "too_large"),
    [
        pytest.param(
            _question(0, _LARGEST),
            _question(-1, 0),
            id="past",
        ),
        pytest.param(
            _question(0, _LARGEST),
            _question(0, 2**62),
            id="end",
        ),
        pytest.param(
            _answer(devices=[_device()] * MAX_ENERGY_DEVICES),
            _answer(devices=[_device()] * (MAX_ENERGY_DEVICES + 1)),
            id="devices",
        ),
        pytest.param(
            _answer(readings=[_reading()] * READINGS_PER_ENERGY),
            _answer(readings=[_reading()] * (READINGS_PER_ENERGY + 1)),
            id="readings",
        ),
        pytest.param(
            _answer(readings=[_reading(*[_LARGEST] * MAX_ENERGY_DEVICES)]),
            _answer(readings=[_reading(*[0] * (MAX_ENERGY_DEVICES + 1))]),
            id="totals",
        ),
        pytest.param(_answer(readings=[_reading(None)]), _answer(readings=[_reading(-1)]), id="total"),
        pytest.param(_answer(readings=[_reading(count=_LARGEST)]), _answer(readings=[_reading(count=2**62)]), id="use"),
        pytest.param(
            _answer(devices=[_device(note="x" * MAX_NOTE_LENGTH)]),
            _answer(devices=[_device(note="x" * (MAX_NOTE_LENGTH + 1))]),
            id="note",
        ),
        pytest.param(_answer(devices=[_device()]), _answer(devices=[_device(name="")]), id="no name"),
    ],
)
def test_the_largest_value_is_taken_and_one_more_is_not(largest: ControlMessage, too_large: ControlMessage) -> None:
    assert decode_control(encode_control(largest)) == largest
    with pytest.raises(RemoteProtocolError):
        decode_control(encode_control(too_large))


@pytest.mark.parametrize("devices", [1, 10, MAX_ENERGY_DEVICES])
def test_the_largest_answer_is_one_control_message(devices: int) -> None:
    count = min(READINGS_PER_ENERGY, VALUES_PER_ENERGY // (12 + devices))
    row = ReadingRow(
        _LARGEST,
        _LARGEST,
        _LARGEST,
        _LARGEST,
        [_LARGEST] * devices,
        ["wrapped"] * devices,
        _LARGEST,
        True,
        *[_LARGEST] * 6,
    )
    named = _device(name="ä" * 255, note="ä" * MAX_NOTE_LENGTH)
    data = encode_control(_answer(devices=[named] * devices, readings=[row] * count))
    assert len(data) <= MAX_CONTROL_BYTES // 2


def test_the_pong_of_an_older_daemon_tells_no_time() -> None:
    older = (
        "e34d043ae296ef85a474797065a4706f6e67a56e6f6e636509aa73656e745f6279746573ce00100000aa626c6f636b65645f6e7305"
        "aa737461727665645f6e7307"
    )
    assert decode_control(bytes.fromhex(older)) == Pong(nonce=9, sent_bytes=1 << 20, blocked_ns=5, starved_ns=7)
