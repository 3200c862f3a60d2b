"""A link between two network namespaces of this machine, held by a process of its own."""

import os
import shutil
import signal
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

import msgspec

from emlio.errors import ConfigError, TransportError
from emlio_bench.link.contract import ENTER, Held, Link, LinkCounts, LinkEnd, LinkKind, LinkSpec
from emlio_bench.link.devices import MOST_PLACES, TUN_PATH, storage_address, training_address
from emlio_bench.link.holder import Changed, LinkOrder, Started
from emlio_bench.link.native.build import NotCompiledError, load_library
from emlio_bench.processes.child import Child

__all__ = ["EmulatedLink", "why_not"]

_Answer = TypeVar("_Answer")
_ANSWER_S = 30.0


class EmulatedLink(Link):
    """The link; see `Link`. Its ends are namespaces, which end with it.

    Raises:
        ConfigError: links of one training end do not fit together.
        TransportError: the machine cannot have it; the message says why.
    """

    def __init__(
        self, spec: LinkSpec, kind: LinkKind = LinkKind.EMULATED, *, beside: Sequence["EmulatedLink"] = ()
    ) -> None:
        """Make the link.

        Args:
            spec: what it is to be like.
            kind: whether the kernel or a program carries packets.
            beside: links whose training end it shares.
        """
        if beside and spec.tuned is not beside[0].spec.tuned:
            raise ConfigError(f"links of one training end must all be tuned or none, got one with tuned={spec.tuned}")
        if len(beside) >= MOST_PLACES:
            raise ConfigError(f"at most {MOST_PLACES} links may share a training end, this is number {len(beside) + 1}")
        self.kind = kind
        place = len(beside)
        shared = str(beside[0].training.namespace) if beside else None
        order = msgspec.json.encode(LinkOrder(spec=spec, kind=kind, place=place, training=shared)).decode()
        self._ending = ExitStack()
        self._child = self._ending.enter_context(
            Child("the link", [sys.executable, "-m", "emlio_bench.link.holder", order], talks=True)
        )
        try:
            started = self._child.hear(Started, _ANSWER_S)
            if started.problem is not None:
                raise TransportError(f"a link needs network namespaces and devices in them: {started.problem}")
        except BaseException:
            self.close()
            raise
        self.own_ns = started.own_ns
        self.moved_by = started.moved_by
        self.pids = (self._child.pid,)
        descriptors = Path(f"/proc/{self._child.pid}/fd")
        storage, training = (
            LinkEnd(address=address, listen=address, namespace=descriptors / str(namespace))
            for address, namespace in (
                (storage_address(place), started.storage_namespace),
                (training_address(place), started.training_namespace),
            )
        )
        Link.__init__(self, spec, storage=storage, training=training)

    @property
    def pid(self) -> int:
        """The process that holds it."""
        return self._child.pid

    def change(self, spec: LinkSpec) -> None:
        """Be another link from now on, at the same ends. What is on its way arrives as before."""
        if not self._child.running:
            raise TransportError("a link must be up to be changed, this one has ended")
        self._child.ask(spec, Changed, _ANSWER_S)
        self.spec = spec

    def counts(self) -> LinkCounts:
        """Return what it has carried."""
        return self._ask(signal.SIGUSR1, LinkCounts)

    def held(self) -> Held:
        """Return the stretches since the last call; the first call starts the recording."""
        return self._ask(signal.SIGUSR2, Held)

    def _ask(self, number: signal.Signals, kind: type[_Answer]) -> _Answer:
        if not self._child.running:
            raise TransportError("a link must be up to be asked, this one has ended")
        os.kill(self._child.pid, number)
        return self._child.hear(kind, _ANSWER_S)

    def close(self) -> None:
        """End it."""
        self._ending.close()


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
        load_library()
        EmulatedLink(LinkSpec(rtt_ns=0)).close()
    except (TransportError, NotCompiledError) as error:
        return str(error)
    return None
