"""How a daemon's log lines look: for people, or one JSON object a line for machines.

Covers: the two formats and switching one on. Does not cover: what is worth logging.

Much of what is logged was said by somebody else: names of hosts and datasets, files' names, errors of others. In both formats a
line of the log begins where we began one, and what stands in it moves no cursor, clears no screen and turns no text around.
"""

import json
import logging
import sys
from typing import TextIO

__all__ = ["set_up_logging"]

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}
_INDENT = "    "


class _JsonLines(logging.Formatter):
    """One object a line; whatever was passed as `extra` becomes a key."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S") + f".{int(record.msecs):03d}",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        entry.update({key: value for key, value in vars(record).items() if key not in _STANDARD})
        if record.exc_info:
            entry["trace"] = self.formatException(record.exc_info)
        # The one character that JSON takes as it is and terminals do not.
        return json.dumps(entry, default=str).replace("\x7f", "\\u007f")


class _TextLines(logging.Formatter):
    """One line; of a trace each line is indented, so that none can be taken for one of the log's."""

    def format(self, record: logging.LogRecord) -> str:
        time = self.formatTime(record, "%H:%M:%S")
        lines = [f"{time} {record.levelname:<7} {_printable(record.getMessage())}"]
        traces = [self.formatException(record.exc_info)] if record.exc_info else []
        if record.stack_info:
            traces.append(self.formatStack(record.stack_info))
        # Split at line feeds alone: other line ends are somebody's, and are written as the rest of what cannot be printed.
        lines += [_INDENT + _printable(line) for trace in traces for line in trace.split("\n")]
        return "\n".join(lines)


def _printable(text: str) -> str:
    """The text with line ends, escapes, marks of direction and halves of characters written as Python writes them."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text)


def set_up_logging(style: str, stream: TextIO | None = None) -> None:
    """Log "text" or "json" lines of level INFO and above to `stream` (standard error)."""
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    handler.setFormatter(_JsonLines() if style == "json" else _TextLines())
    logger = logging.getLogger("emlio")
    logger.handlers = [handler]
    logger.setLevel(logging.INFO)
    logger.propagate = False
