"""Weights as a user gives them, as whole numbers in the same proportions.

A float means the decimal number that Python prints for it: 0.7 is seven tenths. So 0.7 and 0.3 become 7 and 3, and nothing is
rounded unless the whole numbers would be longer than nine digits.

Covers: that conversion. Does not cover: dividing places (shares.py).
"""

from collections.abc import Sequence
from fractions import Fraction
from math import gcd, isfinite, lcm
from numbers import Rational, Real

from emlio.errors import ConfigError
from emlio.planner.mixture.shares import MOST_WEIGHT

__all__ = ["whole_weights"]


def whole_weights(weights: Sequence[object], name: str = "weights") -> tuple[int, ...]:
    """Return whole numbers without a common divisor, in the proportions of the weights.

    If their sum would be above 2**31, they are rounded to it; a weight above 0 stays so.

    Args:
        weights: numbers >= 0, not all 0.
        name: what they are, for errors.

    Raises:
        ConfigError: one is not such a number, or all are 0.
    """
    exact = [_fraction(weight, name) for weight in weights]
    if not any(exact):
        raise ConfigError(f"{name} must not all be 0, got {list(weights)!r}")
    scale = lcm(*(value.denominator for value in exact))
    found = _reduced([int(value * scale) for value in exact])
    total = sum(found)
    if total > MOST_WEIGHT:
        room = MOST_WEIGHT - len(found)
        found = _reduced([max((2 * room * value + total) // (2 * total), 1) if value else 0 for value in found])
    return tuple(found)


def _fraction(weight: object, name: str) -> Fraction:
    value = Fraction(-1)
    if isinstance(weight, bool):
        pass
    elif isinstance(weight, Rational):
        value = Fraction(int(weight.numerator), int(weight.denominator))
    elif isinstance(weight, Real) and isfinite(float(weight)):
        # The text, not float(): NumPy's float32 prints 0.7 for what is 0.699999988 as a double.
        value = Fraction(str(weight))
    if value < 0:
        raise ConfigError(f"{name} must be numbers >= 0, got {weight!r}")
    return value


def _reduced(values: list[int]) -> list[int]:
    divisor = gcd(*values)
    return [value // divisor for value in values]
