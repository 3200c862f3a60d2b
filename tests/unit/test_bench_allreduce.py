"""The figures of an all-reduce beside a loader, of rounds that never were."""

import msgspec
import pytest

from emlio.errors import TransportError
from emlio_bench.allreduce.reduce import Slice, rate_of, slice_of
from emlio_bench.allreduce.run import Round, allreduce_figures


def figures_by_name(*, world: int) -> dict[str, tuple[float, ...]]:
    rounds = [
        Round(loader_alone=2e9, loader_beside=1e9, reduce_alone=100e9, reduce_beside=80e9),
        # The machine is twice as slow now; the ratios are what they were.
        Round(loader_alone=1e9, loader_beside=0.5e9, reduce_alone=50e9, reduce_beside=40e9),
    ]
    return {figure.name: figure.values for figure in allreduce_figures(rounds, device="cuda", world=world)}


def test_each_is_compared_with_itself_alone_in_the_same_round() -> None:
    found = figures_by_name(world=1)
    assert found["loader, beside / alone"] == pytest.approx((0.5, 0.5))
    assert found["all-reduce, beside / alone"] == pytest.approx((0.8, 0.8))
    assert found["all-reduce alone"] == pytest.approx((100, 50))


@pytest.mark.parametrize(("world", "said"), [(1, "sends nothing"), (2, "between 2 GPUs")])
def test_the_note_says_what_a_group_of_one_cannot_show(world: int, said: str) -> None:
    one = Round(loader_alone=1, loader_beside=1, reduce_alone=1, reduce_beside=1)
    assert said in allreduce_figures([one], device="cuda", world=world)[0].note


def test_a_slice_counts_as_far_as_it_lies_in_the_window() -> None:
    second = 1_000_000_000
    slices = [Slice(begun_ns=at * second, ended_ns=(at + 1) * second, bytes=100 * (at + 1)) for at in range(4)]
    # Half of the second slice, all of the third.
    assert rate_of(slices, 3 * second // 2, 3 * second) == pytest.approx((100 + 300) / 1.5)
    with pytest.raises(TransportError, match="must report between"):
        rate_of(slices, 9 * second, 10 * second)


@pytest.mark.parametrize("span_s", [4, 25, 60, 600, 36_000])
def test_slices_that_nobody_reads_fit_into_a_pipe(span_s: int) -> None:
    year_ns = 365 * 86_400 * 1_000_000_000
    line_bytes = 1 + len(msgspec.json.encode(Slice(begun_ns=year_ns, ended_ns=year_ns, bytes=10**16)))
    # The loader may take twice its window, and up to 90 s for its start and its end.
    slices = (2 * span_s + 90) * 1e9 / slice_of(span_s * 1_000_000_000)
    assert slices * line_bytes < 65_536
