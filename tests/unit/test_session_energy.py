"""Asking what a daemon's node used: when it is allowed, one question at a time, answers that do not fit; its clock from pongs."""

from typing import Any

import pytest

from emlio.clocks.fit import fit_clock
from emlio.errors import LocalProtocolError, RemoteProtocolError
from emlio.session.instructions import Ended, EnergyCame, Failed, LookUpEnergy, Send
from emlio.session.rank import RankSession
from emlio.session.states import DaemonState, RankState
from emlio.wire.control import EnergyReply, EnergyRequest, Ping, Pong, Refused
from emlio.wire.energy import DeviceRow, ReadingRow
from emlio_testing.clock import ManualClock
from emlio_testing.link import Link, LinkFaults
from emlio_testing.session_pair import SessionPair, SessionSettings
from emlio_testing.session_states import daemon_in, rank_in

_S = 1_000_000_000
_MS = 1_000_000
_WITHOUT_SESSION = (RankState.NEW, RankState.GREETING, RankState.OVER)
_DEVICE = DeviceRow("package-0", "cpu", "powercap", "measured", None, None, None, None, "", True)
_QUESTION = EnergyRequest(session=7, from_ns=10, to_ns=20)


def _row(seq: int, *totals: int | None, events: tuple[str, ...] = (), at_ns: int | None = None) -> ReadingRow:
    at_ns = seq * _S if at_ns is None else at_ns
    return ReadingRow(seq, at_ns, at_ns, 0, list(totals), list(events), 0, False, *[None] * 6)


def _reply(*rows: ReadingRow, **more: Any) -> EnergyReply:
    fields: dict[str, Any] = {"node": "s1", "boot": "b", "recording": 3, "devices": [_DEVICE], "readings": list(rows)}
    return EnergyReply(**(fields | more))


def _blame(rank: RankSession, reply: EnergyReply) -> str:
    """What a rank says of a reply for which it gives the daemon up."""
    failed = rank.receive(reply, 0)[-1]
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, RemoteProtocolError)
    assert rank.state is RankState.OVER
    return str(failed.error)


@pytest.mark.parametrize("state", [state for state in RankState if state not in _WITHOUT_SESSION])
def test_energy_can_be_asked_for_in_every_state_of_a_session_and_changes_none(state: RankState) -> None:
    rank = rank_in(state)
    assert rank.ask_energy(10, 20) == [Send(message=_QUESTION)]
    assert rank.asks_energy
    assert rank.state is state
    reply = _reply(_row(0, 5), _row(1, None))
    assert rank.receive(reply, 0) == [EnergyCame(reply=reply)]
    assert not rank.asks_energy
    assert rank.state is state


@pytest.mark.parametrize("state", _WITHOUT_SESSION)
def test_without_a_session_nobody_can_be_asked(state: RankState) -> None:
    rank = rank_in(state)
    with pytest.raises(LocalProtocolError, match=f"'askenergy' is not allowed in state '{state.value}'"):
        rank.ask_energy(10, 20)


@pytest.mark.parametrize(("from_ns", "to_ns"), [(-1, 5), (6, 5)])
def test_a_stretch_that_is_none_is_a_defect_of_this_side(from_ns: int, to_ns: int) -> None:
    rank = rank_in(RankState.STREAMING)
    with pytest.raises(LocalProtocolError, match=f"got {from_ns} ns to {to_ns} ns"):
        rank.ask_energy(from_ns, to_ns)
    assert not rank.asks_energy


def test_a_rank_asks_one_question_at_a_time() -> None:
    rank = rank_in(RankState.STREAMING)
    rank.ask_energy(10, 20)
    with pytest.raises(LocalProtocolError, match="before the last request was answered"):
        rank.ask_energy(10, 20)
    rank.receive(_reply(_row(0, 5), more=True), 0)
    assert rank.ask_energy(10, 20, recording=3, first=1) == [
        Send(message=EnergyRequest(session=7, from_ns=10, to_ns=20, recording=3, first=1))
    ]


def test_a_daemon_that_is_asked_again_before_it_answered_refuses() -> None:
    daemon = daemon_in(DaemonState.STREAMING)
    assert daemon.receive(_QUESTION, 0) == [LookUpEnergy(question=_QUESTION)]
    refused = daemon.receive(_QUESTION, 0)
    assert isinstance(refused[0], Send)
    assert isinstance(refused[0].message, Refused)
    assert "before the last request was answered" in refused[0].message.text
    assert daemon.state is DaemonState.OVER
    assert daemon.tell_energy(_reply()) == []


@pytest.mark.parametrize("state", [state for state in DaemonState if state is not DaemonState.OVER])
def test_a_daemon_looks_energy_up_in_every_state_and_stays_in_it(state: DaemonState) -> None:
    daemon = daemon_in(state)
    for _ in range(2):
        assert daemon.receive(_QUESTION, 0) == [LookUpEnergy(question=_QUESTION)]
        assert daemon.tell_energy(_reply()) == [Send(message=_reply())]
        assert daemon.tell_energy(_reply()) == []
    assert daemon.state is state


def test_a_daemon_refuses_a_stretch_that_is_none() -> None:
    daemon = daemon_in(DaemonState.STREAMING)
    assert isinstance(daemon.receive(EnergyRequest(session=7, from_ns=6, to_ns=5), 0)[-1], Ended)


@pytest.mark.parametrize("state", [state for state in RankState if state not in (RankState.NEW, RankState.OVER)])
def test_energy_nobody_asked_for_is_the_daemons_fault(state: RankState) -> None:
    assert "without a request" in _blame(rank_in(state), _reply(_row(0, 5)))


@pytest.mark.parametrize(
    ("reply", "what"),
    [
        (_reply(_row(4, 5), recording=2), "continue recording 3"),
        (_reply(_row(3, 5)), "begin at reading 4, got 3"),
        (_reply(_row(4, 5, 6)), "a total for each of 1 devices, got 2"),
        (_reply(_row(4, 5, events=("gap", "gap"))), "a total for each of 1 devices"),
        (_reply(_row(5, 5), _row(5, 6)), "in order of time, got 5 after 5"),
        (_reply(_row(5, 5), _row(6, 6, at_ns=5 * _S)), "in order of time, got 6 after 5"),
        (_reply(more=True), "readings if it is incomplete"),
        (_reply(_row(4, 5), absent="no recorder"), "both readings and a reason"),
    ],
    ids=["another recording", "again", "two totals", "two events", "twice", "no time", "no end", "absent and there"],
)
def test_an_answer_that_does_not_fit_the_question_is_the_daemons_fault(reply: EnergyReply, what: str) -> None:
    rank = rank_in(RankState.STREAMING)
    rank.ask_energy(10, 20, recording=3, first=4)
    assert what in _blame(rank, reply)


def test_why_there_is_nothing_reaches_the_rank() -> None:
    clock = ManualClock()
    settings = SessionSettings(energy=EnergyReply(absent="no recorder runs"))
    pair = SessionPair(clock, settings, up=Link(clock), down=Link(clock))
    pair.greet()
    pair.run_until(_S)
    pair.ask_energy(0, 10)
    pair.run_until(2 * _S)
    assert pair.log[-1] == EnergyCame(reply=EnergyReply(absent="no recorder runs"))


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
