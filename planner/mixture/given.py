"""A mixture as a user gives it: weights, the length of an epoch, changes of weights.

Covers: checking them, the sampling that follows. Does not cover: the addresses of datasets (emlio.receiver.setup.mixture), the
arguments of a command (emlio.cli.planned_mixture).
"""

from collections.abc import Sequence
from fractions import Fraction
from math import gcd, isfinite, lcm
from numbers import Rational, Real
from typing import cast

from emlio.arguments import as_whole, whole
from emlio.errors import ConfigError
from emlio.planner.mixture.sampling import FIRST, LONGEST, MixtureSampling
from emlio.planner.mixture.shares import MOST_WEIGHT, Shares
from emlio.planner.permutation import LARGEST
from emlio.wire.limits import MAX_DATASETS, MAX_SAMPLING_CHARACTERS

__all__ = ["given_items", "given_sampling", "given_schedule", "whole_weights"]


def whole_weights(weights: Sequence[object], name: str = "weights") -> tuple[int, ...]:
    """Return whole numbers without a common divisor, in the proportions of the weights.

    A float means the decimal number that Python prints for it: 0.7 is seven tenths. So 0.7 and 0.3 become
    7 and 3, and nothing is rounded unless the whole numbers would be longer than nine digits.

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


def given_sampling(
    weights: Sequence[object], *, samples: object = None, until: object = None, schedule: object = ()
) -> MixtureSampling:
    """Return the sampling of a mixture.

    Args:
        weights: one for each dataset.
        samples: the number of samples of an epoch; None: see `until`.
        until: the end of an epoch without `samples`; None for the default.
        schedule: pairs of a sample and the weights from there on.

    Raises:
        ConfigError: one of them is not valid.
    """
    if not 1 <= len(weights) <= MAX_DATASETS:
        raise ConfigError(f"a mixture must have 1 to {MAX_DATASETS} datasets, got {len(weights)}")
    if until not in (None, FIRST, LONGEST):
        raise ConfigError(f"until must be {FIRST!r} or {LONGEST!r}, or None, got {until!r}")
    if samples is not None and until is not None:
        raise ConfigError(
            f"samples and until both say how long an epoch is: give one, got samples={samples} and until={until!r}"
        )
    length: int | str = str(until or FIRST)
    if samples is not None:
        length = whole("samples", samples, least=1, otherwise=", or None")
        if length > LARGEST:
            raise ConfigError(f"samples must be at most 2**40, got {length}")
    first = Shares(whole_weights(weights))  # checked, even if the schedule has others from the first sample on
    changes = [
        (start, Shares(whole_weights(values, "the weights of a schedule")))
        for start, values in given_schedule(schedule, len(weights))
    ]
    if not changes or changes[0][0]:
        changes.insert(0, (0, first))
    found = MixtureSampling(length, tuple(changes))
    text = str(found)
    if len(text) > MAX_SAMPLING_CHARACTERS:
        raise ConfigError(
            f"the weights and changes of a mixture must take at most {MAX_SAMPLING_CHARACTERS:,} characters, got "
            f"{len(text):,}: change them less often, or round them"
        )
    return found


def given_items(given: object, name: str) -> Sequence[object]:
    """Return the items of a list.

    Raises:
        ConfigError: it is none; the error says what the list is of a mixture.
    """
    if not isinstance(given, Sequence) or isinstance(given, str | bytes):
        raise ConfigError(f"a mixture's {name} must be a list of pairs, got {given!r}")
    return cast("Sequence[object]", given)


def given_schedule(schedule: object, datasets: int) -> tuple[tuple[int, tuple[float, ...]], ...]:
    """Return pairs of a sample and a weight for each dataset."""
    return tuple(_change(item, datasets) for item in given_items(schedule, "schedule"))


def _change(item: object, datasets: int) -> tuple[int, tuple[float, ...]]:
    pair: list[object] = list(cast("Sequence[object]", item)) if isinstance(item, list | tuple) else []
    start = as_whole(pair[0]) if len(pair) == 2 else None
    if start is None or start < 0 or not isinstance(pair[1], list | tuple):
        raise ConfigError(f"a mixture's schedule must be pairs of a sample from 0 on and weights, got {item!r}")
    weights = tuple(cast("Sequence[float]", pair[1]))
    if len(weights) != datasets:
        raise ConfigError(
            f"a mixture's schedule must give a weight for each of its {datasets} datasets, got {len(weights)} at sample {start}"
        )
    return start, weights
