"""Loaders of ranks that a daemon's comparison is told of, without sockets."""

import itertools
from collections.abc import Sequence
from typing import Any

from emlio.daemon.ranks.claims import Caller
from emlio.daemon.ranks.comparison import Agree, Comparison, Differ, Verdict
from emlio.session.terms import Terms
from emlio.wire.control import Hello, Limit, Made, Place

__all__ = ["START", "Loader", "made", "terms"]

START = Place(0, 0, 0)
_numbers = itertools.count()


def terms(name: str) -> Terms:
    return Terms((("seed", name),))


class Loader:
    """A loader of a rank, over a connection of its own, by default of a process of its own."""

    def __init__(self, table: Comparison, rank: int, name: str, *, pid: int | None = None, **hello: object) -> None:
        number = next(_numbers)
        said: dict[str, Any] = {"job": "j", "world_size": 2, "dataset": "x", "software": "0", "host": "h", **hello}
        said |= {"rank": rank, "client": str(number), "pid": rank + 1 if pid is None else pid, "lane_secret": bytes(32)}
        self.caller = Caller(connection=number.to_bytes(4, "big"), hello=Hello(**said), address="10.0.0.9")
        self.table, self.name = table, name

    @property
    def connection(self) -> bytes:
        return self.caller.connection

    @property
    def limit(self) -> Limit | None:
        return self.table.limit(self.connection)

    def offer(self, now_ns: int = 0, made: Sequence[Made] | None = ()) -> list[Verdict]:
        verdicts = self.table.offer(self.caller, terms(self.name), made, now_ns)
        assert verdicts[-1] == Agree(connection=self.connection), "each plan is agreed to at once"
        return verdicts

    def use(self, now_ns: int = 0, place: Place = START) -> list[Verdict]:
        return self.table.walked(self.connection, place, now_ns)

    def leave(self, now_ns: int, place: Place | None = None) -> list[Verdict]:
        if place is not None:
            self.table.walked(self.connection, place, now_ns)
            self.table.leaves(self.connection)
        return self.table.gone(self.connection, now_ns)

    def heard(self, now_ns: int) -> list[Differ]:
        return [one for one in self.table.heard(self.connection, now_ns) if isinstance(one, Differ)]


def made(table: Comparison, rank: int, name: str, now_ns: int = 0, **hello: Any) -> Loader:
    """A loader whose plan was offered."""
    loader = Loader(table, rank, name, **hello)
    loader.offer(now_ns)
    return loader
