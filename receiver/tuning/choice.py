"""The `tune` argument: a choice of who decides about a loader's settings.

Covers: the choice, parsed from what the user gave. Does not cover: deciding (emlio.receiver.tuning.rule).
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from emlio.arguments import like
from emlio.errors import ConfigError
from emlio.learned.model import Model
from emlio.receiver.tuning.learned import Learned
from emlio.receiver.tuning.rule import decide
from emlio.receiver.tuning.snapshot import Snapshot
from emlio.receiver.tuning.state import Decision, Limits, RuleState
from emlio.receiver.tuning.tuning import BOUNDS, SMALLEST_WINDOW_BYTES, Tuning

__all__ = ["Joules", "Rule", "TuneChoice", "shipped"]

Rule = Callable[[RuleState, Snapshot, Limits], tuple[RuleState, Decision | None]]
"""Returns the next state and a decision, from a state and what is seen. Called twice a second by the receive thread."""

_WORDS: Final = ("off", "auto", "learned")
_LEAST: Final = 0.5
_MUST_BE: Final = 'must be "off", "auto", "learned", Joules(...), a rule, settings, or the path of a file with settings'
_ZIP: Final = b"PK\x03\x04"
"""A model's file begins so."""


@dataclass(frozen=True, slots=True)
class Joules:
    """The least work of both hosts, as long as training waits no more than this allows.

    Attributes:
        utilisation: the share of the time for which the training must not wait for records.
    """

    utilisation: float = 0.98

    def __post_init__(self) -> None:
        value: Any = self.utilisation
        if isinstance(value, bool) or not isinstance(value, float | int) or not _LEAST <= value <= 1:
            percent = isinstance(value, float | int) and 100 * _LEAST <= value <= 100
            hint = f"; it is a share: {value:g} % is Joules({value / 100:g})" if percent else ""
            raise ConfigError(f"utilisation must be a number in [{_LEAST}, 1], got {value!r}{hint}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneChoice:
    """The choice of who decides about a loader's settings.

    Attributes:
        way: "off" (nothing changes), "auto" (a rule), "learned" (the rule with a model), "joules" (a rule that saves
            work), "own" (the user's rule), or "frozen".
        frozen: the settings that were given, or those of a file, with "frozen".
        waits: the share of the time for which the user may wait, with "joules".
        rule: decides, unless settings are fixed.
    """

    way: str = "auto"
    frozen: Tuning | None = None
    waits: float | None = None
    rule: Rule = decide

    @property
    def is_on(self) -> bool:
        """Return whether daemons are told of settings."""
        return self.way != "off"

    @classmethod
    def parse(cls, given: Any) -> Self:
        """Return the choice that the user gave: a word, settings, or the path of a file with settings or of a log."""
        if isinstance(given, Joules):
            return cls(way="joules", waits=1 - given.utilisation)
        if isinstance(given, Tuning):
            return cls(way="frozen", frozen=given)
        if isinstance(given, Learned):  # with another threshold or score it cannot be asked again from a log
            usual = given == Learned(model=given.model)
            return cls(way="learned" if usual else "own", rule=given)
        if isinstance(given, type):
            raise ConfigError(f"{_MUST_BE}, got the class {given.__name__}")
        if callable(given):
            rule: Any = given
            return cls(way="own", rule=rule)
        path: str | bytes | os.PathLike[str] = given
        try:
            place: str | bytes = os.fspath(path)
        except TypeError:
            place = b""
        if not isinstance(place, str) or not place:
            raise ConfigError(f"{_MUST_BE}, got {given!r}")
        if given == "learned":
            return cls(way="learned", rule=shipped())
        return cls(way=place) if given in _WORDS else cls(way="frozen", frozen=_last(Path(place)))


def shipped() -> Learned:
    """Return the rule with the model that comes with EMLIO."""
    return Learned(model=Model.load("read"))


def _last(path: Path) -> Tuning:
    """Return the settings of a file: those of its last line that has any."""
    told = f"{_MUST_BE}, got {str(path)!r}"
    try:
        text = path.read_bytes()
    except (OSError, ValueError) as error:
        words = error.strerror if isinstance(error, OSError) else error
        meant = like(str(path), _WORDS) if isinstance(error, FileNotFoundError) else ""
        raise ConfigError(f"{told}, a file that cannot be read: {words}{meant}") from error
    if text.startswith(_ZIP):
        raise ConfigError(
            f"{told}, which is like a model: give Learned(model=Model.load(Path({str(path)!r}))) "
            "of emlio.receiver.tuning.learned and emlio.learned.model"
        )
    lines = text.splitlines()
    is_whole = text.endswith(b"\n") or len(lines) == 1  # a log that is being written may end within a line
    for number in range(len(lines), 0, -1):
        try:
            if (found := _settings(lines[number - 1])) is not None:
                return found
        except (msgspec.DecodeError, ConfigError) as error:
            if _is_json(text) and len(lines) > 1:
                raise ConfigError(f"{told}: settings must be on one line, these are on {len(lines)}") from error
            if number < len(lines) or is_whole:
                raise ConfigError(f"{told}, line {number}: {error}") from error
    raise ConfigError(f'{told}, a file without a line of JSON that has "window_bytes"')


def _settings(line: bytes) -> Tuning | None:
    """Return the settings of a line; None if it has none."""
    if not line.strip():
        return None
    found = msgspec.json.decode(line, type=dict[str, Any])
    if "tuning" in found:
        return msgspec.convert(found["tuning"], Tuning)
    if not found.keys() & BOUNDS.keys():
        return None
    known = msgspec.convert({"window_bytes": SMALLEST_WINDOW_BYTES, **found}, Tuning)
    if "window_bytes" not in found:
        raise ConfigError(f"window_bytes is required beside {', '.join(found)}")
    return known


def _is_json(text: bytes) -> bool:
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError:
        return False
    return True
