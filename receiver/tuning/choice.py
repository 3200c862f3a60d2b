"""The `tune` argument: a choice of who decides about a loader's settings.

Covers: the choice, parsed from what the user gave. Does not cover: deciding (emlio.receiver.tuning.rule).
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from emlio.errors import ConfigError
from emlio.learned.model import Model
from emlio.receiver.tuning.learned import Learned
from emlio.receiver.tuning.rule import decide
from emlio.receiver.tuning.snapshot import Snapshot
from emlio.receiver.tuning.state import Decision, Limits, RuleState
from emlio.receiver.tuning.tuning import Tuning

__all__ = ["Joules", "Rule", "TuneChoice", "shipped"]

Rule = Callable[[RuleState, Snapshot, Limits], tuple[RuleState, Decision | None]]
"""Returns the next state and a decision, from a state and what is seen. Called twice a second by the receive thread."""

_WORDS: Final = ("off", "auto", "learned")
_LEAST: Final = 0.5
_MUST_BE: Final = 'must be "off", "auto", "learned", Joules(...), a rule, or the path of a file with settings'


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
            raise ConfigError(f"utilisation must be a number in [{_LEAST}, 1], got {value!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneChoice:
    """The choice of who decides about a loader's settings.

    Attributes:
        way: "off" (nothing changes), "auto" (a rule), "learned" (the rule with a model), "joules" (a rule that saves
            work), "own" (the user's rule), or "frozen".
        frozen: the settings of a file, with "frozen".
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
        """Return the choice that the user gave: a word, or the path of a file with settings or of a log of decisions."""
        if isinstance(given, Joules):
            return cls(way="joules", waits=1 - given.utilisation)
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


class _Settings(msgspec.Struct):
    tuning: msgspec.Raw = msgspec.Raw()
    window_bytes: int | None = None


def _last(path: Path) -> Tuning:
    """Return the settings of a file: those of its last line that has any."""
    told = f"{_MUST_BE}, got {str(path)!r}"
    try:
        text = path.read_bytes()
    except (OSError, ValueError) as error:
        words = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"{told}, a file that cannot be read: {words}") from error
    lines = text.splitlines()
    is_whole = text.endswith(b"\n") or len(lines) == 1  # a log that is being written may end within a line
    for number in range(len(lines), 0, -1):
        line = lines[number - 1]
        try:
            found = msgspec.json.decode(line, type=_Settings)
            if bytes(found.tuning) or found.window_bytes is not None:
                return msgspec.json.decode(bytes(found.tuning) or line, type=Tuning)
        except (msgspec.DecodeError, ConfigError) as error:
            if number < len(lines) or is_whole:
                raise ConfigError(f"{told}, line {number}: {error}") from error
    raise ConfigError(f'{told}, a file without a line of JSON that has "window_bytes"')
