"""The records of a dataset that a predicate holds for.

Finding them may mean to read all records. All ranks of a job ask the same, and get one result.
"""

from collections import OrderedDict
from functools import partial
from pathlib import Path
from threading import Event, Lock

from emlio.daemon.control.questions.work import Place, Work
from emlio.daemon.datasets.served import ServedDataset
from emlio.daemon.limits import MOST_MATCH_BYTES
from emlio.errors import EmlioError, RefusedError
from emlio.reading.columns import Found, find_matches
from emlio.session.contents import pack
from emlio.wire.limits import CONTENT_PART_BYTES, MAX_CONTENT_BYTES
from emlio.wire.questions import AskMatches, Matches

__all__ = ["PredicateMatches"]


class PredicateMatches:
    """Finds the records of predicates. Any thread may use it."""

    def __init__(self, cache_dir: Path | None) -> None:
        """Begin without results; `cache_dir` is the folder of indexes."""
        self._cache_dir = cache_dir
        self._lock = Lock()
        self._found: OrderedDict[tuple[str, str], Found] = OrderedDict()
        self._closing = Event()

    def find(self, served: ServedDataset, about: AskMatches) -> Work:
        """Return how the question is answered.

        Raises:
            RefusedError: it cannot be.
        """
        if served.catalog.records > 8 * MAX_CONTENT_BYTES:
            text = f"predicates can be evaluated over at most {8 * MAX_CONTENT_BYTES:,} records at a daemon"
            raise RefusedError(text, code="predicate")
        known = self._known(served, about.predicate)
        if known is None or known.identity:  # the files are looked at again
            return Work(make=partial(self._search, served, about), place=Place(subject="matches", dataset=served.key))
        return Work(make=partial(_cut, _told(known, about), about.first))

    def forget(self, served: ServedDataset) -> None:
        """Drop the results of a dataset that is closed."""
        with self._lock:
            for key in [key for key in self._found if key[0] == served.key]:
                del self._found[key]

    def close(self) -> None:
        """Have searches end."""
        self._closing.set()

    def _known(self, served: ServedDataset, predicate: str) -> Found | None:
        key = served.key, predicate
        with self._lock:
            found = self._found.get(key)
            if found is not None:
                self._found.move_to_end(key)
            return found

    def _search(self, served: ServedDataset, about: AskMatches) -> Matches:
        found = self._known(served, about.predicate)  # by now perhaps, by a search for another rank
        if found is None or found.identity:
            try:
                found = find_matches(
                    served.dataset, about.predicate, cache_dir=self._cache_dir, ending=self._closing, known=found
                )
            except EmlioError as error:
                raise RefusedError(str(error), code="predicate") from error
            with self._lock:
                self._found[served.key, about.predicate] = found
                while sum(one.size_bytes for one in self._found.values()) > MOST_MATCH_BYTES and len(self._found) > 1:
                    self._found.popitem(last=False)
        return _cut(_told(found, about), about.first)


def _told(found: Found, about: AskMatches) -> bytes | memoryview:
    told = found.digests if about.digests is True else found.bits.data
    if about.first >= len(told):
        text = f"matches must be requested from a byte in [0, {len(told)}), got {about.first}"
        raise RefusedError(text, code="protocol")
    return told


def _cut(told: bytes | memoryview, first: int) -> Matches:
    part = told[first : first + CONTENT_PART_BYTES]
    return Matches(first=first, size=len(part), total=len(told), data=pack(part))
