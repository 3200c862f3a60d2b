"""Whoever asks how long records are gets an answer though the daemon that was asked is gone."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from emlio.receiver.engine.engine import Engine
from emlio.receiver.setup.recovery import Recovery
from emlio_testing.engines import running_engine
from emlio_testing.processes import DaemonProcess

ANSWER_S = 20.0


@pytest.fixture
def daemons(small: Path, tmp_path: Path) -> Iterator[list[DaemonProcess]]:
    with (
        DaemonProcess({"small": small}, folder=tmp_path) as one,
        DaemonProcess({"small": small}, folder=tmp_path) as two,
    ):
        yield [one, two]


@pytest.fixture
def engine(daemons: list[DaemonProcess]) -> Iterator[Engine]:
    with running_engine(
        daemons[0].address("small", daemons[1]), recovery=Recovery(timeout="20s", heartbeat="500ms")
    ) as one:
        yield one


def test_what_a_silent_daemon_was_asked_is_asked_of_the_other(daemons: list[DaemonProcess], engine: Engine) -> None:
    known = [engine.questions.sizes(shard, 0, 3).result(ANSWER_S).sizes for shard in range(4)]
    daemons[0].pause()
    asked = [engine.questions.sizes(shard, 0, 3) for shard in range(4)]
    for before, answer in zip(known, asked, strict=True):
        assert np.array_equal(answer.result(ANSWER_S).sizes, before)
        assert before.size == 3


def test_the_same_question_with_other_counts_gets_its_own_answers(engine: Engine) -> None:
    answers = [engine.questions.sizes(0, 7, count) for count in (5, 1, 5, 2)]
    assert [len(answer.result(ANSWER_S).sizes) for answer in answers] == [5, 1, 5, 2]


def test_nobody_waits_once_the_engine_has_ended(daemons: list[DaemonProcess], engine: Engine) -> None:
    for daemon in daemons:
        daemon.pause()
    asked = engine.questions.sizes(0, 0, 3)
    engine.close()
    assert not asked.result(0).sizes.size
    assert not engine.questions.sizes(0, 0, 3).result(0).sizes.size
