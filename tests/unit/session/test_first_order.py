"""The first order rides with the offer: the stream begins as soon as the daemon agrees, and not before."""

import msgspec
import pytest

from emlio.errors import LocalProtocolError, PeerLostError
from emlio.session.daemon import DaemonSession
from emlio.session.instructions import (
    Agreed,
    Ended,
    Failed,
    Judge,
    Listed,
    RankInstruction,
    Send,
    StartStream,
    StopStream,
    StreamOpened,
)
from emlio.session.rank import RankSession
from emlio.session.states import DaemonState, RankState
from emlio.wire.control import CatalogPart, Open, Opened, PlanOffer, PlanReply, Refused, Stop
from emlio_testing.clock import ManualClock
from emlio_testing.link import Link, LinkFaults
from emlio_testing.session_pair import SessionPair, SessionSettings, example_offer, example_rows, example_wanted
from emlio_testing.session_states import daemon_in, example_open, rank_in, refusal

_MS = 1_000_000
_S = 1_000_000_000
_ROWS = example_rows(5)
_AGREED = PlanReply(need_catalog=False)
_FIRST = example_wanted(7, 1)
_OFFER = msgspec.structs.replace(example_offer(7), first=_FIRST)


def _offering() -> RankSession:
    rank = rank_in(RankState.LISTED)
    assert rank.offer(example_offer(7), _ROWS, 0, example_wanted()) == [Send(message=_OFFER)]
    assert (rank.state, rank.stream) == (RankState.OFFERING, 1)
    return rank


def _orders(instructions: list[RankInstruction]) -> list[Open]:
    messages = [one.message for one in instructions if isinstance(one, Send)]
    return [message for message in messages if isinstance(message, Open)]


# ---- the rank -----------------------------------------------------------------------------------------------------


def test_the_order_in_the_offer_is_the_sessions_first_and_its_credit_names_it() -> None:
    assert (_FIRST.session, _FIRST.stream, _FIRST.credit.stream) == (7, 1, 1)
    assert _FIRST.credit.allowed_bytes > 0
    _offering()


def test_a_rank_whose_offer_is_agreed_to_waits_for_the_stream_without_another_word() -> None:
    rank = _offering()
    assert rank.receive(_AGREED, _MS) == [Agreed()]
    assert rank.state is RankState.OPENING
    assert rank.receive(Opened(stream=1, lanes=2), 2 * _MS) == [StreamOpened(stream=1, lanes=2)]
    assert rank.state is RankState.STREAMING
    (order,) = _orders(rank.open(example_wanted(slot=5), 3 * _MS))
    assert order.stream == 2, "streams are numbered through"


def test_a_rank_that_must_send_the_catalog_first_does_not_repeat_the_order() -> None:
    rank = _offering()
    sent = rank.receive(PlanReply(need_catalog=True), 0)
    assert [type(one.message) for one in sent if isinstance(one, Send)] == [CatalogPart]
    assert rank.state is RankState.OFFERING
    assert rank.receive(_AGREED, 0) == [Agreed()]
    assert rank.state is RankState.OPENING


def test_an_offer_without_an_order_leaves_the_rank_ready() -> None:
    rank = rank_in(RankState.LISTED)
    rank.offer(example_offer(7), _ROWS, 0)
    assert rank.receive(_AGREED, 0) == [Agreed()]
    assert (rank.state, rank.stream) == (RankState.READY, 0)


def test_a_daemon_that_agrees_and_opens_nothing_is_given_up_at_the_timeout() -> None:
    rank = _offering()
    rank.expect_within(3 * _S)
    rank.receive(_AGREED, _S)
    told = [(tenth, one) for tenth in range(11, 60) for one in rank.tick(tenth * _S // 10) if isinstance(one, Failed)]
    assert [tenth for tenth, _ in told] == [40], "the timeout counts from the agreement"
    assert isinstance(told[0][1].error, PeerLostError)
    assert "must answer within 3 s" in str(told[0][1].error)
    assert rank.in_vain, "a stream was ordered of it"


def test_an_order_that_is_taken_back_or_replaced_before_it_is_answered_is_passed_over() -> None:
    rank = _offering()
    rank.receive(_AGREED, 0)
    assert rank.stop() == [Send(message=Stop(session=7))]
    assert rank.receive(Opened(stream=1, lanes=2), 0) == []
    assert rank.state is RankState.READY
    other = _offering()
    other.receive(_AGREED, 0)
    other.open(example_wanted(slot=9), 0)
    assert other.receive(Opened(stream=1, lanes=2), 0) == []
    assert other.receive(Opened(stream=2, lanes=2), 0) == [StreamOpened(stream=2, lanes=2)]


@pytest.mark.parametrize("state", [state for state in RankState if state is not RankState.LISTED])
def test_an_order_rides_with_no_offer_that_may_not_be_made(state: RankState) -> None:
    rank = rank_in(state)
    before = rank.stream
    with pytest.raises(LocalProtocolError, match=f"'offer' is not allowed in state '{state.value}'"):
        rank.offer(example_offer(7), _ROWS, 0, example_wanted())
    assert (rank.state, rank.stream) == (state, before)


# ---- the daemon ---------------------------------------------------------------------------------------------------


def _judging(offer: PlanOffer = _OFFER, state: DaemonState = DaemonState.GREETED) -> DaemonSession:
    daemon = daemon_in(state)
    assert daemon.receive(offer, 0) == [Judge(offer=offer, rows=None)], "nothing is started before the plan is compared"
    return daemon


@pytest.mark.parametrize("state", [DaemonState.GREETED, DaemonState.AGREED])
def test_a_daemon_that_agrees_starts_the_stream_at_once(state: DaemonState) -> None:
    daemon = _judging(state=state)
    assert daemon.agree() == [Send(message=_AGREED), StartStream(order=_FIRST)]
    assert daemon.state is DaemonState.STREAMING
    assert daemon.opened(1, 2) == [Send(message=Opened(stream=1, lanes=2))]


def test_a_daemon_that_lacks_the_catalog_starts_the_stream_once_it_has_it() -> None:
    daemon = _judging()
    assert daemon.ask_catalog() == [Send(message=PlanReply(need_catalog=True))]
    part = CatalogPart(session=7, fingerprint="f" * 32, first=0, total=5, rows=list(_ROWS))
    assert daemon.receive(part, 0) == [Judge(offer=_OFFER, rows=_ROWS)]
    assert daemon.agree() == [Send(message=_AGREED), StartStream(order=_FIRST)]


def test_a_daemon_that_refuses_the_plan_starts_nothing() -> None:
    refused, ended = _judging().refuse("plan-refused", "another digest")
    assert refused == Send(message=Refused(code="plan-refused", text="another digest"))
    assert isinstance(ended, Ended)


def test_a_later_order_replaces_the_first() -> None:
    daemon = _judging()
    daemon.agree()
    order = msgspec.structs.replace(_FIRST, stream=2)
    assert daemon.receive(order, 0) == [StopStream(), StartStream(order=order)]


def test_a_later_offer_without_an_order_starts_nothing() -> None:
    daemon = _judging()
    daemon.agree()
    daemon.receive(Stop(session=7), 0)
    daemon.receive(example_offer(7), 0)
    assert daemon.agree() == [Send(message=_AGREED)]
    assert daemon.state is DaemonState.AGREED


# ---- both ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("knows_catalog", [True, False])
def test_a_stream_begins_half_a_round_trip_after_the_offer_or_its_last_part(knows_catalog: bool) -> None:
    clock, way = ManualClock(), LinkFaults(delay_ns=15 * _MS)
    settings = SessionSettings(knows_catalog=knows_catalog)
    pair = SessionPair(clock, settings, up=Link(clock, way), down=Link(clock, way))
    pair.greet()
    pair.run_until(clock.monotonic_ns() + 31 * _MS)
    assert pair.rank.state is RankState.LISTED
    pair.offer(settings.rows, begins=True)
    pair.run_until(clock.monotonic_ns() + (16 if knows_catalog else 46) * _MS)
    assert pair.running is not None
    assert pair.running == example_wanted(7, 1)
    pair.run_until(clock.monotonic_ns() + 15 * _MS)
    assert pair.rank.state is RankState.STREAMING
    judged = 1 if knows_catalog else 2
    assert [type(event) for event in pair.log] == [Listed, *[Judge] * judged, StartStream, Agreed, StreamOpened]


def test_a_stream_that_is_opened_together_with_the_agreement_says_nothing_of_the_round_trip() -> None:
    clock, way = ManualClock(), LinkFaults(delay_ns=15 * _MS)
    pair = SessionPair(clock, SessionSettings(), up=Link(clock, way), down=Link(clock, way))
    pair.greet()
    pair.run_until(clock.monotonic_ns() + 31 * _MS)
    pair.offer(example_rows(3), begins=True)
    pair.run_until(clock.monotonic_ns() + 31 * _MS)
    assert pair.rank.state is RankState.STREAMING
    assert pair.rank.round_trip_ns == 30 * _MS, "lanes are counted by it"


@pytest.mark.parametrize("number", [0, 1])
def test_a_streams_number_is_used_once(number: int) -> None:
    daemon = daemon_in(DaemonState.STREAMING)
    refused = refusal(daemon.receive(msgspec.structs.replace(example_open(), stream=number), 0))
    assert "above that of the last stream, 1" in refused.text
