"""The gate between a loader and its user: when it opens, and the log while it is closed."""

import logging
from dataclasses import dataclass

import pytest

from emlio.errors import ClosedError, RefusedError
from emlio.receiver.threads.rank_gate import RankGate
from emlio.wire.control import Limit, Place


@dataclass
class Walker:
    """A user in a pass; each step consumes 8 samples."""

    epoch: int = 0
    begin: int = 0
    steps_done: int = 0
    few: int = 4
    at_end: bool = False
    is_fixed: bool = False

    def reach(self, steps: int) -> int:
        return self.begin + 8 * steps


@pytest.mark.parametrize("walker", [Walker(), Walker(3, 16)])
def test_the_first_batch_waits_until_daemons_know_where_the_user_begins(walker: Walker) -> None:
    told: list[object] = []
    gate = RankGate(lambda: told.append(gate.place()))
    gate.keep(None)
    assert not gate.opens(walker)
    assert told[0] == Place(walker.epoch, walker.begin, walker.begin)
    gate.keep(None)  # the answer to an earlier word
    assert not gate.opens(walker)
    gate.told()
    gate.keep(None)
    assert gate.opens(walker)


def test_the_next_epoch_waits_for_nothing() -> None:
    gate, first = RankGate(), Walker(3, 16)
    gate.opens(first)
    gate.told()
    gate.keep(None)
    first.steps_done = 5
    assert gate.opens(Walker(4))
    assert gate.place() == Place(4, 0, 0, True, left=(3, 56))


@pytest.mark.parametrize(
    ("limit", "words"),
    [(Limit(0, 0, 0), "another rank uses a loader with other options"), (Limit(0, 16, 2), "at sample 16 of epoch 0")],
)
def test_whoever_waits_is_told_why(
    limit: Limit, words: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("emlio.receiver.threads.rank_gate._SAID_AFTER_S", 0.0)
    gate, walker = RankGate(name="rank 1 of 2 (dataset 'd')"), Walker(steps_done=4)
    gate.opens(walker)
    gate.told()
    gate.keep(limit)
    handler = logging.Handler()
    monkeypatch.setattr(handler, "emit", lambda record: gate.close())
    logger = logging.getLogger("emlio.receiver")
    logger.addHandler(handler)
    try:
        with caplog.at_level(logging.WARNING, "emlio.receiver"), pytest.raises(ClosedError):
            gate.wait(walker)
    finally:
        logger.removeHandler(handler)
    (said,) = caplog.messages
    assert said.startswith("rank 1 of 2 (dataset 'd') waits: ")
    assert words in said


def test_a_refusal_stops_even_what_is_here_already() -> None:
    gate, walker = RankGate(), Walker()
    gate.opens(walker)
    gate.told()
    gate.keep(None)
    error = RefusedError("they differ", code="ranks-differ")
    gate.fail(error)
    assert gate.wait(walker) is error
