"""Plausibility checks of energy figures."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from emlio.energy.values.device import Method
from emlio.energy.values.total import DeviceEnergy
from emlio.errors import ConfigError

__all__ = ["LEAST_OF_IDLE", "MOST_OF_RATED", "Judgement", "Verdict", "judge"]

LEAST_OF_IDLE = 0.5
"""No device draws less than half of its idle power, unless it was switched off."""

MOST_OF_RATED = 1.15
"""No device draws, on average, more than this multiple of its long-term rated power."""


class Verdict(StrEnum):
    """The result of a check."""

    PLAUSIBLE = "plausible"
    IMPOSSIBLE = "cannot be right"
    UNCHECKED = "not checked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The result of a check of some devices, with its reason.

    Attributes:
        subject: the devices, such as "gpu-1, CPU".
        verdict: the result.
        reason: one sentence, with the figures.
    """

    subject: str
    verdict: Verdict
    reason: str

    def __str__(self) -> str:
        return f"{self.subject}: {self.verdict}: {self.reason}"


def judge(subject: str, parts: Iterable[DeviceEnergy], duration_ns: int) -> Judgement:
    """Compare the mean power of devices with their limits, where these are known.

    Args:
        subject: name of the devices.
        parts: devices of one domain that add up. Other domains would hide an implausible figure.
        duration_ns: the time in which they used the energy.
    """
    if duration_ns <= 0:
        raise ConfigError(f"a duration of energy must be above 0, got {duration_ns} ns")
    known = [part for part in parts if part.energy_uj is not None]
    measured = [part for part in known if part.device.method is not Method.ESTIMATED]
    if known and not measured:
        # The model computes its figures from the same limits.
        return Judgement(subject=subject, verdict=Verdict.UNCHECKED, reason="an estimate by a model")
    known = measured
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
    reason = "idle and rated watts are unknown" if known else "no value is known"
    return Judgement(subject=subject, verdict=Verdict.UNCHECKED, reason=reason)


def _watts(parts: list[DeviceEnergy], duration_ns: int) -> float:
    return sum(part.energy_uj or 0 for part in parts) * 1000 / duration_ns


def _names(parts: list[DeviceEnergy]) -> str:
    return " and ".join(part.device.name for part in parts)
