"""A link between two network namespaces, for the duration of a `with` block.

Covers: starting and ending it, its two ends, reasons why it is impossible here. Does not cover:
moving packets (emlio_bench.link.kinds.forwarder), the kernel's own delay
(emlio_bench.link.kinds.netem).
"""

import os
import shutil
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

import msgspec

from emlio.errors import ConfigError, TransportError
from emlio_bench.link.contract import ENTER, LinkEnd, LinkKind
from emlio_bench.link.namespaces.devices import MOST_PLACES, TUN_PATH, storage_address, training_address
from emlio_bench.link.process.channel import LinkCounts, LinkOrder, Started
from emlio_bench.link.process.questions import ANSWER_S, ask_counts, ask_held
from emlio_bench.link.shaping.held import Held
from emlio_bench.link.spec import LinkSpec
from emlio_bench.processes.child import Child

__all__ = ["EmulatedLink", "why_not"]

_PROCESSES: Final = {
    LinkKind.EMULATED: "emlio_bench.link.kinds.forwarder",
    LinkKind.NETEM: "emlio_bench.link.kinds.netem_holder",
}


class EmulatedLink:
    """Two network namespaces and the path between them. See `Link`.

    The link ends with the `with` block. If this process ends without leaving the block, or is
    killed, programs at both ends are killed too.

    Attributes:
        spec: specification of the link.
        kind: implementation of the link.
        storage: end for a daemon.
        training: end for ranks.
        own_ns: time that the link itself adds to a round trip, measured when it was made; 0 if the
            kernel delays packets.
        moved_by: what moves the packets: the kernel, C, or Python and the reason why not C.
    """

    def __init__(
        self, spec: LinkSpec, kind: LinkKind = LinkKind.EMULATED, *, beside: Sequence["EmulatedLink"] = ()
    ) -> None:
        """Start the link.

        Args:
            spec: the specification.
            kind: `EMULATED`, or `NETEM` if `why_no_netem` returns None.
            beside: all links whose training end this link shares, in the order they were made;
                empty for an end of its own. Each link has an address of its own at the shared end,
                and a line of its own to its own storage end.
        """
        if beside and spec.tuned is not beside[0].spec.tuned:
            raise ConfigError(f"links of one training end must all be tuned or none, got one with tuned={spec.tuned}")
        if len(beside) >= MOST_PLACES:
            raise ConfigError(f"at most {MOST_PLACES} links may share a training end, this is number {len(beside) + 1}")
        if kind not in _PROCESSES:
            raise ConfigError(f"kind must be one of {', '.join(_PROCESSES)} for a link of namespaces, got {kind}")
        self.spec: LinkSpec = spec
        self.kind = kind
        place = len(beside)
        shared = str(beside[0].training.namespace) if beside else None
        orders = msgspec.json.encode(LinkOrder(spec=spec, place=place, training=shared)).decode()
        self._ending = ExitStack()
        self._child = self._ending.enter_context(Child("the link", [sys.executable, "-m", _PROCESSES[kind], orders]))
        try:
            started = self._child.hear(Started, ANSWER_S)
            if started.problem is not None:
                raise TransportError(f"a link needs network namespaces and devices in them: {started.problem}")
        except BaseException:
            self.close()
            raise
        self.own_ns = started.own_ns
        self.moved_by = started.moved_by
        descriptors = Path(f"/proc/{self._child.pid}/fd")
        self.storage: LinkEnd
        self.training: LinkEnd
        self.storage, self.training = (
            LinkEnd(address=address, listen=address, namespace=descriptors / str(namespace))
            for address, namespace in (
                (storage_address(place), started.storage_namespace),
                (training_address(place), started.training_namespace),
            )
        )

    @property
    def pid(self) -> int:
        """Id of the process that moves the packets."""
        return self._child.pid

    @property
    def pids(self) -> tuple[int, ...]:
        """See `Link`."""
        return (self._child.pid,)

    def offer(self, ports: Sequence[int]) -> None:
        """See `Link`. There is nothing to do, since each end reaches all ports of the other end."""

    def counts(self) -> LinkCounts:
        """Return the counts of the packets so far."""
        return ask_counts(self._child)

    def held(self) -> Held:
        """See `Link`."""
        return ask_held(self._child)

    def close(self) -> None:
        """Shut the link down. Processes still in its namespaces continue without a network."""
        self._ending.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def why_not() -> str | None:
    """Return the reason why this process can make no link, or None if it can.

    Unless a reason is found without it, the function makes a link to find out.
    """
    if not os.path.exists(TUN_PATH):
        return f"needs {TUN_PATH}, which does not exist"
    if not os.access(TUN_PATH, os.R_OK | os.W_OK):
        return f"needs to read and write {TUN_PATH}"
    if os.geteuid() != 0:
        return "needs root, for network namespaces"
    if shutil.which(ENTER) is None:
        return f"needs the program {ENTER}, of util-linux"
    try:
        EmulatedLink(LinkSpec(rtt_ns=0)).close()
    except TransportError as error:
        return str(error)
    return None
