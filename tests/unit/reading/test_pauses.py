"""Sharing pauses where it costs more than the disk that it saves, and only there."""

import pytest

from emlio.reading.sharing.pauses import Pauses

_S = 1_000_000_000
_PAGES = 1000


class Seconds:
    """One second after the other, each with what messages and the disk took in it."""

    def __init__(self, *, free: int = 0) -> None:
        self.pauses = Pauses()
        self.now_ns = 1000 * _S
        self.waited_ns = 0
        self.free = free

    def spend(self, work_s: float, disk_s: float, *, seconds: int = 1, filled: int = 0) -> int:
        """Spend the same each second; return the pause that begins, or 0."""
        for _ in range(seconds):
            self.now_ns += _S
            self.waited_ns += round(disk_s * _S)
            self.free = max(self.free - filled, 0)
            pause_ns = self.pauses.spent(
                round(work_s * _S), lambda: self.waited_ns, self.now_ns, free=self.free, pages=_PAGES
            )
            if pause_ns:
                return pause_ns // _S
        return 0


@pytest.mark.parametrize(
    ("work_s", "disk_s", "pauses"),
    [(0.5, 0.1, True), (0.3, 0.1, False), (0.5, 0.6, False), (1.8, 0.9, True)],
    ids=["fast disk", "little work", "slow disk", "several threads"],
)
def test_it_pauses_where_work_is_much_and_more_than_the_disk(work_s: float, disk_s: float, pauses: bool) -> None:
    assert bool(Seconds().spend(work_s, disk_s, seconds=5)) == pauses


def test_memory_that_fills_is_not_judged_however_long_that_takes() -> None:
    seconds = Seconds(free=_PAGES)
    seconds.pauses.begin_anew()
    assert not seconds.spend(1.5, 0.1, seconds=30, filled=30)
    assert seconds.free > 0
    assert seconds.spend(1.5, 0.1, seconds=10, filled=30) == 30


def test_memory_that_will_never_be_full_is_judged() -> None:
    seconds = Seconds(free=_PAGES // 2)
    assert seconds.spend(1.5, 0.1, seconds=5) == 30


def test_pauses_grow_and_begin_short_again_after_it_went_well() -> None:
    seconds, found = Seconds(), list[int]()
    for _ in range(8):
        pause_s = seconds.spend(0.5, 0.1, seconds=10)
        found.append(pause_s)
        assert seconds.pauses.is_on(seconds.now_ns)
        seconds.now_ns += pause_s * _S
        assert not seconds.pauses.is_on(seconds.now_ns)
        seconds.pauses.begin_anew()
    assert found == [30, 60, 120, 240, 480, 960, 960, 960]
    assert not seconds.spend(0.1, 0.1, seconds=2000)
    assert seconds.spend(0.5, 0.1, seconds=10) == 30


def test_a_pause_is_forgotten_with_the_jobs_that_it_was_for() -> None:
    seconds = Seconds()
    assert seconds.spend(0.5, 0.1, seconds=10) == 30
    seconds.pauses.forget()
    assert not seconds.pauses.is_on(seconds.now_ns)
    assert seconds.spend(0.5, 0.1, seconds=10) == 30
