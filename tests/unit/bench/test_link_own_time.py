import select
import socket
from collections.abc import Generator
from contextlib import contextmanager

import pytest

from emlio_bench.link.own_time import OwnTimeProbe, own_time_ns, trial_rtt_ns

MS = 1_000_000


@contextmanager
def pingers() -> Generator[tuple[socket.socket, socket.socket], None, None]:
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as near,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as far,
    ):
        for one in (near, far):
            one.bind(("127.0.0.1", 0))
        yield near, far


def test_it_is_what_the_quickest_ping_took_beyond_what_they_were_held() -> None:
    assert own_time_ns([30_400_000] * 7, 30 * MS) == 400_000
    # A machine that does something else makes pings longer and never shorter.
    busy = [30_300_000, 30_400_000, 30_900_000, 31_000_000, 38_000_000, 55_000_000, 90_000_000]
    assert own_time_ns(busy, 30 * MS) == 300_000
    assert own_time_ns([33 * MS] * 7, 30 * MS) == 600_000


@pytest.mark.parametrize(
    ("pings_ns", "held_ns", "own_ns"),
    [([], MS, 0), ([900_000], 400_000, 400_000), ([MS - 1], MS, 0), ([50_000], 0, 0)],
    ids=["nothing came back", "never more than was held", "never below nothing", "nothing was held"],
)
def test_it_is_a_part_of_what_was_held(pings_ns: list[int], held_ns: int, own_ns: int) -> None:
    assert own_time_ns(pings_ns, held_ns) == own_ns


def test_it_is_found_out_in_no_more_than_a_few_round_trips_of_30_ms() -> None:
    assert [trial_rtt_ns(rtt) for rtt in (0, MS, 30 * MS, 10_000 * MS)] == [0, MS, 30 * MS, 30 * MS]


def test_a_probe_pings_until_it_says_that_it_has_ended() -> None:
    with pingers() as (near, far):
        probe = OwnTimeProbe(near, far)
        assert select.select([probe.ended], [], [])[0] == [probe.ended]
        pings_ns = probe.close()
    assert len(pings_ns) == 7
    assert min(pings_ns) > 0


def test_where_nothing_comes_back_a_probe_ends_and_knows_nothing() -> None:
    with pingers() as (near, far):
        far.close()
        probe = OwnTimeProbe(near, far)
        assert select.select([probe.ended], [], [])[0] == [probe.ended]
        assert probe.close() == ()
