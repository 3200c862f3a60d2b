"""One side of a session, brought to a state by messages that the other side would send."""

from collections.abc import Sequence

import msgspec

from emlio.errors import EmlioError
from emlio.session.daemon import DaemonSession
from emlio.session.instructions import DaemonInstruction, Ended, Failed, RankInstruction, Send
from emlio.session.rank import RankSession
from emlio.session.states import DaemonState, RankState
from emlio.wire.control import Open, Opened, PlanReply, Refused, ShardsReply, Welcome
from emlio.wire.credit import Credit
from emlio.wire.protection import CLEAR
from emlio_testing.session_pair import example_hello, example_offer, example_rows, example_wanted

__all__ = ["daemon_in", "example_open", "example_welcome", "failure", "rank_in", "refusal"]

_ROWS = example_rows(5)


def example_welcome(protection: str = CLEAR) -> Welcome:
    """Return the welcome to session 7, of a daemon that holds five shards and lacks one."""
    return Welcome(
        session=7,
        daemon="store1",
        software="0.1.0",
        shards=5,
        records=500,
        missing=["train-000009"],
        missing_count=1,
        heartbeat_timeout_ns=5_000_000_000,
        send_buffer_bytes=4 << 20,
        max_lanes=64,
        protection=protection,
    )


def example_open(lanes: int = 1) -> Open:
    """Return an order for the first stream of all five shards."""
    return Open(
        session=7,
        stream=1,
        epoch=0,
        origin=0,
        slot=0,
        owned=b"\x1f",
        lanes=lanes,
        credit=Credit(read_bytes=0, stream=1),
    )


def rank_in(state: RankState, protection: str = CLEAR) -> RankSession:
    """Return a rank's session in `state`, with a daemon that protects its data like this."""
    rank = RankSession(peer="store1:5555", timeout_ns=10_000_000_000)
    if state is RankState.NEW:
        return rank
    rank.greet(msgspec.structs.replace(example_hello(), protections=(protection,)), 0)
    if state is RankState.GREETING:
        return rank
    rank.receive(example_welcome(protection), 0)
    if state is RankState.LISTING:
        return rank
    rank.receive(ShardsReply(first=0, total=5, rows=list(_ROWS)), 0)
    if state is RankState.LISTED:
        return rank
    rank.offer(example_offer(7), _ROWS, 0)
    if state is RankState.OFFERING:
        return rank
    rank.receive(PlanReply(need_catalog=False), 0)
    if state is RankState.READY:
        return rank
    rank.open(example_wanted(owned=b"\x1f", lanes=1), now_ns=0)
    if state is RankState.OPENING:
        return rank
    rank.receive(Opened(stream=1, lanes=1), 0)
    if state is RankState.STREAMING:
        return rank
    rank.leave()
    return rank


def daemon_in(state: DaemonState) -> DaemonSession:
    """Return a daemon's session in `state`."""
    daemon = DaemonSession(
        hello=example_hello(), welcome=example_welcome(), rows=_ROWS, heartbeat_timeout_ns=5_000_000_000, now_ns=0
    )
    if state is DaemonState.GREETED:
        return daemon
    daemon.receive(example_offer(7), 0)
    if state is DaemonState.JUDGING:
        return daemon
    if state is DaemonState.COLLECTING:
        daemon.ask_catalog()
        return daemon
    daemon.agree()
    if state is DaemonState.AGREED:
        return daemon
    daemon.receive(example_open(), 0)
    if state is DaemonState.STREAMING:
        return daemon
    daemon.drain()
    return daemon


def failure(instructions: Sequence[RankInstruction]) -> EmlioError:
    """Return the error with which these instructions end a rank's session."""
    failed = instructions[-1]
    assert isinstance(failed, Failed), instructions
    return failed.error


def refusal(instructions: Sequence[DaemonInstruction]) -> Refused:
    """Return the refusal with which these instructions end a daemon's session."""
    sent = instructions[0]
    assert isinstance(sent, Send), instructions
    assert isinstance(sent.message, Refused), instructions
    assert isinstance(instructions[-1], Ended), instructions
    return sent.message
