"""Integration of a power sensor's samples by the trapezoidal rule."""

from emlio.errors import ConfigError

__all__ = ["Trapezoid"]

_LONGEST_NS = 2_000_000_000
"""As long as twenty missed readings. Between samples further apart the power is unknown."""


class Trapezoid:
    """Cumulative microjoules of a sampled power.

    The sum is kept in units of half a microwatt-nanosecond, so that nothing is lost by rounding
    however finely the power is sampled.
    """

    def __init__(self, longest_ns: int = _LONGEST_NS) -> None:
        """Start at 0.

        Args:
            longest_ns: samples further apart are not joined by a line.
        """
        if longest_ns <= 0:
            raise ConfigError(f"the longest time between samples must be above 0, got {longest_ns} ns")
        self._longest_ns = longest_ns
        self._twice_uw_ns = 0
        self._last: tuple[int, int] | None = None

    @property
    def total_uj(self) -> int:
        """Microjoules so far, of the periods that are known."""
        return self._twice_uw_ns // 2_000_000_000

    def add(self, power_uw: int | None, at_ns: int) -> int | None:
        """Add a sample.

        Args:
            power_uw: microwatts; None where the sensor could not be read.
            at_ns: the time of the sample; never before the previous one.

        Returns:
            Microjoules so far; None if there is no sample, or if the period before it is missing
            from the sum. Short periods without a sample are bridged by the next one.
        """
        if power_uw is None:
            return None
        if power_uw < 0:
            raise ConfigError(f"a power must be at least 0, got {power_uw} µW")
        last, self._last = self._last, (power_uw, at_ns)
        if last is None:
            return self.total_uj
        passed_ns = at_ns - last[1]
        if passed_ns < 0:
            raise ConfigError(f"a sample must not be older than the one before, got {at_ns} ns after {last[1]} ns")
        if passed_ns > self._longest_ns:
            return None
        self._twice_uw_ns += (last[0] + power_uw) * passed_ns
        return self.total_uj
