"""How a daemon's log lines look: for people, or one JSON object a line for machines.

Covers: the two formats and switching one on. Does not cover: what is worth logging.
"""

import json
import logging
import sys
from typing import TextIO

__all__ = ["set_up_logging"]

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


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
        return json.dumps(entry, default=str)


def set_up_logging(style: str, stream: TextIO | None = None) -> None:
    """Log "text" or "json" lines of level INFO and above to `stream` (standard error)."""
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    if style == "json":
        handler.setFormatter(_JsonLines())
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(message)s", "%H:%M:%S"))
    logger = logging.getLogger("emlio")
    logger.handlers = [handler]
    logger.setLevel(logging.INFO)
    logger.propagate = False
