"""The rank's side of a session, with a daemon that says anything at any time.

byte 0        the state to begin in
then          one step after the other: a message, time, or something the rank's own user asks for
"""

from collections.abc import Sequence
from typing import get_args

from emlio.errors import EmlioError, LocalProtocolError
from emlio.session.instructions import Failed, RankInstruction, Send
from emlio.session.rank import RankSession
from emlio.session.states import RankState
from emlio.wire.control import ControlMessage, decode_control, encode_control
from emlio.wire.questions import AskEnergy, AskRecords, AskSizes, RecordRow, Subject
from emlio_testing.session_pair import example_hello, example_offer, example_rows, example_wanted
from emlio_testing.session_states import rank_in
from tests.fuzz.draws import Draws
from tests.fuzz.target import Target

__all__ = ["TARGET", "fuzz"]

_KINDS = get_args(ControlMessage)
_ROWS = example_rows(5000)
_MOST_SENT = 1 + 3 + 2
"""At once: a request, three pings, the two parts of this catalog. Questions go alone."""


def fuzz(data: bytes) -> None:
    """Whatever the daemon says, nothing is raised but to the rank's own user, and little is sent."""
    draws = Draws(data)
    rank = rank_in(draws.choice(tuple(RankState)))
    now_ns = 0
    while draws.left:
        over = rank.state is RankState.OVER
        step = draws.byte()
        if step < 160:
            message = draws.message(_KINDS)
            did = rank.receive(message, now_ns) if message is not None else []
        elif step < 200:
            now_ns += draws.number() ** 2 % (1 << 36)
            did = rank.tick(now_ns)
        else:
            did = _asked(rank, draws, now_ns)
        assert not (over and did), f"nothing may happen after the end, got {did}"
        _check(rank, did)


def _asked(rank: RankSession, draws: Draws, now_ns: int) -> list[RankInstruction]:
    small = draws.byte()
    try:
        match small % 10:
            case 0:
                return rank.greet(example_hello(), now_ns)
            case 1 | 2:
                catalog = draws.choice((_ROWS, *[_ROWS[:3]] * 14, ()))
                first = example_wanted(slot=small) if small & 16 else None
                return rank.offer(example_offer(rank.session), catalog, now_ns, first)
            case 3 | 4:
                return rank.open(example_wanted(slot=small), now_ns=now_ns)
            case 5:
                return rank.stop()
            case 6 | 7 | 8:
                return [Send(message=rank.ask(_about(small)))]
            case 9 if small & 16:
                return rank.ask_matches("size < 1kB", digests=small > 128)
            case _:
                rank.expect_within(1 + draws.number() ** 2 % (1 << 36))
                return rank.cut_off() if small > 240 else []
    except LocalProtocolError:
        return []  # what the state does not allow


def _about(small: int) -> Subject:
    match small % 10:
        case 6:
            return AskSizes(shard="train-000000", first=small % 3, count=small // 2)
        case 7:
            return AskEnergy(from_ns=small, to_ns=2 * small - 20, recording=small % 3, first=small % 2)
        case _:
            return AskRecords(records=[RecordRow("train-000000", small)] * (small % 70), offset=small % 2)


def _check(rank: RankSession, did: Sequence[RankInstruction]) -> None:
    sent = [instruction.message for instruction in did if isinstance(instruction, Send)]
    assert len(sent) <= _MOST_SENT, f"at most {_MOST_SENT} messages may be sent at once, got {len(sent)}"
    for message in sent:
        assert decode_control(encode_control(message)) == message
    failed = [instruction for instruction in did if isinstance(instruction, Failed)]
    assert len(failed) == (1 if failed else 0)
    assert not failed or rank.state is RankState.OVER
    assert all(isinstance(one.error, EmlioError) and str(one.error) for one in failed)
    assert (rank.deadline_ns() is None) == (rank.state in (RankState.NEW, RankState.OVER))


TARGET = Target(fuzz=fuzz, raises=(), most_bytes=1024)
