"""A link between two network namespaces, for as long as a `with` block.

Covers: starting and ending it, its two ends, why there can be none here. Does not cover: moving packets
(emlio.benchmarks.link.forwarder), the kernel's own delay (emlio.benchmarks.link.netem).
"""

import os
import shutil
import signal
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec

from emlio.benchmarks.link.contract import ENTER, LinkEnd, LinkKind
from emlio.benchmarks.link.devices import MOST_PLACES, TUN_PATH, storage_address, training_address
from emlio.benchmarks.link.held import Held
from emlio.benchmarks.link.spec import LinkSpec
from emlio.benchmarks.link.talk import LinkCounts, LinkOrder, Started
from emlio.benchmarks.processes import Child
from emlio.errors import ConfigError, TransportError

__all__ = ["EmulatedLink", "why_not"]

_ANSWER_S: Final = 30.0
_PROCESSES: Final = {
    LinkKind.EMULATED: "emlio.benchmarks.link.forwarder",
    LinkKind.NETEM: "emlio.benchmarks.link.netem_holder",
}


class EmulatedLink:
    """Two network namespaces and the path between them. See `Link`.

    All of it ends with the `with` block. Where this process ends without that, also when it is killed, programs at both ends are
    killed too.

    Attributes:
        spec: what was asked for.
        kind: who delays packets.
        storage: the end where a daemon belongs.
        training: the end where ranks belong.
        own_ns: what the link itself takes of a round trip, as it found out when it was made; 0 where the kernel delays packets.
    """

    def __init__(
        self, spec: LinkSpec, kind: LinkKind = LinkKind.EMULATED, *, beside: Sequence["EmulatedLink"] = ()
    ) -> None:
        """Bring it up.

        Args:
            spec: what is wanted.
            kind: `EMULATED` or, where `why_no_netem` has nothing against it, `NETEM`.
            beside: all links whose training end it shares, in the order they were made; none for an end of its own. Each has an
                address of its own at the shared end, and a line of its own to its own storage end.
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
            started = self._child.hear(Started, _ANSWER_S)
            if started.problem is not None:
                raise TransportError(f"a link needs network namespaces and devices in them: {started.problem}")
        except BaseException:
            self.close()
            raise
        self.own_ns = started.own_ns
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
        """Of the process that moves the packets."""
        return self._child.pid

    @property
    def pids(self) -> tuple[int, ...]:
        """See `Link`."""
        return (self._child.pid,)

    def offer(self, ports: Sequence[int]) -> None:
        """See `Link`. There is nothing to do: one end reaches all ports of the other."""

    def counts(self) -> LinkCounts:
        """What became of the packets so far."""
        if not self._child.running:
            raise TransportError("a link must be up to be asked for its counts, this one has ended")
        os.kill(self._child.pid, signal.SIGUSR1)
        return self._child.hear(LinkCounts, _ANSWER_S)

    def held(self) -> Held:
        """See `Link`."""
        if not self._child.running:
            raise TransportError("a link must be up to be asked what it holds, this one has ended")
        os.kill(self._child.pid, signal.SIGUSR2)
        return self._child.hear(Held, _ANSWER_S)

    def close(self) -> None:
        """Take it down. Processes still in its namespaces live on without a network."""
        self._ending.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def why_not() -> str | None:
    """Why this process can make no link, or None when it can. Makes one, unless the reason is found without."""
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
