"""The loaders that this process has made, for comparison with those of other ranks."""

import os
from collections import OrderedDict
from collections.abc import Callable, Sequence
from threading import Lock

import msgspec
from msgspec import UNSET, UnsetType

from emlio.session.terms import Point, Terms
from emlio.wire.control import Made, Place
from emlio.wire.limits import MAX_MADE

__all__ = ["OWN_LOADERS", "Kind", "OwnLoader", "OwnLoaders"]

Kind = tuple[str, str, int]
"""Loaders that are compared together: those of one job, dataset and rank."""

_MOST_KINDS = 4096


class OwnLoader(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A loader of this process, once its plan is agreed.

    Attributes:
        terms: its terms.
        lives: whether it is in use.
        place: where its user is.
        start: where its user began its first pass, if it has.
        is_refused: returns whether a daemon refused it, because it differs from those of other ranks.
    """

    terms: Terms
    lives: Callable[[], bool]
    place: Callable[[], Place | UnsetType] = lambda: UNSET
    start: Callable[[], Point | None] = lambda: None
    is_refused: Callable[[], bool] = lambda: False


class _Made(msgspec.Struct):
    """The loaders of one kind: those that live, as far as is known, and what is left of those that do not."""

    living: list[OwnLoader] = msgspec.field(default_factory=list[OwnLoader])
    closed: OrderedDict[str, Made] = msgspec.field(default_factory=OrderedDict[str, Made])

    def settle(self) -> None:
        """Move those that do not live any more, and forget those that were refused, as if they had not been made."""
        self.living = [one for one in self.living if not one.is_refused()]
        for one in [one for one in self.living if not one.lives()]:
            self.living.remove(one)
            digest, place = one.terms.digest, one.place()
            before = self.closed.pop(digest, Made(digest, 0, 0))
            last = place if isinstance(place, Place) else Place(0, 0, 0)
            epoch, reach = max((before.epoch, before.reach), (last.epoch, last.reach))
            self.closed[digest] = Made(digest, 0, before.closed + 1, epoch, reach)
            if len(self.closed) > MAX_MADE:
                self.closed.popitem(last=False)


class OwnLoaders:
    """The loaders of this process. Thread-safe."""

    def __init__(self) -> None:
        """Begin with no loader."""
        self._lock = Lock()
        self._kinds: OrderedDict[tuple[int, Kind], _Made] = OrderedDict()

    def is_known(self, kind: Kind) -> bool:
        """Return whether loaders of this kind were asked for before."""
        with self._lock:
            known = (os.getpid(), kind) in self._kinds
            self._of(kind)
            return known

    def note(self, kinds: Sequence[Kind], loader: OwnLoader) -> None:
        """Add a loader of these kinds."""
        with self._lock:
            for kind in kinds:
                self._of(kind).living.append(loader)

    def forget(self, kinds: Sequence[Kind], loader: OwnLoader) -> None:
        """Remove a loader that was refused, as if it had not been made."""
        with self._lock:
            for kind in kinds:
                made = self._of(kind)
                made.living = [one for one in made.living if one is not loader]

    def made(self, kind: Kind) -> list[Made]:
        """Return what was made of a kind, by terms, the latest last; not more than an offer holds."""
        with self._lock:
            made = self._of(kind)
            found = dict(made.closed)
            for one in made.living:
                digest = one.terms.digest
                closed = found.pop(digest, Made(digest, 0, 0))
                found[digest] = Made(digest, closed.living + 1, closed.closed, closed.epoch, closed.reach)
            return list(found.values())[-MAX_MADE:]

    def living(self, kind: Kind) -> list[OwnLoader]:
        """Return the loaders of a kind that live."""
        with self._lock:
            return list(self._of(kind).living)

    def _of(self, kind: Kind) -> _Made:
        # A forked child begins anew, like a process that was started.
        key = os.getpid(), kind
        made = self._kinds.pop(key) if key in self._kinds else _Made()
        self._kinds[key] = made
        if len(self._kinds) > _MOST_KINDS:
            self._kinds.popitem(last=False)
        made.settle()
        return made


OWN_LOADERS = OwnLoaders()
"""The loaders of this process."""
