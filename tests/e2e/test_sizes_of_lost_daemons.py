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
