"""What follows from a session's secret for its lanes."""

from emlio.wire.seal import lane_group, lane_name, lane_token

_SECRET, _OTHER = bytes(range(32)), bytes(range(1, 33))


def test_each_lane_of_each_session_has_a_token_and_a_name_of_its_own() -> None:
    lanes = [(secret, number) for secret in (_SECRET, _OTHER) for number in (0, 1, 10, 1 << 31)]
    assert len({lane_token(*lane) for lane in lanes}) == len(lanes)
    assert len({lane_name(*lane) for lane in lanes}) == len(lanes)
    assert lane_group(_SECRET) != lane_group(_OTHER)


def test_what_is_shown_says_nothing_of_what_is_kept() -> None:
    shown = {lane_group(_SECRET), lane_token(_SECRET, 0).decode(), lane_name(_SECRET, 0)[1:].hex()}
    assert not any(one in other for one in shown for other in shown if one != other)
    assert not any(_SECRET.hex() in one for one in shown)


def test_they_are_the_same_on_both_sides_for_ever() -> None:
    assert lane_group(_SECRET) == "1b5451294e025dad7d303ffc96b9c432"
    assert lane_token(_SECRET, 3) == b"66952a02fcb526cdb3088e8112f826b2d52da25794af5f519ae84f7a873cb474"
    assert lane_name(_SECRET, 3).hex() == "4ce1b2abda4f5f90e34186b8a0487e4700"


def test_zeromq_takes_them_as_they_are() -> None:
    assert len(lane_group(_SECRET)) < 256
    assert len(lane_token(_SECRET, 0)) < 256
    assert lane_name(_SECRET, 7)[0] != 0
    assert len(lane_name(_SECRET, 7)) < 256
