"""Formats of a daemon's log: text for people, or one JSON object per line for machines.

Much of the logged text comes from others: names of hosts, datasets and files, errors of peers. In
both formats a line begins only where EMLIO began one, and its text moves no cursor, clears no
screen and reverses no text.

Covers: the two formats and setting one up. Does not cover: which events are logged.
"""

import json
import logging
import sys
from datetime import datetime
from typing import TextIO

__all__ = ["printable", "set_up_logging"]

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}
_INDENT = "    "


class _JsonLines(logging.Formatter):
    """One object per line; values passed as `extra` become keys, but replace none of the usual ones.

    The time has the zone of this host, since lines of several hosts are read together.
    """

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created).astimezone().isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        given = ((key, value) for key, value in vars(record).items() if key not in _STANDARD)
        entry.update({key: value for key, value in given if key not in entry})
        if record.exc_info:
            entry["trace"] = self.formatException(record.exc_info)
        # The one control character that JSON leaves as it is and a terminal does not.
        return json.dumps(entry, default=str).replace("\x7f", "\\u007f")


class _TextLines(logging.Formatter):
    """One line per message.

    Lines of a trace are indented, so that none looks like a line of the log.
    """

    def format(self, record: logging.LogRecord) -> str:
        time = self.formatTime(record, "%H:%M:%S")
        lines = [f"{time} {record.levelname:<7} {printable(record.getMessage())}"]
        traces = [self.formatException(record.exc_info)] if record.exc_info else []
        if record.stack_info:
            traces.append(self.formatStack(record.stack_info))
        # Split at line feeds only: other line ends come from others, and are escaped like all
        # unprintable text.
        lines += [_INDENT + printable(line) for trace in traces for line in trace.split("\n")]
        return "\n".join(lines)


def printable(text: str) -> str:
    """Return the text with all unprintable characters escaped like in Python.

    These are line ends, escape characters, direction marks and surrogates.
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text)


def set_up_logging(style: str, stream: TextIO | None = None) -> None:
    """Log lines of level INFO and above to `stream` (by default standard error).

    `style` is "text" or "json".
    """
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    handler.setFormatter(_JsonLines() if style == "json" else _TextLines())
    logger = logging.getLogger("emlio")
    logger.handlers = [handler]
    logger.setLevel(logging.INFO)
    logger.propagate = False
