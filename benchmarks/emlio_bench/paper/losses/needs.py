"""The packages that a training needs beside those of every other figure.

Covers: finding the first that is missing. Does not cover: the storage host's packages
(emlio_bench.race.records.digit_pictures).
"""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Final

from emlio.extras import how_to_install

__all__ = ["why_no_training"]

_MODEL: Final = ("torch", "PyTorch", how_to_install("torch"))
_PICTURES: Final = ("sklearn", "scikit-learn", "pip install scikit-learn")


def why_no_training(*, makes_records: bool, find: Callable[[str], object] = find_spec) -> str | None:
    """Return why this host cannot train, and what to type; None if it can.

    Args:
        makes_records: whether the pictures are made on this host.
        find: returns None for a package that is not installed.
    """
    for package, name, remedy in (_MODEL, *((_PICTURES,) if makes_records else ())):
        if find(package) is None:
            return f"it needs {name}, which is not installed: {remedy}"
    return None
