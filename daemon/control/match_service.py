"""Answers to ranks that ask which records a predicate holds for.

Finding them may mean to read all records, so each dataset has a thread for it while there is something to find. All ranks of
a job ask the same, and get one result.

Covers: the threads, results kept for other ranks, refusing. Does not cover: finding the records
(emlio.reading.columns.matches), the protocol (emlio.session.daemon).
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread

from emlio.daemon.control.client import Client
from emlio.daemon.datasets.served import ServedDataset
from emlio.daemon.limits import MOST_MATCH_BYTES, MOST_WAITING_PREDICATES
from emlio.errors import EmlioError
from emlio.reading.columns.matches import Found, find_matches
from emlio.session.instructions import DaemonInstruction
from emlio.wire.contents import MatchRequest
from emlio.wire.limits import MAX_CONTENT_BYTES

__all__ = ["MatchService"]

_LOG = logging.getLogger("emlio.daemon")
_ENDING_S = 1.0

Key = tuple[str, str]
"""A dataset's generation and a predicate."""


@dataclass(slots=True, kw_only=True, eq=False)
class _Search:
    """A predicate whose records are being found, or wait for that."""

    served: ServedDataset
    predicate: str
    asked: list[tuple[Client, MatchRequest]] = field(default_factory=list[tuple[Client, MatchRequest]])
    thread: Thread | None = None

    @property
    def key(self) -> Key:
        return self.served.key, self.predicate


class MatchService:
    """Finds the records of predicates. The control thread calls its methods."""

    def __init__(
        self,
        cache_dir: Path | None,
        call: Callable[[Callable[[], None]], None],
        carry_out: Callable[[Client, Sequence[DaemonInstruction]], None],
    ) -> None:
        """See the class.

        Args:
            cache_dir: the folder of indexes.
            call: runs a function in the control thread.
            carry_out: carries out what a session's machine asks for.
        """
        self._cache_dir = cache_dir
        self._call = call
        self._carry_out = carry_out
        self._found: OrderedDict[Key, Found] = OrderedDict()
        self._searches: OrderedDict[Key, _Search] = OrderedDict()
        self._closing = Event()

    def ask(self, client: Client, question: MatchRequest) -> None:
        """Answer the client's question, now or later."""
        if client.served.catalog.records > 8 * MAX_CONTENT_BYTES:
            text = f"predicates can be evaluated over at most {8 * MAX_CONTENT_BYTES:,} records at a daemon"
            self._carry_out(client, client.machine.refuse("predicate", text))
            return
        key = client.served.key, question.predicate
        known = self._found.get(key)
        if known is not None:
            self._found.move_to_end(key)
        if known is not None and not known.identity:  # else the files are looked at again, in a thread
            self._carry_out(client, client.machine.tell_matches(known.bits.data, known.digests))
            return
        search = self._searches.get(key)
        if search is None:
            if len(self._searches) >= MOST_WAITING_PREDICATES:
                text = f"{MOST_WAITING_PREDICATES} predicates are being evaluated here, retry later"
                self._carry_out(client, client.machine.refuse("no-session", text))
                return
            search = self._searches[key] = _Search(served=client.served, predicate=question.predicate)
        search.asked.append((client, question))
        self._go_on(client.served)

    def forget(self, client: Client) -> None:
        """Drop the questions of a session that is over. A search goes on: the rank will call again."""
        for search in self._searches.values():
            search.asked = [one for one in search.asked if one[0] is not client]

    def forget_dataset(self, served: ServedDataset) -> bool:
        """Drop what is known of a dataset that is closed; return False while a search runs."""
        if any(search.served is served and search.thread is not None for search in self._searches.values()):
            return False
        for key in [key for key in self._searches if key[0] == served.key]:
            del self._searches[key]
        for key in [key for key in self._found if key[0] == served.key]:
            del self._found[key]
        return True

    def close(self) -> None:
        """End the threads; one that hangs on a disk is waited for only briefly."""
        self._closing.set()
        for search in self._searches.values():
            if search.thread is not None:
                search.thread.join(_ENDING_S)

    def _go_on(self, served: ServedDataset) -> None:
        """Begin the dataset's next search, unless one runs."""
        mine = [search for search in self._searches.values() if search.served is served]
        if self._closing.is_set() or not mine or any(search.thread is not None for search in mine):
            return
        search = mine[0]
        thread = Thread(target=self._run, args=(search,), name=f"emlio-match-{served.dataset.name}", daemon=True)
        search.thread = thread
        try:
            thread.start()
        except RuntimeError as error:  # the system has no thread left
            search.thread = None
            self._end(search, None, EmlioError(f"predicates cannot be evaluated: {error}"))

    def _run(self, search: _Search) -> None:
        error: EmlioError | None = None
        found: Found | None = None
        try:
            found = find_matches(
                search.served.dataset,
                search.predicate,
                cache_dir=self._cache_dir,
                ending=self._closing,
                known=self._found.get(search.key),
            )
        except EmlioError as wrong:
            error = wrong
        except Exception as wrong:  # noqa: BLE001  # the waiting ranks must get an answer
            _LOG.exception("evaluating a predicate over %s failed", search.served.dataset.name)
            error = EmlioError(f"internal error while a predicate was evaluated: {wrong!r}")
        if not self._closing.is_set():
            self._call(lambda: self._end(search, found, error))

    def _end(self, search: _Search, found: Found | None, error: EmlioError | None) -> None:
        if search.thread is not None:
            search.thread.join()
        self._searches.pop(search.key, None)
        if found is not None:
            self._found[search.key] = found
            while sum(one.size_bytes for one in self._found.values()) > MOST_MATCH_BYTES and len(self._found) > 1:
                self._found.popitem(last=False)
        for client, _ in search.asked:
            if found is not None:
                self._carry_out(client, client.machine.tell_matches(found.bits.data, found.digests))
            else:
                self._carry_out(client, client.machine.refuse("predicate", str(error)))
        self._go_on(search.served)
