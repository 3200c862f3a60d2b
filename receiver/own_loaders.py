"""The loaders that this process has made, counted.

Ranks run the same program, so the n-th loader of one rank belongs to the n-th of another.

Covers: counting loaders, and the terms of each. Does not cover: the comparison
(emlio.session.terms, emlio.receiver.other_ranks).
"""

import os
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock

from emlio.session.terms import MadeLoader, Terms

__all__ = ["OWN_LOADERS", "Kind", "OwnLoaders"]

Kind = tuple[str, str, int]
"""Loaders that are counted together: those of one job, dataset and rank."""

_MOST_KINDS = 4096
_MOST_TERMS_KNOWN = 64

_Noted = tuple[int, Terms, Callable[[], bool]]


@dataclass(slots=True, kw_only=True)
class _Made:
    """The loaders of one kind.

    Attributes:
        count: how many were made.
        noted: the latest ones: ordinal, terms, and whether it is in use.
    """

    count: int = 0
    noted: deque[_Noted] = field(default_factory=lambda: deque[_Noted](maxlen=_MOST_TERMS_KNOWN))


class OwnLoaders:
    """The loaders of this process. Thread-safe."""

    def __init__(self) -> None:
        """Begin with no loader."""
        self._lock = Lock()
        self._made: OrderedDict[tuple[int, Kind], _Made] = OrderedDict()

    def count(self, kind: Kind, ordinals: list[int]) -> None:
        """Count one more loader; append its ordinal (the number made before it) to `ordinals`.

        The ordinal is appended first: after an interrupt, no loader is counted that is not in the
        list. `uncount` of an ordinal that was not counted does nothing.
        """
        with self._lock:
            made = self._of(kind)
            ordinals.append(made.count)
            made.count += 1

    def uncount(self, kind: Kind, ordinal: int) -> None:
        """Undo `count` for a loader that could not be made: the next one gets its ordinal."""
        with self._lock:
            made = self._of(kind)
            if made.count == ordinal + 1:
                made.count = ordinal

    def note(self, kind: Kind, ordinal: int, terms: Terms, lives: Callable[[], bool]) -> list[MadeLoader]:
        """Record a loader's terms; return all known loaders of its kind, this one last."""
        with self._lock:
            noted = self._of(kind).noted
            noted.append((ordinal, terms, lives))
            return [MadeLoader(ordinal=ordinal, terms=terms, lives=lives()) for ordinal, terms, lives in noted]

    def _of(self, kind: Kind) -> _Made:
        # A forked child starts counting anew, like a process that was started.
        key = os.getpid(), kind
        made = self._made.pop(key) if key in self._made else _Made()
        self._made[key] = made
        if len(self._made) > _MOST_KINDS:
            self._made.popitem(last=False)
        return made


OWN_LOADERS = OwnLoaders()
"""The loaders of this process."""
