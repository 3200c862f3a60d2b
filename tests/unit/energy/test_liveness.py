import time

from emlio.energy.sources.machine import burn, which_live
from emlio_testing.energy_series import make_device

SECOND = 1_000_000_000


class Scripted:
    """A source that shows one value after the other, and the last for ever."""

    def __init__(self, *values: int | None) -> None:
        self.device = make_device()
        self._values = list(values)

    def read(self) -> int | None:
        return self._values.pop(0) if len(self._values) > 1 else self._values[0]

    def close(self) -> None:
        pass


class Burner:
    def __init__(self) -> None:
        self.burnt_ns = 0

    def __call__(self, duration_ns: int) -> None:
        self.burnt_ns += duration_ns


def test_a_counter_lives_only_if_it_moves() -> None:
    sources = [Scripted(5, 6), Scripted(0), Scripted(None), Scripted(9, 2)]
    assert which_live(sources, patience_ns=SECOND, burner=Burner()) == (True, False, False, True)


def test_one_that_could_not_be_read_at_first_is_compared_with_its_first_value() -> None:
    sources = [Scripted(None, 7), Scripted(None, 7, 7, 8)]
    assert which_live(sources, patience_ns=SECOND, burner=Burner()) == (False, True)


def test_a_value_that_goes_missing_is_no_movement() -> None:
    assert which_live([Scripted(7, None, 7)], patience_ns=SECOND, burner=Burner()) == (False,)


def test_it_ends_as_soon_as_all_have_moved_and_else_when_patience_does() -> None:
    quick, slow = Burner(), Burner()
    which_live([Scripted(1, 2), Scripted(1, 1, 2)], patience_ns=SECOND, burner=quick)
    assert quick.burnt_ns < SECOND / 2
    which_live([Scripted(1, 2), Scripted(1)], patience_ns=SECOND, burner=slow)
    assert slow.burnt_ns == SECOND


def test_without_candidates_nothing_is_burnt() -> None:
    burner = Burner()
    assert which_live([], patience_ns=SECOND, burner=burner) == ()
    assert burner.burnt_ns == 0


def test_burning_uses_the_processor_for_as_long_as_it_says() -> None:
    begun_ns, used_ns = time.monotonic_ns(), time.thread_time_ns()
    burn(20_000_000)
    assert time.monotonic_ns() - begun_ns >= 20_000_000
    assert time.thread_time_ns() > used_ns
