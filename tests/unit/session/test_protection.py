"""A rank that asked for protection is not talked into less, whoever answers."""

import msgspec
import pytest

from emlio.errors import RemoteProtocolError
from emlio.session.rank import RankSession
from emlio.session.states import RankState
from emlio.wire.protection import CLEAR, accepted
from emlio.wire.seal import CIPHERS
from emlio_testing.session_pair import example_hello
from emlio_testing.session_states import example_welcome, failure

SEALED = CIPHERS[0]


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
        ("auto", "curve"),
        ("aead", "curve"),
        ("off", SEALED),
        ("auto", "rot13"),
    ],
)
def test_a_daemon_that_chooses_what_was_not_offered_is_left(setting: str, chosen: str) -> None:
    rank = greeted(setting)
    error = failure(rank.receive(example_welcome(chosen), 0))
    assert isinstance(error, RemoteProtocolError)
    assert f"the daemon chose {'un' if chosen == CLEAR else ''}encrypted data" in str(error)
    assert rank.state is RankState.OVER


@pytest.mark.parametrize(("setting", "chosen"), [("auto", CIPHERS[1]), ("aead", SEALED), ("off", CLEAR)])
def test_a_daemon_may_choose_any_that_was_offered(setting: str, chosen: str) -> None:
    rank = greeted(setting)
    rank.receive(example_welcome(chosen), 0)
    assert rank.state is RankState.LISTING


@pytest.mark.parametrize("setting", ["aead", "off"])
def test_keys_and_lanes_follow_from_the_secret_of_this_hello(setting: str) -> None:
    assert greeted(setting).secret == example_hello().lane_secret
