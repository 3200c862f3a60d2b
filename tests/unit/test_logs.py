"""Log lines for people and for machines."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from emlio.logs import set_up_logging


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    logger = logging.getLogger("emlio")
    before = (logger.handlers, logger.level, logger.propagate)
    yield
    logger.handlers, logger.level, logger.propagate = before


def _lines(style: str) -> list[str]:
    stream = io.StringIO()
    set_up_logging(style, stream)
    log = logging.getLogger("emlio.daemon")
    log.debug("too small to be seen")
    log.info("serving %d datasets at %s", 2, "tcp://127.0.0.1:5555", extra={"datasets": 2, "path": io})
    try:
        raise ValueError("two\nlines")
    except ValueError:
        log.exception("it failed")
    return stream.getvalue().splitlines()


def test_json_is_one_object_a_line_whatever_a_message_holds() -> None:
    first, second = (json.loads(line) for line in _lines("json"))
    assert first["message"] == "serving 2 datasets at tcp://127.0.0.1:5555"
    assert (first["level"], first["logger"], first["datasets"]) == ("info", "emlio.daemon", 2)
    assert "module 'io'" in first["path"]
    assert "trace" not in first
    assert (second["level"], second["message"]) == ("error", "it failed")
    assert second["trace"].endswith("ValueError: two\nlines")
    assert len(first["time"]) == len("2026-01-01T00:00:00.000")


def test_text_is_for_people() -> None:
    lines = _lines("text")
    assert lines[0].endswith(" INFO    serving 2 datasets at tcp://127.0.0.1:5555")
    assert lines[-1] == "lines"


def test_setting_up_twice_does_not_say_everything_twice() -> None:
    _lines("json")
    assert len(_lines("text")[:2]) == 2
    assert len(logging.getLogger("emlio").handlers) == 1
