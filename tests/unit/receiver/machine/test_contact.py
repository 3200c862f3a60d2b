"""Words for the obstacles to connecting a daemon."""

import errno
import os

import pytest

from emlio.receiver.addresses.address import Peer
from emlio.receiver.addresses.connection_events import Refusal
from emlio.receiver.machine.contact import CLOSES, SILENCE, UNANSWERED, refusal, unknown_host

_WAY = Peer(host="10.0.0.3", port=5555, dataset="code")  # of a mixture; an address of a port has no dataset


def _reason(code: int) -> Refusal:
    return Refusal(code, os.strerror(code))


@pytest.mark.parametrize(
    ("error", "words", "advice"),
    [
        (errno.ECONNREFUSED, "connections are refused: nothing listens at 10.0.0.3:5555", "emlio-daemon is running"),
        (errno.EHOSTUNREACH, "10.0.0.3:5555 cannot be reached (No route to host)", "the network"),
        (errno.ENETUNREACH, "10.0.0.3:5555 cannot be reached (Network is unreachable)", "the network"),
        (
            errno.EPERM,
            "this host forbids connections to 10.0.0.3:5555 (Operation not permitted)",
            "this host's firewall",
        ),
        (errno.ETIMEDOUT, "connections to 10.0.0.3:5555 fail (Connection timed out)", "the network"),
        (None, "connections are refused, or there is no route to the host", "the network"),
    ],
)
def test_each_reason_of_a_refusal_has_its_words_and_advice(error: int | None, words: str, advice: str) -> None:
    found = refusal(_WAY, None if error is None else _reason(error))
    assert found.words == words
    assert advice in found.advice


def test_no_two_obstacles_have_the_same_words() -> None:
    codes = (errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.EPERM, errno.EIO)
    refusals = (refusal(_WAY, None), *(refusal(_WAY, _reason(code)) for code in codes))
    found = [unknown_host("a", "b"), CLOSES, SILENCE, UNANSWERED, *refusals]
    assert len({one.words for one in found}) == len(found)
    assert all(one.advice.startswith("Check ") and not one.advice.endswith(".") for one in found)
