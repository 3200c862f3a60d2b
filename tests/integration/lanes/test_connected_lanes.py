"""One who is admitted and connects lane after lane, which no stream uses.

Covers: what is let in of a client over its sessions, the log, and that there is room again. Does not cover: a session's own bound
(tests/e2e/attacks/test_lanes.py).
"""

import logging
from functools import partial

import pytest

from emlio.daemon.access.connected_lanes import ConnectedLanes
from emlio.wire.seal import lane_group
from emlio_testing.daemon_streams import FOR_EVER_S
from emlio_testing.processes import settles
from tests.integration.lanes.stage import Stage

MOST_EACH = 6


def test_lanes_over_all_sessions_of_a_client_are_bounded_and_another_client_has_its_own(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    connected = ConnectedLanes(most_each=MOST_EACH)
    stage.sender._table._on_lane_ended = connected.give_back

    def admitted(group: str, number: int) -> str | None:
        if (reason := connected.take(group)) is None:
            stage.sender.admitted(group, number)
        return reason

    stage.zap_thread.when_admitted(admitted)
    secrets = [stage.expect(number) for number in range(4)]
    for secret, owner in zip(secrets, (b"greedy", b"greedy", b"greedy", b"modest"), strict=True):
        connected.expect(lane_group(secret), owner)
    with caplog.at_level(logging.WARNING, "emlio.daemon.gate"):
        for secret in secrets[:3]:
            for peer in stage.connect(secret, *range(4)):
                peer.credit()
        assert settles(lambda: len(stage.sender._table._descriptors) == MOST_EACH, FOR_EVER_S)
        assert settles(lambda: "6 of 6 lanes" in caplog.text, FOR_EVER_S)
        for peer in stage.connect(secrets[3], *range(4)):
            peer.credit()
        assert settles(lambda: connected.lanes == MOST_EACH + 4, FOR_EVER_S)
        assert settles(lambda: len(stage.sender._table._descriptors) == MOST_EACH + 4, FOR_EVER_S)
    assert caplog.text.count("its client already has 6 of 6 lanes") == 1, "it is not said each time"
    for secret in secrets:
        stage.sender.close_group(lane_group(secret))
    assert settles(partial(_is_empty, connected), FOR_EVER_S)


def _is_empty(connected: ConnectedLanes) -> bool:
    return not connected.lanes
