"""Lanes reserved while the plan is agreed upon: for the first stream, once, for a while, and never at a session's cost."""

import pytest

from emlio.errors import LocalProtocolError, RemoteProtocolError
from emlio.session.daemon import DaemonSession
from emlio.session.instructions import (
    DaemonInstruction,
    Ended,
    Failed,
    FreeLanes,
    LanesLost,
    LanesReserved,
    RankInstruction,
    ReserveLanes,
    Send,
    StartStream,
    StopStream,
    StreamOpened,
)
from emlio.session.rank import RankSession
from emlio.session.reservation import RESERVED_NS
from emlio.session.states import DaemonState, RankState
from emlio.session.stream_wanted import StreamWanted
from emlio.testing.clock import ManualClock
from emlio.testing.link import Link, LinkFaults
from emlio.testing.session_pair import SessionPair, SessionSettings, example_hello, example_offer, example_rows
from emlio.testing.session_states import daemon_in, example_open, example_welcome, rank_in
from emlio.wire.control import Open, Opened, PlanReply, Refused, Reserve, Reserved, ShardsReply, Stop

_MS = 1_000_000
_SECRET = b"r" * 32
_ASK = Reserve(session=0, lanes=2)
_TOLD = Reserved(session=7, ports=[6101, 6102], secret=_SECRET)
_OPEN = example_open(lanes=2)


def _asking(state: RankState) -> RankSession:
    """A rank that asked for two lanes while it greeted, and has come to `state`."""
    return rank_in(state, reserve=2)


def _holding(state: RankState = RankState.READY) -> RankSession:
    rank = _asking(state)
    assert rank.receive(_TOLD, 0) == [LanesReserved(ports=(6101, 6102), secret=_SECRET)]
    return rank


def _order(rank: RankSession, now_ns: int = 0) -> list[RankInstruction]:
    return rank.open(
        StreamWanted(epoch=0, origin=0, slot=0, owned=b"\x1f", lanes=rank.reserved_lanes or 5), now_ns=now_ns
    )


def _kept(state: DaemonState = DaemonState.AGREED) -> DaemonSession:
    """A daemon that keeps two lanes."""
    daemon = daemon_in(state)
    assert daemon.receive(_ASK, 0) == [ReserveLanes(lanes=2)]
    assert daemon.reserved([6101, 6102], _SECRET) == [Send(message=_TOLD)]
    return daemon


def _refusal(did: list[DaemonInstruction]) -> str:
    assert isinstance(did[0], Send)
    assert isinstance(did[0].message, Refused)
    assert did[0].message.code == "protocol"
    assert isinstance(did[-1], Ended)
    return did[0].message.text


# ---- the rank -------------------------------------------------------------------------------------------------------


def test_a_rank_asks_behind_its_hello_before_it_knows_a_session() -> None:
    rank = rank_in(RankState.GREETING)
    assert rank.reserve(2) == [Send(message=_ASK)]
    assert rank.state is RankState.GREETING


@pytest.mark.parametrize("state", [state for state in RankState if state is not RankState.GREETING])
def test_a_rank_asks_at_no_other_time(state: RankState) -> None:
    with pytest.raises(LocalProtocolError, match="'reserve' is not allowed"):
        rank_in(state).reserve(2)


def test_a_rank_asks_once() -> None:
    with pytest.raises(LocalProtocolError, match="once in a session"):
        _asking(RankState.GREETING).reserve(2)


@pytest.mark.parametrize("state", [RankState.LISTING, RankState.LISTED, RankState.OFFERING, RankState.READY])
def test_what_is_reserved_is_connected_at_once_whatever_is_spoken_of(state: RankState) -> None:
    rank = _holding(state)
    assert (rank.state, rank.reserved_lanes) == (state, 2)


def test_the_first_order_gets_the_lanes_and_the_second_has_none() -> None:
    rank = _holding()
    order = _order(rank)[-1]
    assert isinstance(order, Send)
    assert isinstance(order.message, Open)
    assert order.message.lanes == 2
    opened = rank.receive(Opened(stream=1, ports=[6101, 6102], secret=_SECRET), 0)
    assert opened == [StreamOpened(stream=1, ports=(6101, 6102), secret=_SECRET, reserved=True)]
    assert rank.reserved_lanes == 0
    assert not any(isinstance(one, LanesLost) for one in _order(rank))
    again = rank.receive(Opened(stream=2, ports=[6101, 6102], secret=_SECRET), 0)
    assert again == [StreamOpened(stream=2, ports=(6101, 6102), secret=_SECRET, reserved=False)]


@pytest.mark.parametrize(
    ("ports", "secret"),
    [([6101, 6102], b"s" * 32), ([6102, 6101], _SECRET), ([6101], _SECRET), ([6001, 6002], b"s" * 32)],
)
def test_a_stream_over_other_lanes_is_not_over_those_that_are_held(ports: list[int], secret: bytes) -> None:
    rank = _holding()
    _order(rank)
    opened = rank.receive(Opened(stream=1, ports=ports, secret=secret), 0)
    assert opened == [StreamOpened(stream=1, ports=tuple(ports), secret=secret, reserved=False)]


def test_an_order_that_replaces_the_first_gives_the_lanes_up_before_it_is_sent() -> None:
    rank = _holding()
    _order(rank)
    lost, sent = _order(rank)
    assert lost == LanesLost()
    assert isinstance(sent, Send)
    # The daemon gave the first order the lanes, and that order's answer is not looked at.
    assert rank.receive(Opened(stream=1, ports=[6101, 6102], secret=_SECRET), 0) == []


def test_an_order_that_is_taken_back_gives_the_lanes_up() -> None:
    rank = _holding()
    _order(rank)
    assert rank.stop() == [LanesLost(), Send(message=Stop(session=7))]
    assert rank.reserved_lanes == 0


def test_an_answer_that_comes_after_the_first_order_still_serves_it() -> None:
    rank = _asking(RankState.OPENING)
    assert rank.receive(_TOLD, 0) == [LanesReserved(ports=(6101, 6102), secret=_SECRET)]
    (opened,) = rank.receive(Opened(stream=1, ports=[6101, 6102], secret=_SECRET), 0)
    assert isinstance(opened, StreamOpened)
    assert opened.reserved


@pytest.mark.parametrize("given_up", ["replaced", "taken back", "opened"])
def test_an_answer_that_comes_when_nothing_waits_for_it_is_passed_over(given_up: str) -> None:
    rank = _asking(RankState.OPENING)
    match given_up:
        case "replaced":
            _order(rank)
        case "taken back":
            rank.stop()
        case _:
            rank.receive(Opened(stream=1, ports=[6001]), 0)
    state = rank.state
    assert rank.receive(_TOLD, 0) == []
    assert rank.state is state


def test_a_daemon_that_has_no_lanes_now_changes_nothing() -> None:
    rank = _asking(RankState.READY)
    assert rank.receive(Reserved(session=7, ports=[]), 0) == []
    assert rank.reserved_lanes == 0
    assert not any(isinstance(one, LanesLost) for one in _order(rank))
    (opened,) = rank.receive(Opened(stream=1, ports=[6001]), 0)
    assert opened == StreamOpened(stream=1, ports=(6001,), reserved=False)


def test_lanes_that_are_not_ordered_in_time_are_given_up_and_the_session_goes_on() -> None:
    rank = _holding()
    rank.expect_within(100 * RESERVED_NS)
    assert not any(isinstance(one, LanesLost) for one in rank.tick(RESERVED_NS - 1))
    assert LanesLost() in rank.tick(RESERVED_NS)
    assert (rank.state, rank.reserved_lanes) == (RankState.READY, 0)
    assert not any(isinstance(one, LanesLost) for one in rank.tick(RESERVED_NS + 1))


def test_lanes_that_were_ordered_are_held_until_the_answer_comes() -> None:
    rank = _holding()
    rank.expect_within(100 * RESERVED_NS)
    _order(rank, RESERVED_NS - 1)
    assert not any(isinstance(one, LanesLost) for one in rank.tick(2 * RESERVED_NS))


def test_a_rank_looks_after_its_lanes_in_time() -> None:
    rank = _asking(RankState.READY)
    rank.expect_within(100 * RESERVED_NS)
    rank.tick(RESERVED_NS)  # pings, and the next ping is due long after
    rank.receive(_TOLD, RESERVED_NS)
    deadline_ns = rank.deadline_ns()
    assert deadline_ns is not None
    assert deadline_ns <= 2 * RESERVED_NS


@pytest.mark.parametrize("told", [_TOLD, Reserved(session=7, ports=[])])
def test_lanes_that_nobody_asked_for_are_an_error(told: Reserved) -> None:
    did = rank_in(RankState.READY).receive(told, 0)
    assert isinstance(did[-1], Failed)
    assert isinstance(did[-1].error, RemoteProtocolError)
    assert "nobody asked for" in str(did[-1].error)


@pytest.mark.parametrize(
    "told", [Reserved(session=8, ports=[6101], secret=_SECRET), Reserved(session=7, ports=[6101], secret=b"short")]
)
def test_lanes_of_another_session_or_without_a_secret_to_derive_keys_from_are_an_error(told: Reserved) -> None:
    did = rank_in(RankState.READY, "aes-256-gcm", reserve=2).receive(told, 0)
    assert isinstance(did[-1], Failed)
    assert isinstance(did[-1].error, RemoteProtocolError)


# ---- the daemon -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "state", [DaemonState.GREETED, DaemonState.JUDGING, DaemonState.COLLECTING, DaemonState.AGREED]
)
def test_a_daemon_binds_lanes_before_the_first_order_and_tells_where(state: DaemonState) -> None:
    assert _kept(state).state is state


def test_the_first_order_for_as_many_takes_the_lanes_that_are_kept() -> None:
    daemon = _kept()
    assert daemon.receive(_OPEN, RESERVED_NS - 1) == [StartStream(order=_OPEN)]
    assert daemon.receive(Stop(session=7), 0) == [StopStream()]
    assert daemon.end("it has gone") == [Ended(reason="it has gone")]


def test_an_order_for_another_number_frees_the_lanes_before_its_own_are_bound() -> None:
    order = example_open(lanes=3)
    assert _kept().receive(order, 0) == [FreeLanes(), StartStream(order=order)]


def test_an_order_that_comes_before_the_lanes_are_bound_does_not_wait_for_them() -> None:
    daemon = daemon_in(DaemonState.AGREED)
    daemon.receive(_ASK, 0)
    assert daemon.receive(_OPEN, 0) == [FreeLanes(), StartStream(order=_OPEN)]
    assert daemon.reserved([6101, 6102], _SECRET) == []


def test_an_order_that_comes_too_late_does_not_get_the_lanes() -> None:
    assert _kept().receive(_OPEN, RESERVED_NS) == [FreeLanes(), StartStream(order=_OPEN)]


def test_lanes_that_are_kept_too_long_are_freed_and_the_session_goes_on() -> None:
    daemon = DaemonSession(
        hello=example_hello(),
        welcome=example_welcome(),
        rows=example_rows(5),
        heartbeat_timeout_ns=2 * RESERVED_NS,
        now_ns=0,
    )
    daemon.receive(_ASK, 1)
    assert daemon.deadline_ns() == 1 + RESERVED_NS, "it is looked after, whether they are bound soon or not"
    daemon.reserved([6101, 6102], _SECRET)
    assert daemon.tick(RESERVED_NS) == []
    assert daemon.tick(1 + RESERVED_NS) == [FreeLanes()]
    assert daemon.tick(2 + RESERVED_NS) == []
    assert daemon.deadline_ns() == 1 + 2 * RESERVED_NS


def test_time_that_passes_before_lanes_are_asked_for_takes_none_away() -> None:
    daemon = daemon_in(DaemonState.AGREED)
    assert daemon.tick(1) == []
    assert daemon.receive(_ASK, 2) == [ReserveLanes(lanes=2)]


def test_where_none_can_be_had_the_rank_is_told_and_the_order_has_its_own() -> None:
    daemon = daemon_in(DaemonState.AGREED)
    daemon.receive(_ASK, 0)
    assert daemon.reserved([]) == [Send(message=Reserved(session=7, ports=[]))]
    assert daemon.receive(_OPEN, 0) == [StartStream(order=_OPEN)]


@pytest.mark.parametrize("bound", [False, True])
def test_the_end_of_the_session_frees_what_is_kept_or_being_bound(bound: bool) -> None:
    daemon = daemon_in(DaemonState.GREETED)
    daemon.receive(_ASK, 0)
    if bound:
        daemon.reserved([6101, 6102], _SECRET)
    assert daemon.end("it has gone") == [FreeLanes(), Ended(reason="it has gone")]
    assert daemon.reserved([6101, 6102], _SECRET) == []


@pytest.mark.parametrize("when", ["twice", "while a stream runs", "after one ran"])
def test_lanes_may_be_reserved_once_and_before_the_first_order(when: str) -> None:
    daemon = _kept() if when == "twice" else daemon_in(DaemonState.STREAMING)
    if when == "after one ran":
        daemon.receive(Stop(session=7), 0)
    did = daemon.receive(_ASK, 0)
    assert "reserve" in _refusal(did)
    assert (FreeLanes() in did) == (when == "twice")


# ---- both -----------------------------------------------------------------------------------------------------------


def _pair(settings: SessionSettings | None = None) -> tuple[ManualClock, SessionPair]:
    clock, way = ManualClock(), LinkFaults(delay_ns=15 * _MS)
    told = settings if settings is not None else SessionSettings()
    return clock, SessionPair(clock, told, up=Link(clock, way), down=Link(clock, way))


def _to_ready(clock: ManualClock, pair: SessionPair) -> None:
    pair.greet()
    pair.reserve()
    pair.run_until(clock.monotonic_ns() + 100 * _MS)
    pair.offer(example_rows(3))
    pair.run_until(clock.monotonic_ns() + 100 * _MS)
    assert pair.rank.state is RankState.READY


def test_the_lanes_are_there_a_round_trip_after_the_hello_and_become_the_first_stream_s() -> None:
    clock, pair = _pair()
    pair.greet()
    pair.reserve()
    pair.run_until(clock.monotonic_ns() + 31 * _MS)
    assert pair.held == (6101, 6102)
    assert pair.rank.state is RankState.LISTED
    clock, pair = _pair()
    _to_ready(clock, pair)
    for opened in (
        StreamOpened(stream=1, ports=(6101, 6102), secret=_SECRET, reserved=True),
        StreamOpened(stream=2, ports=(6001, 6002)),
    ):
        pair.open()
        pair.run_until(clock.monotonic_ns() + 100 * _MS)
        assert pair.log[-1] == opened
    assert (pair.held, pair.kept, pair.error) == ((), False, None)


@pytest.mark.parametrize("ports", [(6101, 6102), ()])
def test_a_pair_that_orders_nothing_for_long_has_nothing_left_and_opens_all_the_same(ports: tuple[int, ...]) -> None:
    clock, pair = _pair(SessionSettings(reserved_ports=ports))
    _to_ready(clock, pair)
    assert (pair.held, pair.kept) == (ports, bool(ports))
    pair.run_until(clock.monotonic_ns() + RESERVED_NS + 100 * _MS)
    assert (pair.held, pair.kept) == ((), False)
    pair.open()
    pair.run_until(clock.monotonic_ns() + 100 * _MS)
    assert pair.log[-1] == StreamOpened(stream=1, ports=(6001, 6002))


def test_a_session_that_ends_early_frees_the_lanes() -> None:
    clock, pair = _pair()
    _to_ready(clock, pair)
    pair.leave()
    pair.run_until(clock.monotonic_ns() + 100 * _MS)
    assert not pair.kept
    assert pair.ended is not None


def test_a_session_that_was_listed_in_parts_keeps_its_lanes() -> None:
    rank = rank_in(RankState.LISTING, reserve=2)
    rank.receive(_TOLD, 0)
    rank.receive(ShardsReply(first=0, total=5, rows=list(example_rows(5)[:2])), 0)
    rank.receive(ShardsReply(first=2, total=5, rows=list(example_rows(5)[2:])), 0)
    rank.offer(example_offer(7), example_rows(5), 0)
    rank.receive(PlanReply(need_catalog=True), 0)
    rank.receive(PlanReply(need_catalog=False), 0)
    assert (rank.state, rank.reserved_lanes) == (RankState.READY, 2)
