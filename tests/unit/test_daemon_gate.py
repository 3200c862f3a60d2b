"""Who is let in, and where."""

import pytest

from emlio.daemon.gate import CONTROL_DOOR, Gate, Guest, Knock

ALICE, MALLORY = b"A" * 32, b"M" * 32
TOKEN, OTHER = b"t" * 64, b"o" * 64


def knock(door: str = CONTROL_DOOR, *, key: bytes = b"", token: bytes = b"") -> Knock:
    return Knock(door=door, address="10.0.0.9", key=key, token=token)


def test_without_a_list_of_clients_everybody_may_say_hello() -> None:
    verdict = Gate(None).judge(knock(), 0)
    assert (verdict.admitted, verdict.user) == (True, "")


def test_with_one_only_its_keys_may_and_are_known_by_them() -> None:
    gate = Gate({ALICE}.__contains__)
    verdict = gate.judge(knock(key=ALICE), 0)
    assert (verdict.admitted, verdict.user) == (True, ALICE.hex())
    for key in (MALLORY, b""):
        assert gate.judge(knock(key=key), 0).reason == "its key is not among the clients"


def test_the_list_is_asked_each_time() -> None:
    known = {ALICE}
    gate = Gate(lambda key: key in known)
    assert gate.judge(knock(key=ALICE), 0).admitted
    known.clear()
    assert not gate.judge(knock(key=ALICE), 0).admitted


@pytest.mark.parametrize(
    ("guest", "right", "wrong"),
    [
        (Guest(token=TOKEN, until_ns=10), {"token": TOKEN}, {"token": OTHER}),
        (Guest(token=TOKEN, until_ns=10), {"token": TOKEN}, {"key": ALICE}),
        (Guest(key=ALICE, until_ns=10), {"key": ALICE}, {"key": MALLORY}),
        (Guest(key=ALICE, until_ns=10), {"key": ALICE}, {"token": TOKEN}),
    ],
)
def test_a_lane_lets_its_rank_in_once(guest: Guest, right: dict[str, bytes], wrong: dict[str, bytes]) -> None:
    gate = Gate({ALICE, MALLORY}.__contains__)
    gate.expect("lane 1", guest)
    assert gate.judge(knock("lane 1", **wrong), 5).reason == "it is not the rank the lane is for"
    assert not gate.judge(knock("lane 2", **right), 5).admitted
    assert gate.judge(knock("lane 1", **right), 5).admitted
    assert not gate.judge(knock("lane 1", **right), 5).admitted


def test_a_lane_does_not_wait_for_ever() -> None:
    gate = Gate(None)
    gate.expect("lane 1", Guest(token=TOKEN, until_ns=10))
    assert not gate.judge(knock("lane 1", token=TOKEN), 11).admitted
    assert gate.judge(knock("lane 1", token=TOKEN), 10).admitted


def test_a_lane_that_is_closed_lets_nobody_in() -> None:
    gate = Gate(None)
    gate.expect("lane 1", Guest(token=TOKEN, until_ns=10))
    gate.forget("lane 1")
    gate.forget("lane 1")
    assert not gate.judge(knock("lane 1", token=TOKEN), 0).admitted


def test_a_guest_without_token_and_key_is_nobody() -> None:
    gate = Gate(None)
    gate.expect("lane 1", Guest(until_ns=10))
    assert not gate.judge(knock("lane 1"), 0).admitted
