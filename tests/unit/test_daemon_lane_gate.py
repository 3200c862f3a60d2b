"""Which connections become lanes: tokens, numbers, attempts, requests that wait for their session."""

import pytest

from emlio.daemon.access.gate import ConnectionRequest
from emlio.daemon.access.lane_gate import (
    DATA_PORT_NAME,
    HOLD_NS,
    MOST_HELD,
    MOST_HELD_EACH,
    MOST_TRIES,
    Admitted,
    LaneGate,
    Refused,
)
from emlio.errors import LocalProtocolError
from emlio.wire.seal import lane_group, lane_token

ALICE, BOB = b"A" * 32, b"B" * 32
SECOND = 1_000_000_000


def request(
    secret: bytes = ALICE, number: int = 0, *, token: bytes | None = None, address: str = "10.0.0.9", user: bytes = b""
) -> ConnectionRequest:
    return ConnectionRequest(
        port=DATA_PORT_NAME,
        address=address,
        user=user or b"%s.%d" % (lane_group(secret).encode("ascii"), number),
        token=lane_token(secret, number) if token is None else token,
    )


def gate_for(*secrets: bytes) -> LaneGate:
    gate = LaneGate()
    for secret in secrets:
        assert gate.expect(lane_group(secret), secret)
    return gate


def reason(answer: Admitted | Refused | None) -> str:
    assert isinstance(answer, Refused)
    return answer.reason


def test_a_lane_with_its_token_is_admitted_once() -> None:
    gate = gate_for(ALICE, BOB)
    assert gate.judge(request(number=3), 0) == Admitted(group=lane_group(ALICE), number=3)
    assert reason(gate.judge(request(number=3), 0)) == "lane 3 was used before"
    assert gate.judge(request(BOB, 3), 0) == Admitted(group=lane_group(BOB), number=3)


@pytest.mark.parametrize("token", [b"", b"x", lane_token(ALICE, 4), lane_token(BOB, 3), lane_token(ALICE, 3) + b"0"])
def test_another_token_is_refused_and_does_not_use_the_number_up(token: bytes) -> None:
    gate = gate_for(ALICE)
    assert reason(gate.judge(request(number=3, token=token), 0)) == "wrong token for lane 3"
    assert isinstance(gate.judge(request(number=3), 0), Admitted)


@pytest.mark.parametrize(
    "user",
    [
        b"rank",
        b"." * 255,
        b"%s." % lane_group(ALICE).encode("ascii"),
        b"%s.-1" % lane_group(ALICE).encode("ascii"),
        b"%s.01" % lane_group(ALICE).encode("ascii"),
        b"%s.1\n" % lane_group(ALICE).encode("ascii"),
        b"%s.2147483648" % lane_group(ALICE).encode("ascii"),
        b"%s.99999999999" % lane_group(ALICE).encode("ascii"),
        b"%s.\xb2" % lane_group(ALICE).encode("ascii"),
        b"%s.1" % lane_group(ALICE).upper().encode("ascii"),
        b"\xff\x00",
    ],
)
def test_a_user_name_of_another_form_is_refused_at_once(user: bytes) -> None:
    gate = gate_for(ALICE)
    assert (
        reason(gate.judge(request(user=user), 0)) == "it names no session and lane, so it does not come from a loader"
    )
    assert gate.due_ns() is None


def test_numbers_may_come_in_any_order_within_a_window_that_follows_the_highest() -> None:
    gate = gate_for(ALICE)
    for second, number in enumerate([5, 0, 1023, 1, 2000, 2147483647, 2147483647 - 1023]):
        assert isinstance(gate.judge(request(number=number), second * SECOND), Admitted), number
    for number in [5, 2000, 2147483647, 2147483647 - 1023, 2147483647 - 1024]:
        assert reason(gate.judge(request(number=number), 0)) == f"lane {number} was used before"


def test_numbers_within_the_window_are_remembered_when_it_moves() -> None:
    gate = gate_for(ALICE)
    for number in (10, 20, 600):
        assert isinstance(gate.judge(request(number=number), 0), Admitted)
    for number in (10, 20, 600):
        assert isinstance(gate.judge(request(number=number), 0), Refused)
    for number in (11, 19, 599):
        assert isinstance(gate.judge(request(number=number), 0), Admitted)


def test_the_lanes_that_a_session_is_granted_are_bounded_and_come_back_with_time() -> None:
    gate = gate_for(ALICE, BOB)
    for number in range(MOST_TRIES):
        assert isinstance(gate.judge(request(number=number), 0), Admitted)
    following = MOST_TRIES
    assert "too many lanes" in reason(gate.judge(request(number=following), SECOND - 1))
    assert isinstance(gate.judge(request(BOB, 1), 0), Admitted), "another session has its own"
    assert isinstance(gate.judge(request(number=following), SECOND), Admitted)
    assert "too many lanes" in reason(gate.judge(request(number=following + 1), 2 * SECOND - 1))
    for number in range(following + 1, following + 1 + MOST_TRIES):
        assert isinstance(gate.judge(request(number=number), 10_000 * SECOND), Admitted)
    assert "too many lanes" in reason(gate.judge(request(number=2000), 10_000 * SECOND)), "they do not pile up"


def test_wrong_tokens_do_not_use_up_what_a_session_is_granted() -> None:
    gate = gate_for(ALICE)
    for number in range(2 * MOST_TRIES):
        assert reason(gate.judge(request(number=number, token=b"guess"), 0)) == f"wrong token for lane {number}"
    assert isinstance(gate.judge(request(number=0), 0), Admitted)


def test_a_knock_before_its_session_is_held_and_admitted_when_that_begins() -> None:
    gate = LaneGate()
    first, wrong, other = request(number=1), request(number=2, token=b"guess"), request(BOB, 1)
    assert [gate.judge(one, 5) for one in (first, wrong, other)] == [None, None, None]
    assert (gate.settle(6), gate.due_ns()) == ([], 5 + HOLD_NS)
    gate.expect(lane_group(ALICE), ALICE)
    assert gate.settle(7) == [
        (first, Admitted(group=lane_group(ALICE), number=1)),
        (wrong, Refused(reason="wrong token for lane 2")),
    ]
    assert gate.settle(4 + HOLD_NS) == []
    ((refused, verdict),) = gate.settle(5 + HOLD_NS)
    assert refused == other
    assert reason(verdict).startswith("no session was started for it within 2 s")
    assert gate.due_ns() is None


def test_held_knocks_are_bounded_for_each_address_and_in_all() -> None:
    gate = LaneGate()
    for number in range(MOST_HELD_EACH):
        assert gate.judge(request(number=number), 0) is None
    assert "from its address already wait" in reason(gate.judge(request(number=9999), 0))
    for number in range(MOST_HELD - MOST_HELD_EACH):
        assert gate.judge(request(number=number, address=f"10.1.{number // 64}.1"), 1) is None
    assert f"{MOST_HELD} other connections already wait" in reason(gate.judge(request(address="10.2.0.1"), 1))
    assert len(gate.settle(HOLD_NS)) == MOST_HELD_EACH
    assert gate.judge(request(number=0), HOLD_NS) is None, "there is room again"
    gate.expect(lane_group(ALICE), ALICE)
    assert len(gate.settle(HOLD_NS)) == MOST_HELD - MOST_HELD_EACH + 1
    assert gate._by_group == {}
    assert gate._by_address == {}
    assert gate._held == 0


def test_a_session_that_is_over_admits_none_and_its_group_is_unknown_again() -> None:
    gate = gate_for(ALICE)
    gate.forget(lane_group(ALICE))
    gate.forget(lane_group(ALICE))
    assert gate.judge(request(), 0) is None
    assert reason(gate.settle(HOLD_NS)[0][1]).startswith("no session was started for it")


def test_a_session_that_is_over_before_its_knocks_were_settled_admits_none() -> None:
    gate = LaneGate()
    assert gate.judge(request(), 0) is None
    gate.expect(lane_group(ALICE), ALICE)
    gate.forget(lane_group(ALICE))
    assert gate.settle(1) == []
    assert len(gate.settle(HOLD_NS)) == 1


def test_two_sessions_cannot_have_the_same_group() -> None:
    gate = gate_for(ALICE)
    assert not gate.expect(lane_group(ALICE), BOB)
    assert isinstance(gate.judge(request(), 0), Admitted)


def test_a_secret_of_another_length_is_our_own_mistake() -> None:
    with pytest.raises(LocalProtocolError, match="32 bytes, got 3"):
        LaneGate().expect("group", b"abc")
