"""A place with objects in memory, for tests without a server."""

from collections.abc import Callable, Iterator, Sequence
from threading import Lock

from emlio.store.bucket.client import Cause, ObjectStatus, RequestError

__all__ = ["FakeObjects"]


class FakeObjects:
    """Objects by name. Thread-safe.

    Attributes:
        content: the objects.
        tags: their entity tags; an object without one has its length as its tag.
        gets: the ranges that were read, in order.
        before: called before each request is answered, with its kind and name; may raise
            `RequestError`.
        most_at_once: the most reads under way at the same time.
    """

    def __init__(self, content: dict[str, bytes]) -> None:
        self.content = dict(content)
        self.tags: dict[str, str] = {}
        self.gets: list[tuple[str, int, int]] = []
        self.before: Callable[[str, str], None] = lambda _, __: None
        self.most_at_once = 0
        self._at_once = 0
        self._lock = Lock()

    def _status(self, name: str) -> ObjectStatus:
        if name not in self.content:
            raise RequestError(Cause.ABSENT, "404")
        size = len(self.content[name])
        return ObjectStatus(name=name, size_bytes=size, etag=self.tags.get(name, f"tag-{size}"), modified_s=7)

    def list(self) -> Iterator[Sequence[ObjectStatus]]:
        """See `Client`."""
        self.before("list", "")
        names = list(self.content)
        for at in range(0, len(names), 1000):
            yield [self._status(name) for name in names[at : at + 1000]]

    def head(self, name: str) -> ObjectStatus:
        """See `Client`."""
        self.before("head", name)
        return self._status(name)

    def get(self, name: str, start: int, end: int) -> tuple[ObjectStatus, bytes]:
        """See `Client`."""
        with self._lock:
            self.gets.append((name, start, end))
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            self.before("get", name)
            return self._status(name), self.content[name][start:end]
        finally:
            with self._lock:
                self._at_once -= 1
