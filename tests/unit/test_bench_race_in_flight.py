import pytest
from sample_race import CONTEST, make_contest, make_epoch, make_run

from emlio.errors import ConfigError
from emlio_bench.harness.contest import InFlight
from emlio_bench.link.contract import STRETCH_NS, Stretch
from emlio_bench.race.records.order import Epoch
from emlio_bench.race.report.quantity import Quantity, seen_of
from emlio_bench.race.run.in_flight import in_flight

STRETCH_S = STRETCH_NS / 1e9


def epoch(begun: float, ended: float) -> Epoch:
    """Between two moments, in stretches."""
    return make_epoch(
        0, CONTEST.corpus, (ended - begun) * STRETCH_S, first_batch_s=0, begun_ns=round(begun * STRETCH_NS)
    )


def stretches(*means: int) -> list[Stretch]:
    return [Stretch(number=number, mean_bytes=mean, most_bytes=10 * mean) for number, mean in enumerate(means)]


def test_what_lies_between_epochs_does_not_count() -> None:
    held = stretches(90, 10, 20, 90, 30, 90)
    assert in_flight(held, [epoch(1, 3), epoch(4, 5)]) == InFlight(mean_bytes=20, peak_bytes=300)


def test_a_stretch_that_lies_in_an_epoch_in_part_counts_for_that_part() -> None:
    # Half a stretch of 100, one of 10.
    assert in_flight(stretches(100, 10), [epoch(0.5, 2)]) == InFlight(mean_bytes=40, peak_bytes=1000)


@pytest.mark.parametrize("epochs", [[], [epoch(5, 6)]], ids=["no epochs", "none in time"])
def test_where_nothing_was_gauged_nothing_is_known(epochs: list[Epoch]) -> None:
    assert in_flight(stretches(1, 2), epochs) is None
    assert in_flight([], [epoch(0, 1)]) is None


def test_a_run_says_both_in_bytes_and_one_that_was_not_gauged_says_nothing() -> None:
    contest = make_contest()
    run = make_run(contest, "emlio", in_flight=InFlight(mean_bytes=12_000_000, peak_bytes=17_000_000))
    told = [seen_of(quantity, contest, run) for quantity in (Quantity.IN_FLIGHT, Quantity.PEAK_IN_FLIGHT)]
    assert [one.value for one in told if one is not None] == [12_000_000, 17_000_000]
    assert seen_of(Quantity.IN_FLIGHT, contest, make_run(contest, "emlio")) is None


def test_a_mean_is_at_most_the_peak() -> None:
    with pytest.raises(ConfigError, match="mean in flight"):
        InFlight(mean_bytes=2, peak_bytes=1)
