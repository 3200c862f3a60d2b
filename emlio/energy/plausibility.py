"""Whether a figure can be true at all.

Covers: mean power against what devices draw at rest and what they are built for. Does not cover: how the figure came to be
(emlio.energy.total).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from emlio.energy.total import DeviceEnergy
from emlio.errors import ConfigError

__all__ = ["LEAST_OF_IDLE", "MOST_OF_RATED", "Judgement", "Verdict", "judge"]

LEAST_OF_IDLE = 0.5
"""No device draws less than half of what it draws at rest, unless it was switched off."""

MOST_OF_RATED = 1.15
"""Nor, on average, more than this of what it is built to draw for long."""


class Verdict(StrEnum):
    """What can be said."""

    PLAUSIBLE = "plausible"
    IMPOSSIBLE = "cannot be right"
    UNCHECKED = "not checked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What was found of some devices.

    Attributes:
        subject: what they are, such as "gpu-1, CPU".
        verdict: in two words.
        reason: in one sentence, with the figures.
    """

    subject: str
    verdict: Verdict
    reason: str

    def __str__(self) -> str:
        return f"{self.subject}: {self.verdict}: {self.reason}"


def judge(subject: str, parts: Iterable[DeviceEnergy], duration_ns: int) -> Judgement:
    """Hold the mean power of the devices whose limits are known against them.

    Args:
        subject: what the devices are.
        parts: those that add up, of one domain: what one of them lacks another must not hide.
        duration_ns: in which they used it.
    """
    if duration_ns <= 0:
        raise ConfigError(f"energy must have been used in some time, got {duration_ns} ns")
    known = [part for part in parts if part.energy_uj is not None]
    rated = [part for part in known if part.device.rated_watts is not None]
    rested = [part for part in known if part.idle_uj and not part.uncounted]
    reasons = list[str]()
    if rated:
        watts, limit = _watts(rated, duration_ns), sum(part.device.rated_watts or 0.0 for part in rated)
        if watts > MOST_OF_RATED * limit:
            reason = f"{watts:.0f} W from {_names(rated)}, built for {limit:.0f} W"
            return Judgement(subject=subject, verdict=Verdict.IMPOSSIBLE, reason=reason)
        reasons.append(f"{watts:.0f} W of {limit:.0f} W rated")
    if rested:
        watts, idle = _watts(rested, duration_ns), sum(part.idle_uj or 0 for part in rested) * 1000 / duration_ns
        if watts < LEAST_OF_IDLE * idle:
            reason = f"{watts:.3g} W from {_names(rested)}, which draw {idle:.3g} W at rest"
            return Judgement(subject=subject, verdict=Verdict.IMPOSSIBLE, reason=reason)
        reasons.append(f"{watts:.3g} W against {idle:.3g} W at rest")
    if reasons:
        return Judgement(subject=subject, verdict=Verdict.PLAUSIBLE, reason=", ".join(reasons))
    reason = "neither idle nor rated watts are known" if known else "nothing is known of it"
    return Judgement(subject=subject, verdict=Verdict.UNCHECKED, reason=reason)


def _watts(parts: list[DeviceEnergy], duration_ns: int) -> float:
    return sum(part.energy_uj or 0 for part in parts) * 1000 / duration_ns


def _names(parts: list[DeviceEnergy]) -> str:
    return " and ".join(part.device.name for part in parts)
