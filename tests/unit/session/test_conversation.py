"""The two machines joined: the whole conversation, and what ends it."""

import pytest

from emlio.errors import PeerLostError, RefusedError
from emlio.session.instructions import (
    Agreed,
    AnswerCame,
    Ended,
    Judge,
    Listed,
    LookUp,
    StartStream,
    StopStream,
    StreamOpened,
)
from emlio.session.states import DaemonState, RankState
from emlio.wire.limits import ROWS_IN_WELCOME, ROWS_PER_PART
from emlio.wire.questions import AskSizes, Sizes
from emlio_testing.clock import ManualClock
from emlio_testing.link import Link, LinkFaults
from emlio_testing.session_pair import SessionPair, SessionSettings, example_rows, example_wanted

_S = 1_000_000_000
_MS = 1_000_000


class _Talk:
    """A pair, its clock and its links."""

    def __init__(self, settings: SessionSettings | None = None, delay_ns: int = 0) -> None:
        self.settings = settings if settings is not None else SessionSettings()
        self.clock = ManualClock()
        self.up = Link(self.clock, LinkFaults(delay_ns=delay_ns))
        self.down = Link(self.clock, LinkFaults(delay_ns=delay_ns))
        self.pair = SessionPair(self.clock, self.settings, up=self.up, down=self.down)

    def run(self, duration_ns: int) -> None:
        self.pair.run_until(self.clock.monotonic_ns() + duration_ns)

    def to_ready(self) -> SessionPair:
        self.pair.greet()
        self.run(200 * _MS)
        self.pair.offer(self.settings.rows)
        self.run(200 * _MS)
        return self.pair

    def to_streaming(self) -> SessionPair:
        self.to_ready().open()
        self.run(200 * _MS)
        return self.pair

    def state(self) -> tuple[RankState, DaemonState | None]:
        return self.pair.rank.state, self.pair.daemon.state if self.pair.daemon is not None else None


def test_the_conversation_goes_from_hello_to_streaming_in_order() -> None:
    talk = _Talk(delay_ns=15 * _MS)
    pair = talk.pair
    pair.greet()
    assert talk.state() == (RankState.GREETING, None)
    talk.run(100 * _MS)
    assert talk.state() == (RankState.LISTED, DaemonState.GREETED)
    pair.offer(talk.settings.rows)
    assert pair.rank.state is RankState.OFFERING
    talk.run(100 * _MS)
    assert talk.state() == (RankState.READY, DaemonState.AGREED)
    pair.open(epoch=3, origin=64, slot=5)
    talk.run(100 * _MS)
    assert talk.state() == (RankState.STREAMING, DaemonState.STREAMING)
    assert [type(event) for event in pair.log] == [Listed, Judge, Agreed, StartStream, StreamOpened]
    assert pair.log[0] == Listed(rows=talk.settings.rows, missing=())
    assert pair.log[-1] == StreamOpened(stream=1, lanes=2)
    assert pair.running is not None
    assert (pair.running.epoch, pair.running.origin, pair.running.slot) == (3, 64, 5)
    pair.leave()
    talk.run(100 * _MS)
    assert talk.state() == (RankState.OVER, DaemonState.OVER)
    assert pair.log[-2:] == [StopStream(), Ended(reason="the rank sent goodbye")]
    assert pair.error is None


def test_the_round_trip_is_measured_from_the_first_answer_on() -> None:
    talk = _Talk(delay_ns=15 * _MS)
    assert talk.pair.rank.round_trip_ns is None
    talk.to_ready()
    assert talk.pair.rank.round_trip_ns == 30 * _MS


@pytest.mark.parametrize("rows", [1, ROWS_IN_WELCOME, ROWS_IN_WELCOME + 1, ROWS_PER_PART + 1, 2 * ROWS_PER_PART + 1])
def test_a_long_list_of_shards_comes_and_goes_in_parts(rows: int) -> None:
    talk = _Talk(SessionSettings(rows=example_rows(rows), knows_catalog=False))
    pair = talk.to_ready()
    assert pair.log[0] == Listed(rows=talk.settings.rows, missing=())
    assert pair.catalog == talk.settings.rows
    assert talk.state() == (RankState.READY, DaemonState.AGREED)


def test_heartbeats_keep_an_idle_session_alive_on_both_sides() -> None:
    talk = _Talk(delay_ns=50 * _MS)
    talk.to_streaming()
    talk.run(100 * _S)
    assert talk.state() == (RankState.STREAMING, DaemonState.STREAMING)
    # The daemon allows 5 s, so a rank speaks every second: often enough for four lost ones, and not oftener.
    assert 100 <= talk.up.sent <= 115


def test_a_daemon_that_falls_silent_is_given_up_at_the_timeout_and_not_before() -> None:
    talk = _Talk()
    pair = talk.to_streaming()
    talk.down.cut()
    # The last pong came up to a second before the cut.
    talk.run(8_900 * _MS)
    assert not pair.failed
    talk.run(1_200 * _MS)
    assert pair.error is not None
    assert isinstance(pair.error.error, PeerLostError)
    assert "store1:5555 must send something within 10 s, nothing came for 10 s" in str(pair.error.error)
    assert pair.rank.state is RankState.OVER


def test_a_rank_that_falls_silent_is_forgotten_and_its_stream_stopped() -> None:
    talk = _Talk()
    pair = talk.to_streaming()
    talk.up.cut()
    talk.run(6 * _S)
    assert pair.running is None
    assert pair.log[-2] == StopStream()
    assert pair.ended is not None
    assert "the rank was silent for 5 s" in pair.ended.reason
    assert pair.ended.failure == "lost"


def test_a_session_without_a_stream_that_falls_silent_ended_and_was_not_lost() -> None:
    # Workers of a DataLoader look at single records and end without a goodbye.
    talk = _Talk()
    pair = talk.to_ready()
    talk.up.cut()
    talk.run(6 * _S)
    assert pair.ended is not None
    assert (pair.ended.reason, pair.ended.failure) == ("the rank was silent for 5 s", "")


def test_a_daemon_that_was_never_there_is_an_error_that_names_address_and_remedy() -> None:
    talk = _Talk()
    talk.up.cut()
    talk.pair.greet()
    talk.run(9_999 * _MS)
    assert not talk.pair.failed
    talk.run(2 * _MS)
    assert talk.pair.error is not None
    message = str(talk.pair.error.error)
    assert "store1:5555 must answer within 10 s" in message
    assert "Check that emlio-daemon is running there" in message


def test_a_question_without_an_answer_ends_at_its_deadline_although_the_daemon_still_answers_pings() -> None:
    talk = _Talk(SessionSettings(timeout_ns=3 * _S))
    pair = talk.to_ready()
    pair.rank.open(example_wanted(), now_ns=talk.clock.monotonic_ns())  # is lost
    talk.run(2_900 * _MS)
    assert not pair.failed
    assert pair.rank.silence_ns(talk.clock.monotonic_ns()) < 1_500 * _MS
    talk.run(200 * _MS)
    assert pair.error is not None
    assert "must answer within 3 s" in str(pair.error.error)


def test_a_refused_plan_ends_the_session_on_both_sides_with_the_reason() -> None:
    talk = _Talk(SessionSettings(refusal="shard a has two digests"))
    pair = talk.to_ready()
    assert talk.state() == (RankState.OVER, DaemonState.OVER)
    assert pair.error is not None
    assert isinstance(pair.error.error, RefusedError)
    assert pair.error.error.code == "plan-refused"
    assert "store1:5555 refused: shard a has two digests" in str(pair.error.error)


def test_opening_again_replaces_the_stream_and_stops_the_one_before_first() -> None:
    talk = _Talk()
    pair = talk.to_streaming()
    pair.open(slot=99)
    talk.run(_S)
    assert [type(event) for event in pair.log[-3:]] == [StopStream, StartStream, StreamOpened]
    assert pair.running is not None
    assert (pair.running.stream, pair.running.slot) == (2, 99)
    assert pair.log[-1] == StreamOpened(stream=2, lanes=2)


def test_the_answer_to_an_opening_that_was_replaced_is_ignored() -> None:
    talk = _Talk(delay_ns=20 * _MS)
    pair = talk.to_ready()
    pair.open(slot=1)
    pair.open(slot=2)
    assert pair.rank.state is RankState.OPENING
    talk.run(_S)
    opened = [event for event in pair.log if isinstance(event, StreamOpened)]
    assert opened == [StreamOpened(stream=2, lanes=2)]
    assert talk.state() == (RankState.STREAMING, DaemonState.STREAMING)


def test_sizes_asked_for_beside_a_stream_come_and_leave_both_sides_as_they_were() -> None:
    talk = _Talk(delay_ns=20 * _MS)
    pair = talk.to_streaming()
    questions = [("train-000001", 90, 50), ("train-000001", 100, 1), ("nowhere", 0, 1)]
    abouts = [AskSizes(shard=shard, first=first, count=count) for shard, first, count in questions]
    for about in abouts:
        pair.ask(about)
    assert pair.log[-1] == StreamOpened(stream=1, lanes=2)
    talk.run(_S)
    assert talk.state() == (RankState.STREAMING, DaemonState.STREAMING)
    assert pair.running is not None
    assert [event.question.about for event in pair.log if isinstance(event, LookUp)] == abouts
    assert [(event.about, event.told) for event in pair.log if isinstance(event, AnswerCame)] == [
        (abouts[0], Sizes(offset=4500, sizes=b"\x32\0\0\0" * 10)),
        (abouts[1], Sizes(offset=0, sizes=b"")),
        (abouts[2], Sizes(offset=0, sizes=b"")),
    ]


def test_a_daemon_that_shuts_down_says_so() -> None:
    talk = _Talk()
    pair = talk.to_streaming()
    assert pair.daemon is not None
    pair.daemon_does(pair.daemon.drain())
    talk.run(_S)
    assert pair.running is None
    assert pair.error is not None
    assert "ended the session: the daemon is shutting down" in str(pair.error.error)


def test_a_rank_may_leave_at_any_moment_and_twice() -> None:
    talk = _Talk()
    talk.pair.leave()
    assert talk.up.sent == 0
    other = _Talk()
    other.to_ready()
    before = other.up.sent
    other.pair.leave()
    other.pair.leave()
    assert other.up.sent == before + 1
