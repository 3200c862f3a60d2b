"""The log of a tuner: what it saw, what it decided, and why. It is bounded, and all of it can be decided again.

One JSON object a line. A line with a "state" is the memory of the rule from which the following lines go on; the others
are snapshots, with the new "tuning" and the "reason" where one decided something.

Covers: writing, reading, deciding again. Does not cover: showing it (emlio.cli.tune).
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from emlio.errors import ConfigError
from emlio.receiver.tuning.choice import Rule, shipped
from emlio.receiver.tuning.rule import decide
from emlio.receiver.tuning.snapshot import Snapshot
from emlio.receiver.tuning.state import Decision, Limits, RuleState
from emlio.receiver.tuning.tuning import Tuning

__all__ = ["Line", "TuningLog", "read_log", "replayed"]

_LINES: Final = 4_000
"""Of a part: half an hour. The last two parts are kept, about 1 MB each."""


class Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A line of a log.

    Attributes:
        state: the memory of the rule before the following lines.
        limits: of the settings, with a state, and where they have changed.
        own: with a state: a rule of the user's decides, which cannot be asked again.
        model: with a state: name and digest of the model that chooses what is tried; "" without one.
        snapshot: what the loader saw.
        tuning: the settings from then on, with a decision; with a state, those that hold.
        reason: of the decision.
    """

    state: RuleState | None = None
    limits: Limits | None = None
    own: bool = False
    model: str = ""
    snapshot: Snapshot | None = None
    tuning: Tuning | None = None
    reason: str = ""


class TuningLog:
    """A log in two files at most: PATH, and PATH.before with what came before. Used by one thread."""

    def __init__(self, path: Path, *, own: bool = False, model: str = "") -> None:
        """Begin a log; `own` if a rule of the user's decides, `model` names the model, if there is one.

        Raises:
            ConfigError: the file cannot be written.
            FileExistsError: it is there already.
        """
        self._path = path
        self._lines = _LINES
        self._own = own
        self._model = model
        self._limits: Limits | None = None
        self._encoder = msgspec.json.Encoder()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("xb", buffering=0)  # another loader may begin one at this moment
        except FileExistsError:
            if path.exists():
                raise
            raise ConfigError(f"the log of the tuner must be writable: {path.parent} is no folder") from None
        except OSError as error:
            raise ConfigError(f"the log of the tuner must be writable: {path}: {error.strerror}") from error

    def add(self, before: RuleState, limits: Limits, snapshot: Snapshot, decision: Decision | None) -> None:
        """Write what was seen and decided.

        Raises:
            OSError: it cannot be written.
        """
        if self._lines >= _LINES:
            self._begin(Line(state=before, limits=limits, own=self._own, model=self._model, tuning=before.tuning))
            self._limits = limits
        changed, self._limits = None if limits == self._limits else limits, limits
        tuning, reason = (decision.tuning, decision.reason) if decision is not None else (None, "")
        self._write(Line(limits=changed, snapshot=snapshot, tuning=tuning, reason=reason))

    def _begin(self, line: Line) -> None:
        if self._file.tell():
            self._file.close()
            self._path.replace(self._path.with_name(f"{self._path.name}.before"))
            self._file = self._path.open("wb", buffering=0)
        self._lines = 0
        self._write(line)

    def _write(self, line: Line) -> None:
        self._file.write(self._encoder.encode(line) + b"\n")
        self._lines += 1

    def close(self) -> None:
        """Close the file. May be called again."""
        self._file.close()


def read_log(path: Path) -> Iterator[Line]:
    """Yield the lines of a log. A last line that is not complete is left out.

    Raises:
        ConfigError: the file cannot be read, or is no log.
    """
    decoder = msgspec.json.Decoder(Line)
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise ConfigError(f"a log of the tuner must be readable: {path}: {error.strerror}") from error
    if _is_settings(lines[0]):
        raise ConfigError(f"a log of the tuner must hold what was seen: {path} has settings alone, for tune=")
    for number, line in enumerate(lines[:-1], 1):
        try:
            yield decoder.decode(line)
        except (msgspec.DecodeError, ConfigError) as error:
            raise ConfigError(f"{path}, line {number}: must be a line of a tuner's log: {error}") from error


def _is_settings(line: bytes) -> bool:
    try:
        msgspec.json.decode(line, type=Tuning)
    except (msgspec.DecodeError, ConfigError):
        return False
    return True


def replayed(lines: Iterator[Line]) -> Iterator[tuple[Line, Decision | None, bool]]:
    """Yield each line that has a snapshot, what the rule decides on it now, and whether that could be asked.

    A rule of the user's, or one with another model, cannot: then it is what was decided.
    """
    state, limits, rule = None, None, None
    for line in lines:
        if line.state is not None:
            state, rule = line.state, _rule(line)
        limits = line.limits or limits
        if line.snapshot is None:
            continue
        if state is None or limits is None:
            raise ConfigError("a log of the tuner must begin with a state, this one does not")
        if rule is None:
            yield line, None if line.tuning is None else Decision(tuning=line.tuning, reason=line.reason), False
            continue
        state, decision = rule(state, line.snapshot, limits)
        yield line, decision, True


def _rule(line: Line) -> Rule | None:
    """Return the rule that decided; None if it cannot be asked again."""
    if line.own or not line.model:
        return None if line.own else decide
    learned = shipped()
    return learned if learned.words == line.model else None
