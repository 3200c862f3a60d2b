"""Samples of the daemon's clock, from pongs."""

import pytest

from emlio.clocks.fit import fit_clock
from emlio.session.instructions import Send
from emlio.session.rank import RankSession
from emlio.session.states import RankState
from emlio.wire.control import Ping, Pong
from emlio_testing.clock import ManualClock
from emlio_testing.link import Link, LinkFaults
from emlio_testing.session_pair import SessionPair, SessionSettings
from emlio_testing.session_states import rank_in

_S = 1_000_000_000
_MS = 1_000_000


def test_pongs_tell_the_daemons_clock_and_the_log_outlives_the_session() -> None:
    clock = ManualClock()
    slow = LinkFaults(delay_ns=15 * _MS)
    pair = SessionPair(clock, SessionSettings(ahead_ns=7 * 3600 * _S), up=Link(clock, slow), down=Link(clock, slow))
    pair.greet()
    pair.run_until(30 * _S)
    exchanges = pair.rank.clocks.exchanges
    assert len(exchanges) > 20
    assert {one.offset_ns for one in exchanges} == {7 * 3600 * _S}
    assert {one.round_trip_ns for one in exchanges} == {30 * _MS}
    again = RankSession(peer="store1:5555", timeout_ns=10 * _S, clocks=pair.rank.clocks)
    assert again.clocks.exchanges == exchanges
    assert fit_clock(exchanges).theirs_at(20 * _S) == 20 * _S + 7 * 3600 * _S


def _ping(rank: RankSession, at_ns: int) -> int:
    (sent,) = rank.tick(at_ns)
    assert isinstance(sent, Send)
    assert isinstance(sent.message, Ping)
    return sent.message.nonce


@pytest.mark.parametrize(
    ("heard_ns", "said_ns"),
    [(0, 0), (2 * _S, _S), (_S, 100 * _S)],
    ids=["an older daemon", "said before it was heard", "thought for longer than all of it took"],
)
def test_a_pong_that_tells_no_time_or_a_wrong_one_measures_the_round_trip_only(heard_ns: int, said_ns: int) -> None:
    rank = rank_in(RankState.STREAMING)
    nonce = _ping(rank, 2 * _S)
    assert rank.receive(Pong(nonce=nonce, heard_ns=heard_ns, said_ns=said_ns), 2 * _S + 5) == []
    assert rank.clocks.exchanges == ()
    assert rank.round_trip_ns == 0
    assert rank.state is RankState.STREAMING


def test_a_pong_nobody_asked_for_says_nothing_of_the_clock() -> None:
    rank = rank_in(RankState.STREAMING)
    rank.receive(Pong(nonce=999, heard_ns=5, said_ns=6), _S)
    assert rank.clocks.exchanges == ()
