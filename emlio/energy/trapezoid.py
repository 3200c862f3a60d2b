"""Energy of power: a sensor's samples integrated by the trapezoid.

Covers: the sum, exactly, and stretches for which it knows nothing. Does not cover: reading sensors; counters.
"""

from emlio.errors import ConfigError

__all__ = ["Trapezoid"]

_LONGEST_NS = 2_000_000_000
"""Twenty readings of the recorder missed. Between samples further apart than this the power may have been anything."""


class Trapezoid:
    """Cumulative microjoules of a power that is sampled now and then.

    The sum is kept in whole microwatt-nanoseconds, twice, so that nothing is lost by rounding however finely it is sampled.
    """

    def __init__(self, longest_ns: int = _LONGEST_NS) -> None:
        """Nothing summed yet.

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
        """Microjoules so far, of the stretches that are known."""
        return self._twice_uw_ns // 2_000_000_000

    def add(self, power_uw: int | None, at_ns: int) -> int | None:
        """Take a sample in.

        Args:
            power_uw: microwatts; None where the sensor could not be read.
            at_ns: when; never before the sample before.

        Returns:
            Microjoules up to here; None where there is no sample, or the stretch before this one is missing from the sum. Short
            stretches without a sample are bridged by the next one.
        """
        if power_uw is None:
            return None
        if power_uw < 0:
            raise ConfigError(f"a power must not be below 0, got {power_uw} µW")
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
