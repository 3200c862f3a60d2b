"""Whoever asks how long records are gets an answer though the daemon that was asked is gone."""

import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from emlio.clock import SystemClock
from emlio.planner.order import Shuffle
from emlio.receiver.address import Address
from emlio.receiver.bad_records import BadRecordPolicy
from emlio.receiver.config import LoaderConfig
from emlio.receiver.engine import Engine
from emlio.receiver.prefetch import Prefetch
from emlio.receiver.workshop import BatchOptions, Workshop
from emlio.testing.processes import DaemonProcess

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
    config = LoaderConfig(
        address=Address.parse(daemons[0].address("small", daemons[1])),
        batch_size=5,
        rows=5,
        shuffle=Shuffle.parse(True),
        seed=1,
        drop_last=False,
        pad=False,
        rank=0,
        world_size=1,
        job="sizes",
        in_order=True,
        prefetch_bytes=1 << 20,
        timeout_ns=20_000_000_000,
        heartbeat_ns=500_000_000,
        on_error="raise",
        verify="all",
    )
    options = BatchOptions(
        **{**dict.fromkeys(BatchOptions.__slots__), "raw": True, "ids": False, "seeds": False, "to": "numpy"}
    )
    workshop = Workshop(options, BadRecordPolicy("raise"), config)
    prefetch = Prefetch(workshop.maker)
    engine = Engine(config, prefetch, SystemClock())
    try:
        engine.start()
        yield engine
    finally:
        engine.close()
        prefetch.close()
        workshop.close()


def test_what_a_silent_daemon_was_asked_is_asked_of_the_other(daemons: list[DaemonProcess], engine: Engine) -> None:
    known = [engine.sizes(shard, 0, 3).result(ANSWER_S).sizes for shard in range(4)]
    daemons[0].send_signal(signal.SIGSTOP)
    asked = [engine.sizes(shard, 0, 3) for shard in range(4)]
    for before, answer in zip(known, asked, strict=True):
        assert np.array_equal(answer.result(ANSWER_S).sizes, before)
        assert before.size == 3


def test_the_same_question_with_other_counts_gets_its_own_answers(engine: Engine) -> None:
    answers = [engine.sizes(0, 7, count) for count in (5, 1, 5, 2)]
    assert [len(answer.result(ANSWER_S).sizes) for answer in answers] == [5, 1, 5, 2]


def test_nobody_waits_once_the_engine_has_ended(daemons: list[DaemonProcess], engine: Engine) -> None:
    for daemon in daemons:
        daemon.send_signal(signal.SIGSTOP)
    asked = engine.sizes(0, 0, 3)
    engine.close()
    assert not asked.result(0).sizes.size
    assert not engine.sizes(0, 0, 3).result(0).sizes.size
