"""The bound that follows the path."""

import pytest

from emlio.receiver.machine.intake import AutoWindow
from emlio.receiver.setup.config import LARGEST_WINDOW_BYTES

_MS = 1_000_000
_MIB = 1 << 20


def _settled(rate: int, round_trip_ns: int, *, before: AutoWindow | None = None) -> AutoWindow:
    """After ten seconds at so many bytes a second."""
    window = before or AutoWindow()
    for tick in range(101):
        window.note(rate * tick // 10, tick * 100 * _MS, round_trip_ns)
    return window


@pytest.mark.parametrize(
    ("rate", "round_trip_ns", "size_mib"),
    [
        (0, 100 * _MS, 128),
        (1_250_000_000, 0, 128),
        (1_250_000_000, 30 * _MS, 128),
        (1_250_000_000, 100 * _MS, 243),
        (1_250_000_000, 300 * _MS, 256),
        (200_000_000, 100 * _MS, 128),
    ],
)
def test_it_holds_what_is_on_its_way_and_some_to_spare(rate: int, round_trip_ns: int, size_mib: int) -> None:
    assert round(_settled(rate, round_trip_ns).size_bytes / _MIB) == pytest.approx(size_mib, abs=1)


def test_it_grows_while_the_path_asks_for_it_and_falls_when_the_user_is_slower() -> None:
    window = AutoWindow()
    grew = [window.note(tick * 200_000_000, tick * 200 * _MS, 100 * _MS) for tick in range(8)]
    assert any(grew)
    assert window.size_bytes > 128 * _MIB
    assert not window.note(1_400_000_001, 9_000 * _MS, 100 * _MS)
    assert window.size_bytes == 128 * _MIB


def test_it_is_never_larger_than_its_bound() -> None:
    window = AutoWindow()
    window.note(0, 0, 10_000 * _MS)
    assert window.note(1 << 60, 20_000 * _MS, 10_000 * _MS)
    assert window.size_bytes == LARGEST_WINDOW_BYTES
