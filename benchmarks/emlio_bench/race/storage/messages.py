"""Requests to the agent on the storage host, and its answers, each one line of JSON.

Covers: the values. Does not cover: sending (emlio_bench.race.storage.dialogue), carrying out
(emlio_bench.race.storage.duties).
"""

import msgspec

from emlio_bench.race.outcome import Energy
from emlio_bench.race.records.corpus import Corpus

__all__ = [
    "AskClock",
    "AskDigest",
    "AskEcho",
    "AskLacks",
    "AskServed",
    "AskUsed",
    "EndServing",
    "Greet",
    "Greeting",
    "Prepare",
    "Request",
    "Said",
    "Serve",
    "Served",
    "StartEnergy",
    "TakePlace",
    "Used",
]


class Greet(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A request for `Greeting`."""


class Greeting(msgspec.Struct, frozen=True, kw_only=True):
    """The description of the storage host.

    Attributes:
        version: version of emlio there.
        commit: commit of the checkout there; None if it is none.
        boot: id of the running kernel, the same for containers and namespaces of one machine.
        node: host name.
        reached_at: address at which the connection arrived; empty if unknown.
        world: processor, cores, memory and kernel, as text.
        iperf3: whether it is installed.
    """

    version: str
    commit: str | None
    boot: str
    node: str
    reached_at: str
    world: str
    iperf3: bool


class TakePlace(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The order to serve at an address from now on; the answer is the address to listen at.

    Attributes:
        address: address of the storage host, as the training host reaches it.
    """

    address: str


class AskLacks(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A request for what systems lack at the storage: a dict from their names to reasons."""

    systems: list[str]


class AskClock(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A request for the time of CLOCK_MONOTONIC in nanoseconds."""


class AskEcho(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The order to send back the bytes of one connection; the answer is the port."""


class AskDigest(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A request for the digest of a corpus's records, which are made if they are missing."""

    corpus: Corpus


class Prepare(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The order to make a system's format of a corpus; the answer is its path at the storage."""

    system: str
    corpus: Corpus


class Serve(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The order to start a system's servers; the answer is `Served`.

    Attributes:
        system: name of the system.
        prepared: answer to `Prepare`; empty for a system without data.
        halves: whether only the shards of the storage's half are served.
        rtt_ns: round trip of the network.
    """

    system: str
    prepared: str
    halves: bool
    rtt_ns: int


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """Running servers.

    Attributes:
        url: URL of the data for the consumer.
        keys: contents of the files at the storage that the URL names and the consumer needs.
    """

    url: str
    keys: dict[str, str]


class AskServed(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A request for the processor time of the running servers in nanoseconds."""


class EndServing(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The order to end the running servers, if any; the answer is None."""


class StartEnergy(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The order to record energy; the answer is the share of busy processors at rest."""


class Used(msgspec.Struct, frozen=True, kw_only=True):
    """The energy of a stretch of time; None if it is unknown."""

    energy: Energy | None


class AskUsed(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A request for the energy of a stretch of time, by the storage's clock; the answer is `Used`.

    Attributes:
        from_ns: start.
        to_ns: end.
        steps: start and end of each step of the consumer.
    """

    from_ns: int
    to_ns: int
    steps: list[tuple[int, int]]


Request = (
    Greet
    | TakePlace
    | AskLacks
    | AskClock
    | AskEcho
    | AskDigest
    | Prepare
    | Serve
    | AskServed
    | EndServing
    | StartEnergy
    | AskUsed
)


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """An answer, or the reason why there is none.

    Attributes:
        answer: the answer as JSON.
        problem: the reason; None if all went well.
    """

    answer: msgspec.Raw = msgspec.Raw(b"null")
    problem: str | None = None
