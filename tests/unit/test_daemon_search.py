"""How much of a thread's time a search gets."""

from emlio.daemon.reading.stream import FREE_NS, Search

_STRETCH_NS = 2_000_000


def test_a_search_runs_freely_at_first_and_then_for_a_tenth_of_the_time() -> None:
    search = Search()
    for _ in range(FREE_NS // _STRETCH_NS):
        search.missed(_STRETCH_NS)
        assert search.rest_ns == 0
    for _ in range(100):
        search.missed(_STRETCH_NS)
        assert search.rest_ns == 9 * _STRETCH_NS


def test_a_record_that_is_found_makes_the_next_search_free_again() -> None:
    search = Search()
    search.missed(2 * FREE_NS)
    assert search.rest_ns > 0
    search.found()
    assert search.rest_ns == 0
    search.missed(_STRETCH_NS)
    assert search.rest_ns == 0
