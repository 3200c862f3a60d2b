"""Names of hosts that stand for several daemons, looked up now and again.

A name with several addresses means a daemon at each. Who runs daemons behind such a name adds and removes them there, and loaders
follow without being told. A name with one address stays a name: the network looks it up whenever it connects.

Covers: what a name means now, a thread that notices when that changes. Does not cover: calling daemons (emlio.receiver.crew).
"""

import ipaddress
import logging
import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from threading import Condition, Thread

from emlio.receiver.address import Peer

__all__ = ["NameWatch", "addresses_of", "daemons_at"]

_LOG = logging.getLogger("emlio.receiver")
_EVERY_S = 10.0
_CLOSE_S = 0.5
"""A look-up cannot be interrupted; the thread ends by itself after it, and nobody need wait for that."""


def addresses_of(host: str) -> tuple[str, ...]:
    """The addresses of a host, of one family, sorted; none where it is not known."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        _LOG.debug("the name %s cannot be looked up: %s", host, error)
        return ()
    # One daemon with addresses of both families must not be taken for two.
    for family in (socket.AF_INET, socket.AF_INET6):
        addresses = sorted({str(address[0]) for kind, _, _, _, address in found if kind == family})
        if addresses:
            return tuple(addresses)
    return ()


def daemons_at(peers: Sequence[Peer], look_up: Callable[[str], Sequence[str]] = addresses_of) -> tuple[Peer, ...]:
    """The daemons that these addresses stand for, each once."""
    found: dict[Peer, None] = {}
    for peer in peers:
        addresses = look_up(peer.host) if _is_name(peer.host) else ()
        meant = [replace(peer, host=address) for address in addresses] if len(addresses) > 1 else [peer]
        found.update(dict.fromkeys(meant))
    return tuple(found)


def _is_name(host: str) -> bool:
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host != "localhost"
    return False


class NameWatch:
    """Looks the names up again and again, in a thread of its own, which is there only if there are names."""

    def __init__(
        self,
        on_change: Callable[[tuple[Peer, ...]], None],
        *,
        look_up: Callable[[str], Sequence[str]] = addresses_of,
        every_s: float | None = None,
    ) -> None:
        """See the class.

        Args:
            on_change: told the daemons when they are others than before, from the thread.
            look_up: the addresses of a host.
            every_s: seconds from one look to the next; ten by default.
        """
        self._on_change = on_change
        self._look_up = look_up
        self._every_s = _EVERY_S if every_s is None else every_s
        self._changed = Condition()
        self._peers: tuple[Peer, ...] = ()
        self._meant: tuple[Peer, ...] = ()
        self._closed = False
        self._thread = Thread(target=self._run, name="emlio-names", daemon=True)

    def watch(self, peers: Sequence[Peer], meant: Sequence[Peer]) -> None:
        """From now on look these up; `meant` is what they stand for now."""
        with self._changed:
            self._peers, self._meant = tuple(peers), tuple(meant)
        if any(_is_name(peer.host) for peer in peers) and self._thread.ident is None:
            self._thread.start()

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._changed.wait_for(lambda: self._closed, self._every_s):
                    return
                peers, before = self._peers, self._meant
            found = {peer.host: tuple(self._look_up(peer.host)) for peer in peers if _is_name(peer.host)}
            if not all(found.values()):
                continue  # a name that cannot be looked up for a while must not send daemons away
            meant = daemons_at(peers, found.__getitem__)
            with self._changed:
                if self._closed:
                    return
                if self._peers != peers or meant == before:
                    continue
                self._meant = meant
            self._on_change(meant)

    def close(self) -> None:
        """End the thread. Closing again does nothing."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join(_CLOSE_S)
