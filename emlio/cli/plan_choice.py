"""The arguments of `emlio plan` that choose records."""

import argparse
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from emlio.errors import ConfigError
from emlio.index.dataset import Dataset
from emlio.planner.catalog import Catalog
from emlio.planner.choice.fraction import Fraction
from emlio.planner.sampling import EVERYTHING, Sampling
from emlio.reading.columns import find_matches

# The training side's modules are imported where a choice is made: a storage node does without them.
if TYPE_CHECKING:
    from emlio.receiver.assignment.agreement import Holding

__all__ = ["add_choice_arguments", "choice_of", "hold", "settle"]

_FRACTION: Final = re.compile(r"([0-9.eE+-]+):([0-9.eE+-]+)(?::([0-9]+))?")


def add_choice_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    choice = parser.add_argument_group("choice of records")
    choice.add_argument(
        "--subset",
        metavar="WHICH",
        help="BEGIN:END[:SEED] for a fraction, a file of ids, or a predicate such as 'label in {1, 5} and __size__ < 1MB'",
    )
    choice.add_argument(
        "--repeat", metavar="K", type=int, default=1, help="each record K times in an epoch (default: 1)"
    )
    choice.add_argument(
        "--weights",
        metavar="CLASS=W",
        nargs="+",
        help="draw with replacement by weights of classes, '*' for all others; or a .npy file with one for each record",
    )
    choice.add_argument(
        "--samples",
        metavar="N",
        type=int,
        help="draws of an epoch with --weights (default: the records), or samples of one of a --mixture",
    )


def choice_of(arguments: argparse.Namespace) -> Sampling:
    """Return the sampling that the arguments mean; `settle` makes it fit a dataset.

    Raises:
        ConfigError: an argument is wrong.
    """
    from emlio.receiver.setup.subset import find_sampling

    if arguments.subset is None and arguments.weights is None and arguments.samples is None and arguments.repeat == 1:
        return EVERYTHING
    return find_sampling(_subset(arguments.subset), arguments.repeat, _weights(arguments.weights), arguments.samples)


def hold(directory: str, dataset: Dataset, sampling: Sampling, arguments: argparse.Namespace) -> "Holding":
    """Return the records of a directory, and which of them predicates hold for."""
    from emlio.receiver.assignment.agreement import Holding, questions_of

    found = [find_matches(dataset, question, cache_dir=arguments.cache_dir) for question in questions_of(sampling)]
    rows = tuple(entry.row for entry in dataset.entries)
    return Holding(
        peer=directory,
        rows=rows,
        missing=(),
        missing_count=0,
        here=True,
        matches=tuple(one.bits.tobytes() for one in found),
        digests=tuple(one.digests for one in found),
    )


def settle(sampling: Sampling, catalog: Catalog, held: "Sequence[Holding]") -> Sampling:
    """Return the sampling for a dataset.

    Raises:
        ConfigError: it needs records, and there are none.
    """
    if sampling == EVERYTHING:
        return sampling
    from emlio.receiver.assignment.agreement import check_matches, questions_of, settled

    if questions_of(sampling) and not held:
        raise ConfigError("predicates and weights of classes need a dataset, give directories instead of --records")
    check_matches(held[0].peer if held else "", questions_of(sampling), held)
    return settled(sampling, catalog, held)


def _subset(text: str | None) -> object:
    found = None if text is None else _FRACTION.fullmatch(text)
    if found is None:
        return text
    try:
        begin, end = float(found[1]), float(found[2])
    except ValueError:
        raise ConfigError(f"--subset must be BEGIN:END:SEED with numbers, got {text!r}") from None
    return Fraction(begin, end, int(found[3] or 0))


def _weights(given: Sequence[str] | None) -> str | Mapping[int | str, float] | None:
    if given is None:
        return None
    if len(given) == 1 and "=" not in given[0]:
        return given[0]
    weights = dict[int | str, float]()
    for one in given:
        name, equals, weight = one.rpartition("=")
        try:
            value = float(weight)
        except ValueError:
            equals = ""
            value = 0.0
        if not equals or not name:
            raise ConfigError(f"--weights must be CLASS=WEIGHT, got {one!r}")
        weights[int(name) if name.lstrip("-").isdigit() else name] = value
    return weights
