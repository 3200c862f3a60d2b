from itertools import pairwise
from threading import Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emlio.energy.job.span_log import SpanLog, joined

US = 1000
MS = 1000 * US

STEPS = st.lists(st.tuples(st.integers(0, 3 * MS), st.integers(1, 3 * MS)), max_size=40)
"""Gaps and lengths."""


def laid_out(steps: list[tuple[int, int]]) -> list[tuple[int, int]]:
    pieces, at_ns = [], 0
    for gap_ns, length_ns in steps:
        pieces.append((at_ns + gap_ns, at_ns + gap_ns + length_ns))
        at_ns += gap_ns + length_ns
    return pieces


def noted(pieces: list[tuple[int, int]], **options: object) -> SpanLog:
    log = SpanLog(**options)  # type: ignore[arg-type]  # two options of two types
    for start_ns, end_ns in pieces:
        log.begin(start_ns)
        log.end(end_ns)
    return log


def test_what_lies_close_together_is_one_piece_and_steps_are_not_joined() -> None:
    pieces = [(0, MS), (MS + 50 * US, 2 * MS), (2 * MS + 100 * US, 3 * MS)]
    assert noted(pieces).cut(0, 9 * MS) == [(0, 2 * MS), (2 * MS + 100 * US, 3 * MS)]
    assert noted(pieces, joins=False).cut(0, 9 * MS) == pieces


def test_a_piece_is_cut_at_the_edges_and_its_rest_belongs_to_what_comes_after() -> None:
    log = noted([(0, 10), (20, 40)], joins=False)
    assert log.cut(5, 30) == [(5, 10), (20, 30)]
    assert log.cut(30, 100) == [(30, 40)]
    assert log.cut(0, 100) == []


def test_work_that_is_not_done_yet_counts_until_the_edge() -> None:
    log = SpanLog()
    log.begin(10)
    assert log.cut(0, 50) == [(10, 50)]
    log.end(80)
    assert log.cut(50, 100) == [(50, 80)]


def test_an_end_without_a_beginning_is_nothing() -> None:
    log = SpanLog()
    log.end(5)
    log.begin(7)
    log.begin(9)
    log.end(11)
    assert log.cut(0, 99) == [(9, 11)]


@given(steps=STEPS, most=st.sampled_from([2, 4, 8]))
def test_within_a_bound_no_time_is_lost_and_none_is_added(steps: list[tuple[int, int]], most: int) -> None:
    found = noted(laid_out(steps), joins=False, most=most).cut(0, 10**12)
    assert len(found) <= most
    assert sum(end - start for start, end in found) == sum(length for _, length in steps)
    assert all(before[1] <= after[0] for before, after in pairwise(found))


@given(steps=STEPS, cuts=st.lists(st.integers(0, 200 * MS)))
def test_cut_anywhere_the_parts_are_the_whole(steps: list[tuple[int, int]], cuts: list[int]) -> None:
    log, edges = noted(laid_out(steps), joins=False), sorted({0, *cuts, 10**12})
    parts = [piece for begun, ended in pairwise(edges) for piece in log.cut(begun, ended)]
    assert sum(end - start for start, end in parts) == sum(length for _, length in steps)


@pytest.mark.parametrize(
    ("pieces", "union"),
    [([], []), ([(5, 9), (0, 3)], [(0, 3), (5, 9)]), ([(0, 5), (3, 4), (5, 6), (8, 9)], [(0, 6), (8, 9)])],
)
def test_several_threads_are_at_work_while_one_is(pieces: list[tuple[int, int]], union: list[tuple[int, int]]) -> None:
    assert joined(pieces) == union


def test_one_thread_may_cut_while_another_adds() -> None:
    log, count = SpanLog(joins=False), 20_000

    def add() -> None:
        for number in range(count):
            log.add(number * 10, number * 10 + 7)

    thread = Thread(target=add)
    thread.start()
    found = 0
    while thread.is_alive():
        found += sum(end - start for start, end in log.cut(0, 10 * count))
    found += sum(end - start for start, end in log.cut(0, 10 * count))
    assert found == 7 * count
