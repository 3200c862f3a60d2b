"""A rank that asked for protection is not talked into less, whoever answers."""

import msgspec
import pytest

from emlio.errors import EmlioError, RemoteProtocolError
from emlio.session.instructions import Failed, RankInstruction, StreamOpened
from emlio.session.rank import RankSession
from emlio.session.states import RankState
from emlio.testing.session_pair import example_hello
from emlio.testing.session_states import example_welcome, rank_in
from emlio.wire.control import Opened
from emlio.wire.protection import CLEAR, CURVE, accepted
from emlio.wire.seal import CIPHERS, SECRET_BYTES

SEALED = CIPHERS[0]


def error_in(instructions: list[RankInstruction]) -> EmlioError:
    assert isinstance(instructions[-1], Failed), instructions
    return instructions[-1].error


def greeted(setting: str) -> RankSession:
    rank = RankSession(peer="store1:5555", timeout_ns=10**9)
    hello = msgspec.structs.replace(example_hello(), protections=accepted(setting, keyed=True, has_aes=True))
    rank.greet(hello, 0)
    return rank


@pytest.mark.parametrize(
    ("setting", "chosen"),
    [
        ("auto", CLEAR),
        ("aead", CLEAR),
        ("curve", CLEAR),
        ("aead", CURVE),
        ("curve", SEALED),
        ("off", SEALED),
        ("auto", "rot13"),
    ],
)
def test_a_daemon_that_chooses_what_was_not_offered_is_left(setting: str, chosen: str) -> None:
    rank = greeted(setting)
    error = error_in(rank.receive(example_welcome(chosen), 0))
    assert isinstance(error, RemoteProtocolError)
    assert f"the daemon chose {chosen}" in str(error)
    assert rank.state is RankState.OVER


@pytest.mark.parametrize(
    ("setting", "chosen"), [("auto", CIPHERS[1]), ("auto", CURVE), ("aead", SEALED), ("off", CLEAR)]
)
def test_a_daemon_may_choose_any_that_was_offered(setting: str, chosen: str) -> None:
    rank = greeted(setting)
    rank.receive(example_welcome(chosen), 0)
    assert rank.state is RankState.LISTING


@pytest.mark.parametrize("size", [0, SECRET_BYTES - 1])
def test_what_is_sealed_needs_a_secret(size: int) -> None:
    rank = rank_in(RankState.OPENING, SEALED)
    error = error_in(rank.receive(Opened(stream=1, ports=[6001], secret=bytes(size)), 0))
    assert isinstance(error, RemoteProtocolError)
    assert f"must have {SECRET_BYTES} bytes, got {size}" in str(error)


@pytest.mark.parametrize(
    ("protection", "secret"), [(SEALED, bytes(SECRET_BYTES)), (CURVE, bytes(SECRET_BYTES)), (CLEAR, b"")]
)
def test_a_stream_opens_with_what_its_protection_needs(protection: str, secret: bytes) -> None:
    rank = rank_in(RankState.OPENING, protection)
    told = rank.receive(Opened(stream=1, ports=[6001], secret=secret), 0)
    assert told == [StreamOpened(stream=1, ports=(6001,), secret=secret)]
