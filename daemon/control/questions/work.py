"""An open question, and the work that answers it."""

from collections.abc import Callable

import msgspec

from emlio.daemon.control.client import Client
from emlio.wire.control import encode_in_place
from emlio.wire.questions import Answer, Told

__all__ = ["Asked", "InPlace", "Place", "Work"]


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A thing that is read to answer questions, such as a dataset's files. It may be slow, and hang.

    Attributes:
        subject: what is asked for.
        short: whether for short answers, which do not wait until long ones were read.
        dataset: the key of the dataset; empty if it is none.
        threads: how many read it at once, for different clients.
        each: how many of them may be for one client.
    """

    subject: str
    dataset: str = ""
    short: bool = False
    threads: int = 1
    each: int = 1


class InPlace(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """An answer whose payload stands in memory from `first` on, with its CRC32C if that is known; `told` has none."""

    told: Told
    memory: memoryview
    first: int
    crc: int | None = None

    def encoded(self, number: int) -> memoryview:
        """Return the message of the answer to the question with this number."""
        return encode_in_place(Answer(number=number, told=self.told), self.memory, self.first, self.crc)


class Work(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Makes the answer, or its encoded message: in a thread if it is read from a place.

    `make` may raise `RefusedError` there, which ends the session.
    """

    make: Callable[[], Told | InPlace | bytes]
    place: Place | None = None


class Asked(msgspec.Struct, kw_only=True, eq=False):
    """A question that is not answered yet.

    Attributes:
        client: the session that asked.
        work: makes the answer.
        number: the question's number; -1 if it is for a part of the list of shards, which has none.
        dropped: its session is over.
    """

    client: Client
    work: Work
    number: int = -1
    dropped: bool = False

    def made(self) -> Told | bytes | memoryview:
        """Make the answer, or its message."""
        made = self.work.make()
        return made.encoded(self.number) if isinstance(made, InPlace) else made
