"""The settings of a loader for failures.

Covers: the value given to a loader, checked. Does not cover: the reaction to lost daemons
(emlio.receiver.machine) and to bad records (emlio.receiver.records.bad_records).
"""

from dataclasses import dataclass, field, fields

from emlio.arguments import choice, named_only
from emlio.errors import ConfigError
from emlio.receiver.records.bad_records import OnError
from emlio.units import DURATION_UNITS, parse_duration_ns

__all__ = ["Recovery"]

_VERIFY = ("all", "none")
_LEAST_NS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """The settings of a loader for failures of daemons and for bad records.

        EmlioLoader(address, batch_size=256, recovery=Recovery(timeout="5min", on_error="skip"))

    Durations are texts such as "30ms", "3s" and "2min", or numbers of seconds.

    Attributes:
        timeout: the time after which it is an error that a daemon which no other can replace is
            silent, or that a batch is incomplete.
        heartbeat: the time after which a silent daemon is called again and others are asked for
            its part. At most `timeout`; a longer one counts as that.
        on_error: for a record that fails its check or cannot be decoded: "raise", "skip" (a shorter
            batch) or "replace" (by another record of the batch).
        verify: "all" checks the CRC32C of every record, "none" does not.
        timeout_ns: `timeout` in nanoseconds.
        heartbeat_ns: `heartbeat` in nanoseconds, at most `timeout_ns`.
    """

    timeout: "str | float" = "60s"
    heartbeat: "str | float" = "3s"
    on_error: str = "raise"
    verify: str = "all"
    timeout_ns: int = field(init=False, repr=False, compare=False)
    heartbeat_ns: int = field(init=False, repr=False, compare=False)

    def __new__(cls, *values: object, **options: object) -> "Recovery":
        """Refuse arguments that the class does not have, with the names of those that it has."""
        named_only(cls.__name__, [one.name for one in fields(cls) if one.init], values, options)
        return object.__new__(cls)

    def __post_init__(self) -> None:
        timeout_ns = _duration_ns("timeout", self.timeout)
        object.__setattr__(self, "timeout_ns", timeout_ns)
        object.__setattr__(self, "heartbeat_ns", min(_duration_ns("heartbeat", self.heartbeat), timeout_ns))
        choice("on_error", self.on_error, tuple(map(str, OnError)))
        choice("verify", self.verify, _VERIFY)

    @property
    def verifies(self) -> bool:
        """Return whether records are checked against their CRC32C."""
        return self.verify == "all"


def _duration_ns(name: str, given: "str | float") -> int:
    try:
        found_ns = parse_duration_ns(given)
    except ConfigError:
        found_ns = 0
    if found_ns < _LEAST_NS:
        raise ConfigError(f"{name} must be a duration of at least 1 ms in {DURATION_UNITS}, got {given!r}")
    return found_ns
