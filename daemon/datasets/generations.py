"""The generations of datasets, and which of them a rank gets.

A *current* generation is one that the configuration names. A *former* one is not named any more, or
its folder was indexed again and holds other files now. Former generations serve the jobs that began
with them, and no others.

All ranks of a job must get the same generation, also if another one is published while they join.
So the first rank decides: as long as a job has a session, its other ranks get the generation of the
first one. A rank that comes back names the fingerprint of what it had, and gets that.

Covers: those decisions, and when a former generation can be closed. Does not cover: opening and
closing (emlio.daemon.datasets.collection), which generation a rank asks for when its daemons have
different ones (emlio.receiver.machine.generation).
"""

from collections.abc import Collection

import msgspec
from msgspec import UNSET

from emlio.daemon.datasets.served import ServedDataset
from emlio.dataset_name import DatasetName
from emlio.errors import ConfigError, RefusedError
from emlio.wire.control import Hello
from emlio.wire.limits import MAX_GENERATIONS

__all__ = ["Generations"]

_TRY_AGAIN_NS = 1_000_000_000
"""Between attempts to close a generation of which something is still in use, such as a slice that
libzmq has not sent yet."""

_REMOVED_KNOWN = 64
"""Names of removed datasets that are remembered, for the text of a refusal."""


class _Former(msgspec.Struct, kw_only=True):
    """A former generation.

    Attributes:
        served: what is served.
        idle_ns: since when it has no session; None while it has one.
        try_ns: when to try to close it.
    """

    served: ServedDataset
    idle_ns: int | None = None
    try_ns: int = 0


class _Job(msgspec.Struct, kw_only=True):
    """A job's sessions on a dataset, and the generation that its first rank got."""

    served: ServedDataset | None = None
    sessions: int = 0


class Generations:
    """All generations of all datasets. Used by the control thread.

    Attributes:
        opening: full names of generations that are being opened.
    """

    def __init__(self, *, linger_ns: int) -> None:
        """Keep none yet.

        Args:
            linger_ns: how long a former generation is kept without a session, for a rank that lost
                its connection.
        """
        self.opening: set[DatasetName] = set()
        self._linger_ns = linger_ns
        self._current: dict[str, dict[int, ServedDataset]] = {}
        self._former: list[_Former] = []
        self._closing: list[_Former] = []
        self._removed: dict[str, None] = {}
        self._jobs: dict[tuple[str, str], _Job] = {}
        self._read_bytes: dict[str, tuple[int, int]] = {}

    def read_bytes(self) -> dict[str, tuple[int, int]]:
        """Return by name what generations have read from disks, and from memory that jobs share, closed ones included."""
        found = dict(self._read_bytes)
        for served in self.all:
            disk, shared = found.get(served.name, (0, 0))
            found[served.name] = disk + served.files.disk_bytes, shared + served.files.shared_bytes
        return found

    @property
    def all(self) -> list[ServedDataset]:
        """Every generation that is open, current or not."""
        current = [served for numbers in self._current.values() for served in numbers.values()]
        return [*current, *(one.served for one in (*self._former, *self._closing))]

    @property
    def names(self) -> list[str]:
        """The names of the datasets that have a current generation."""
        return sorted(self._current)

    @property
    def known_names(self) -> list[str]:
        """The names of all datasets that a rank may ask for, with those being opened or removed."""
        former = (one.served.name for one in self._former)
        return sorted({*self._current, *former, *(named.name for named in self.opening), *self._removed})

    def numbers(self, name: str) -> list[int]:
        """The numbers of the newest current generations of a dataset, in order."""
        return sorted(self._current.get(name, {}))[-MAX_GENERATIONS:]

    def find(self, name: str, number: int) -> ServedDataset | None:
        """Return the current generation of this number."""
        return self._current.get(name, {}).get(number)

    # ---- coming and going -----------------------------------------------------------------------------------------

    def add(self, served: ServedDataset) -> None:
        """Serve a generation; one of the same number becomes a former one."""
        self.retire(served.name, served.generation)
        self._current.setdefault(served.name, {})[served.generation] = served
        self._removed.pop(served.name, None)

    def retire(self, name: str, number: int) -> bool:
        """Make a generation a former one; return whether there was one."""
        numbers = self._current.get(name, {})
        served = numbers.pop(number, None)
        if served is None:
            return False
        self._former.append(_Former(served=served))
        if not numbers:
            del self._current[name]
            self._removed[name] = None
            while len(self._removed) > _REMOVED_KNOWN:
                del self._removed[next(iter(self._removed))]
        return True

    def take_unused(self, now_ns: int) -> list[ServedDataset]:
        """Return the former generations to close now; no rank gets them any more.

        Each is returned again, a second later, until `closed` is called with it.
        """
        for one in list(self._former):
            if one.served.sessions:
                one.idle_ns = None
                continue
            one.idle_ns = now_ns if one.idle_ns is None else one.idle_ns
            one.try_ns = one.idle_ns + (self._linger_ns if one.served.was_used else 0)
            if now_ns >= one.try_ns:
                self._former.remove(one)
                self._closing.append(one)
                for job in self._jobs.values():
                    job.served = None if job.served is one.served else job.served
        due = [one for one in self._closing if now_ns >= one.try_ns]
        for one in due:
            one.try_ns = now_ns + _TRY_AGAIN_NS
        return [one.served for one in due]

    def closed(self, served: ServedDataset) -> None:
        """Note that a generation is closed."""
        disk, shared = self._read_bytes.get(served.name, (0, 0))
        self._read_bytes[served.name] = disk + served.files.disk_bytes, shared + served.files.shared_bytes
        self._closing = [one for one in self._closing if one.served is not served]

    def deadline_ns(self) -> int | None:
        """Return the latest time at which `take_unused` must be called."""
        waiting = [one.try_ns for one in (*self._former, *self._closing) if not one.served.sessions]
        return min(waiting, default=None)

    # ---- what a rank gets -----------------------------------------------------------------------------------------

    def choose(self, hello: Hello, among: Collection[str] | None = None) -> ServedDataset:
        """Return the generation for a rank.

        Args:
            hello: what it says.
            among: the names of the datasets that the client may know; by default all.

        Raises:
            RefusedError: there is none.
        """
        name, number = self._asked(hello)
        if among is not None and name not in among:
            raise self._unknown(hello.dataset, among)
        current = self._current.get(name, {})
        if hello.held is not UNSET:
            former = [one.served for one in self._former if one.served.name == name]
            newest_first = [*(current[one] for one in sorted(current, reverse=True)), *reversed(former)]
            # Two generations may have one fingerprint: most formats have no checksums in it. So the
            # one that was read, or asked for, goes first.
            before = number if number is not None else hello.generation
            newest_first.sort(key=lambda served: before is UNSET or served.generation != before)
            for served in newest_first:
                if served.catalog.fingerprint == hello.held:
                    return served
        if number is not None:
            if number not in current:
                raise self._unknown(hello.dataset, among)
            return current[number]
        if hello.generation is not UNSET and hello.generation in current:
            return current[hello.generation]
        job = self._jobs.get((hello.job, name))
        if job is not None and job.served is not None:
            return job.served
        if not current:
            raise self._unknown(hello.dataset, among)
        return current[max(current)]

    def enter(self, hello: Hello, served: ServedDataset) -> None:
        """Note that a rank's session begins with the generation that was chosen for it."""
        served.sessions += 1
        served.was_used = True
        job = self._jobs.setdefault((hello.job, served.name), _Job())
        job.sessions += 1
        # A rank that names a generation decides for itself alone.
        if job.served is None and self._asked(hello)[1] is None:
            job.served = served

    def leave(self, hello: Hello, served: ServedDataset) -> None:
        """Note that the session has ended."""
        served.sessions -= 1
        job = self._jobs[hello.job, served.name]
        job.sessions -= 1
        if not job.sessions:
            del self._jobs[hello.job, served.name]

    def _asked(self, hello: Hello) -> tuple[str, int | None]:
        try:
            asked = DatasetName.parse(hello.dataset)
        except ConfigError as error:
            raise RefusedError(str(error), code="unknown-dataset") from error
        return asked.name, asked.generation

    def _unknown(self, asked: str, among: Collection[str] | None) -> RefusedError:
        """Return the refusal of what there is not, or not yet, or not any more."""
        named = DatasetName.parse(asked)
        may_know = among is None or named.name in among
        wanted = {one for one in self.opening if one.name == named.name}
        if may_know and any(named.generation in (None, one.generation or 1) for one in wanted):
            # The code makes a rank call again.
            text = f"dataset {asked!r} is being opened at this daemon. Retry later"
            return RefusedError(text, code="no-session")
        available = [name for name in self.names if among is None or name in among]
        if may_know and named.name in self._current:
            names = ", ".join(f"{named.name}@{number}" for number in self.numbers(named.name))
        else:
            names = ", ".join(available) or ("none" if among is None else "none for this key")
        gone = " any more" if may_know and named.name in self._removed else ""
        return RefusedError(
            f"there is no dataset {asked!r} at this daemon{gone}, available: {names}", code="unknown-dataset"
        )
