"""The loaders that this process has made: ranks run one program, so the n-th of one goes with the n-th of another.

Covers: counting them, and what each worked by. Does not cover: the comparison (emlio.session.terms, emlio.receiver.other_ranks).
"""

import os
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock

from emlio.session.terms import MadeLoader, Terms

__all__ = ["OWN_LOADERS", "Kind", "OwnLoaders"]

Kind = tuple[str, str, int]
"""Which loaders are counted together: those of a job, a dataset and a rank."""

_MOST_KINDS = 4096
_MOST_TERMS_KNOWN = 64

_Noted = tuple[int, Terms, Callable[[], bool]]


@dataclass(slots=True, kw_only=True)
class _Made:
    """The loaders of one kind.

    Attributes:
        count: how many there were.
        noted: the latest: ordinal, terms, and whether it is in use.
    """

    count: int = 0
    noted: deque[_Noted] = field(default_factory=lambda: deque[_Noted](maxlen=_MOST_TERMS_KNOWN))


class OwnLoaders:
    """See the module. Its methods may be called from any thread."""

    def __init__(self) -> None:
        """None yet."""
        self._lock = Lock()
        self._made: OrderedDict[tuple[int, Kind], _Made] = OrderedDict()

    def count(self, kind: Kind, ordinals: list[int]) -> None:
        """One more is being made; its ordinal, how many there were before, is added to `ordinals`.

        In this order an interrupt leaves none counted that is not in the list; `uncount` of one that is not counted does nothing.
        """
        with self._lock:
            made = self._of(kind)
            ordinals.append(made.count)
            made.count += 1

    def uncount(self, kind: Kind, ordinal: int) -> None:
        """It could not be made: the next one has its ordinal."""
        with self._lock:
            made = self._of(kind)
            if made.count == ordinal + 1:
                made.count = ordinal

    def note(self, kind: Kind, ordinal: int, terms: Terms, lives: Callable[[], bool]) -> list[MadeLoader]:
        """Note what a loader works by; all that are known, it as the last one."""
        with self._lock:
            noted = self._of(kind).noted
            noted.append((ordinal, terms, lives))
            return [MadeLoader(ordinal=ordinal, terms=terms, lives=lives()) for ordinal, terms, lives in noted]

    def _of(self, kind: Kind) -> _Made:
        # A forked child begins to count anew, as a process that was started does.
        key = os.getpid(), kind
        made = self._made.pop(key) if key in self._made else _Made()
        self._made[key] = made
        if len(self._made) > _MOST_KINDS:
            self._made.popitem(last=False)
        return made


OWN_LOADERS = OwnLoaders()
"""Of this process."""
