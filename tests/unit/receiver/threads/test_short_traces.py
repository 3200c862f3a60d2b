"""Tracebacks that reach the user: short where the message says all, whole where it may not."""

import logging
from collections.abc import Callable
from pathlib import Path
from traceback import extract_tb
from typing import Any

import pytest

from emlio import EmlioLoader, Recovery
from emlio.errors import ConfigError, CorruptRecordError, EmlioError, LocalProtocolError, PeerLostError
from emlio.receiver.threads.interrupts import raises_interrupts
from emlio_testing.datasets import make_dataset


def load(address: str, **options: Any) -> None:
    with EmlioLoader(
        address, **{"batch_size": 4, "to": "numpy", "recovery": Recovery(timeout="200ms"), **options}
    ) as loader:
        for _ in loader:
            pass


def frames_under(function: Callable[..., object], error: BaseException) -> list[str]:
    """The functions that the trace shows below this one."""
    names = [frame.name for frame in extract_tb(error.__traceback__)]
    return names[names.index(function.__name__) + 1 :]


def test_an_error_of_the_constructor_ends_where_the_user_called_it() -> None:
    with pytest.raises(ConfigError, match="batch_size") as wrong:
        load("emlio://127.0.0.1:1/data", batch_size=0)
    assert len(frames_under(load, wrong.value)) <= 1
    with pytest.raises(PeerLostError, match="must answer within") as lost:
        load("emlio://127.0.0.1:1/data")
    assert len(frames_under(load, lost.value)) <= 1


def test_an_error_of_an_iteration_ends_where_the_user_asked_for_a_batch(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make_dataset(tmp_path / "data", records=10, shards=1)
    with caplog.at_level(logging.DEBUG, "emlio.receiver"), pytest.raises(CorruptRecordError, match="raw=True") as bad:
        load(str(tmp_path / "data"))
    assert len(frames_under(load, bad.value)) <= 1
    (told,) = [record for record in caplog.records if record.getMessage() == f"raised to the user: {bad.value}"]
    assert told.exc_info is not None
    assert "settle" in caplog.text, "the log has the frames that the user is spared"


def test_an_error_of_a_users_function_shows_its_frames(tmp_path: Path) -> None:
    make_dataset(tmp_path / "data", records=10, shards=1)

    def collate(samples: object) -> object:
        assert samples
        raise ConfigError("mine")

    with pytest.raises(ConfigError, match="mine") as own:
        load(str(tmp_path / "data"), raw=True, collate_fn=collate)
    assert frames_under(load, own.value)[-1] == "collate"


@pytest.mark.parametrize(("kind", "short"), [(EmlioError, True), (LocalProtocolError, False), (ValueError, False)])
def test_an_error_that_may_be_a_defect_keeps_its_trace(kind: type[Exception], short: bool) -> None:
    source = "def fails(error):\n    raise error\n"
    module: dict[str, Any] = {"__name__": "emlio.receiver.example"}
    exec(compile(source, "example.py", "exec"), module)  # a frame that looks like one of the package

    def call(error: Exception) -> None:
        raises_interrupts(module["fails"])(error)

    with pytest.raises(kind) as raised:
        call(kind("a message"))
    assert ("fails" in frames_under(call, raised.value)) != short


def test_a_cause_stays_with_the_error() -> None:
    cause = OSError("the disk")
    module: dict[str, Any] = {"__name__": "emlio.receiver.example", "EmlioError": EmlioError}
    source = "def fails(cause):\n    raise EmlioError('a message') from cause\n"
    exec(compile(source, "example.py", "exec"), module)  # likewise
    with pytest.raises(EmlioError) as raised:
        raises_interrupts(module["fails"])(cause)
    assert raised.value.__cause__ is cause
