"""A link without namespaces: a relay delays bytes between two addresses of loopback.

TCP ends at the relay on both sides, so it does not see the round trip: it starts fast and loses
nothing. Results measured over a relay are marked.

Covers: starting and ending it, its two ends, the ports that are reached through it. Does not cover:
delaying bytes (emlio_bench.link.kinds.relaying).
"""

import itertools
import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final, Self

import msgspec

from emlio.errors import ConfigError, TransportError
from emlio_bench.link.contract import LinkEnd, LinkKind
from emlio_bench.link.kinds.relaying import RelayOrder
from emlio_bench.link.process.channel import LineCounts, LinkCounts, Started, add_counts
from emlio_bench.link.process.questions import ANSWER_S, ask_counts, ask_held
from emlio_bench.link.shaping.held import Held, add_held
from emlio_bench.link.spec import LinkSpec
from emlio_bench.processes.child import Child

__all__ = ["RelayedLink", "relay_addresses"]

_FIRST_NETWORK: Final = 64
_NETWORKS: Final = 64
_LINKS: Final = 80
_numbers = itertools.count()


def relay_addresses(process: int, number: int) -> tuple[str, str, str]:
    """Return the addresses that clients connect to, servers listen at, and clients come from.

    Links on one machine have different addresses.

    Args:
        process: id of the process that owns the link.
        number: index of the link among those of its owner.
    """
    network, place = divmod(process, 256)
    first = 1 + 3 * (number % _LINKS)
    front, back, near = (f"127.{_FIRST_NETWORK + network % _NETWORKS}.{place}.{first + step}" for step in range(3))
    return front, back, near


class RelayedLink:
    """Two addresses of loopback with a delay between them. See `Link`.

    Both ends are in the network of this machine. A server that listens at 0.0.0.0 can also be
    reached without a delay, so servers must listen at `storage.listen`.

    Attributes:
        spec: specification of the link.
        kind: always `LinkKind.RELAY`.
        storage: end for servers, which listen at another address than the one they are reached at.
        training: end for clients.
        own_ns: always 0: the time that a relay itself adds is not measured.
        moved_by: always Python.
    """

    def __init__(self, spec: LinkSpec) -> None:
        """Create a link. Each call of `offer` with new ports starts a relay process.

        Args:
            spec: the specification. Its loss must be 0, because a relay cannot lose TCP segments.
        """
        if spec.loss:
            raise ConfigError(f"loss must be 0 over a relay, which carries a stream and no segments, got {spec.loss}")
        self.spec = spec
        self.kind = LinkKind.RELAY
        self.own_ns = 0
        self.moved_by = "Python (a relay)"
        front, back, near = relay_addresses(os.getpid(), next(_numbers))
        self.storage = LinkEnd(address=front, listen=back, namespace=None)
        self.training = LinkEnd(address=near, listen=near, namespace=None)
        self._ending = ExitStack()
        self._relays: list[Child] = []
        self._offered: set[int] = set()
        self._closed = self._gauged = False

    @property
    def pids(self) -> tuple[int, ...]:
        """See `Link`."""
        return tuple(relay.pid for relay in self._relays)

    def offer(self, ports: Sequence[int]) -> None:
        """See `Link`. Ports that were offered before are left as they are."""
        self._check_open()
        new = tuple(port for port in dict.fromkeys(ports) if port not in self._offered)
        if not new:
            return
        order = RelayOrder(spec=self.spec, listen=self.storage.address, target=self.storage.listen, ports=new)
        command = [sys.executable, "-m", "emlio_bench.link.kinds.relaying", msgspec.json.encode(order).decode()]
        relay = self._ending.enter_context(Child("the relay", command))
        started = relay.hear(Started, ANSWER_S)
        if started.problem is not None:
            raise TransportError(f"a relay must be able to listen: {started.problem}")
        if self._gauged:
            ask_held(relay)
        self._relays.append(relay)
        self._offered.update(new)

    def counts(self) -> LinkCounts:
        """See `Link`."""
        self._check_open()
        to_training, to_storage = LineCounts(), LineCounts()
        for relay in self._relays:
            said = ask_counts(relay)
            to_training, to_storage = (
                add_counts(to_training, said.to_training),
                add_counts(to_storage, said.to_storage),
            )
        return LinkCounts(to_training=to_training, to_storage=to_storage)

    def held(self) -> Held:
        """See `Link`."""
        self._check_open()
        self._gauged = True
        return add_held(map(ask_held, self._relays))

    def close(self) -> None:
        """Shut the link down, with every connection through it."""
        self._closed = True
        self._ending.close()

    def _check_open(self) -> None:
        if self._closed or not all(relay.running for relay in self._relays):
            raise TransportError("a link must be up to be used, this one has ended")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
