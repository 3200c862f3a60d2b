"""Shards of this host as a data plane: nothing is told before credit allows it, and a new position forgets the credit before."""

from collections import deque
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from emlio.errors import DatasetError, EmlioError
from emlio.receiver.local.plane import LocalPlane
from emlio.receiver.machine.events import MessageRead, ReadingFailed
from emlio.receiver.machine.instructions import ReadHere, SayCredit
from emlio.wire.credit import Credit

HERE = 7


class Shards:
    """Messages of ten bytes that were read, one for each slot of epoch 0."""

    def __init__(self, slots: int) -> None:
        self.ready = deque(range(slots))
        self.opened: list[tuple[int, int]] = []
        self.woken = 0
        self.error: EmlioError | None = None
        self.owned = np.zeros(0, np.bool_)

    def open(self, plan: Any, rank: int, position: Any) -> None:
        self.opened.append((position.epoch, position.origin))

    def first(self) -> Any:
        if self.ready:
            return SimpleNamespace(header=SimpleNamespace(epoch=0, slot=self.ready[0]), payload=bytes(10))
        if self.error is not None:
            raise self.error
        return None

    def taken(self) -> None:
        self.ready.popleft()

    def wake(self) -> None:
        self.woken += 1


def read(plane: LocalPlane) -> list[int]:
    """The slots of the messages that are told now."""
    found: list[int] = []
    for event in plane.events(()):
        assert isinstance(event, MessageRead)
        assert event.source == HERE
        found.append(event.message.header.slot)
    return found


def begin(epoch: int = 0, origin: int = 0) -> ReadHere:
    return ReadHere(HERE, cast("Any", None), 0, np.ones(2, np.bool_), epoch, origin, None)


def say(allowed_bytes: int, slot: int, must: int = 0) -> SayCredit:
    return SayCredit(HERE, 0, Credit(read_bytes=0, allowed_bytes=allowed_bytes, slot=slot, must_slot=must))


@pytest.fixture
def shards() -> Shards:
    return Shards(20)


@pytest.fixture
def plane(shards: Shards) -> LocalPlane:
    made = LocalPlane(cast("Any", shards))
    assert made.carry_out(begin(3, 5)) == []
    assert shards.opened == [(3, 5)]
    assert shards.owned.all()
    return made


def test_what_is_read_here_follows_the_same_credit_as_what_a_daemon_sends(plane: LocalPlane, shards: Shards) -> None:
    assert read(plane) == []
    plane.carry_out(say(25, 4))
    assert read(plane) == [0, 1], "twenty-five bytes are two messages"
    plane.carry_out(say(100, 4))
    assert read(plane) == [2, 3], "the place bounds it, too"
    plane.carry_out(say(100, 4, must=6))
    assert read(plane) == [4, 5], "what is needed comes in any case"


def test_only_more_credit_has_the_receive_thread_look_again(plane: LocalPlane, shards: Shards) -> None:
    for allowed, woken in ((50, 1), (50, 1), (40, 1), (60, 2)):
        plane.carry_out(say(allowed, 20))
        assert shards.woken == woken


def test_a_new_position_begins_without_credit(plane: LocalPlane, shards: Shards) -> None:
    plane.carry_out(say(1000, 20))
    plane.carry_out(begin())
    assert read(plane) == []
    plane.carry_out(say(10, 20))
    assert read(plane) == [0]


def test_an_error_is_told_behind_all_that_was_read(plane: LocalPlane, shards: Shards) -> None:
    shards.error = DatasetError("gone")
    plane.carry_out(say(1000, 20))
    *messages, last = plane.events(())
    assert len(messages) == 20
    assert last == ReadingFailed(shards.error)
