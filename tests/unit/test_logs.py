"""Log lines for people and for machines."""

import io
import json
import logging
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

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
    said = datetime.fromisoformat(first["time"])
    assert said.tzinfo is not None
    assert abs(datetime.now(UTC) - said) < timedelta(minutes=1)


def test_a_field_replaces_none_of_those_that_every_line_has() -> None:
    stream = io.StringIO()
    set_up_logging("json", stream)
    logging.getLogger("emlio.daemon").info("a sentence", extra={"time": 0, "level": "x", "logger": 1, "rank": 3})
    line = json.loads(stream.getvalue())
    assert (line["level"], line["logger"], line["message"], line["rank"]) == ("info", "emlio.daemon", "a sentence", 3)
    assert line["time"].startswith("20")


def test_text_is_for_people() -> None:
    lines = _lines("text")
    assert lines[0].endswith(" INFO    serving 2 datasets at tcp://127.0.0.1:5555")
    assert lines[1].endswith(" ERROR   it failed")
    assert lines[2] == "    Traceback (most recent call last):"
    assert any(line.endswith('raise ValueError("two\\nlines")') for line in lines)
    assert lines[-2:] == ["    ValueError: two", "    lines"]


FORGERIES = [
    "a\n12:00:00 INFO    the rank is whoever it says",
    "a\r12:00:00 INFO    nothing to see",
    "a\x1b[2J\x1b]0;title\x07",
    "a\x9b31m",
    "a\x7f\x08\x08\x00",
    "a\u2028b\u2029c\x85d\x0be\x0cf",
    "\u202eevil\u2066\u200b\ufeff",
    "half \udc80\ud800",
]


@pytest.mark.parametrize("style", ["text", "json"])
@pytest.mark.parametrize("said", FORGERIES)
def test_what_others_say_begins_no_line_and_moves_no_cursor(style: str, said: str) -> None:
    stream = io.StringIO()
    set_up_logging(style, stream)
    log = logging.getLogger("emlio.daemon")
    log.warning("a stranger is turned away: %s", said, extra={"peer": said})
    written = stream.getvalue()
    assert written.endswith("\n")
    assert written[:-1].isprintable()
    if style == "json":
        line = json.loads(written)
        assert (line["message"], line["peer"]) == (f"a stranger is turned away: {said}", said)
    else:
        assert written.encode("ascii").decode("unicode_escape")[:-1].endswith(f"a stranger is turned away: {said}")


@pytest.mark.parametrize("said", FORGERIES)
def test_a_trace_stays_readable_and_holds_no_line_that_looks_like_the_log_s(said: str) -> None:
    stream = io.StringIO()
    set_up_logging("text", stream)
    try:
        raise ValueError(said)
    except ValueError:
        logging.getLogger("emlio.daemon").exception("it failed", stack_info=True)
    first, *rest = stream.getvalue()[:-1].split("\n")
    assert first.endswith(" ERROR   it failed")
    assert len(rest) > 5
    assert all(line.startswith("    ") and line.isprintable() for line in rest)
    assert "    Traceback (most recent call last):" in rest


def test_letters_of_all_scripts_are_left_as_they_are() -> None:
    stream = io.StringIO()
    set_up_logging("text", stream)
    logging.getLogger("emlio.daemon").info("dataset ñandú-数据-данные: %s", r"C:\n")
    assert stream.getvalue().endswith("dataset ñandú-数据-данные: C:\\n\n")


def test_setting_up_twice_does_not_say_everything_twice() -> None:
    _lines("json")
    assert len(_lines("text")[:2]) == 2
    assert len(logging.getLogger("emlio").handlers) == 1
