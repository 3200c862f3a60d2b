"""The work that answers one question."""

from collections.abc import Callable
from dataclasses import dataclass

from emlio.wire.questions import Told

__all__ = ["Place", "Work"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A thing that is read to answer questions, such as a dataset's files. It may be slow, and hang.

    Attributes:
        subject: what is asked for.
        dataset: the key of the dataset; empty if it is none.
        threads: how many read it at once, for different clients.
    """

    subject: str
    dataset: str = ""
    threads: int = 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Work:
    """Makes the answer: in a thread if it is read from a place.

    `make` may raise `RefusedError` there, which ends the session.
    """

    make: Callable[[], Told]
    place: Place | None = None
