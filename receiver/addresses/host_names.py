"""Host names: the daemons they stand for and the addresses of each, looked up periodically.

A name with several addresses means one daemon at each. Operators add and remove daemons behind such
a name, and loaders follow without being told. A name with one address of each family means one
daemon that can be reached by either.

Covers: the current meaning of a name, a thread that notices changes. Does not cover: the choice
among a daemon's addresses (emlio.receiver.machine.routes), several daemons that turn out to be one
(emlio.receiver.machine.membership).
"""

import ipaddress
import logging
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from threading import RLock, Thread

from emlio.interrupts import is_interrupt
from emlio.receiver.addresses.address import Peer, Target
from emlio.receiver.threads.bell import Bell

__all__ = ["NameWatch", "addresses_of", "daemons_at"]

_LOG = logging.getLogger("emlio.receiver")
_EVERY_S = 10.0
_SOON_S = 1.0
_HURRY_S = 15.0
"""The time after a failure in which a lost daemon's name is looked up every second: the daemon may have
moved."""

_CLOSE_S = 0.5
"""A look-up cannot be interrupted. The thread ends by itself after it, so `close` does not wait for
that."""

_MOST_WAYS = 8
_LOCALHOST = ("127.0.0.1", "::1")
"""Known without a look-up. Daemons listen at the first by default."""


def addresses_of(host: str) -> tuple[str, ...]:
    """Return the addresses of a host, of both families.

    Raises:
        OSError: the host is not known.
    """
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    kinds = (socket.AF_INET, socket.AF_INET6)
    return tuple(dict.fromkeys(str(address[0]) for kind, _, _, _, address in found if kind in kinds))


def daemons_at(peers: Sequence[Peer], look_up: Callable[[str], Sequence[str]] | None = None) -> tuple[Target, ...]:
    """Return the daemons that these addresses stand for, each once. Waits for name look-ups.

    Args:
        peers: the daemons' addresses as given to the loader.
        look_up: returns the addresses of a host; raises `OSError` or returns none if it is not
            known. By default the system's.
    """
    found: dict[Peer, Target] = {}
    for peer in peers:
        for target in _targets(peer, look_up or addresses_of):
            found.setdefault(target.peer, target)
    return tuple(found.values())


def _targets(peer: Peer, look_up: Callable[[str], Sequence[str]]) -> list[Target]:
    if not _is_name(peer.host):
        hosts = _LOCALHOST if peer.host == "localhost" else (peer.host,)
        return [
            Target(
                peer=peer,
                ways=tuple(replace(peer, host=host, name=peer.host if len(hosts) > 1 else "") for host in hosts),
            )
        ]
    try:
        addresses = look_up(peer.host)
        trouble = "" if addresses else "it has no address"
    except (OSError, UnicodeError) as error:  # UnicodeError: it is too long for a name, or has an empty part
        if is_interrupt(error):
            raise
        addresses, trouble = (), str(error)
    if trouble:
        _LOG.debug("the host name %s cannot be resolved: %s", peer.host, trouble)
        return [Target(peer=peer, ways=(), trouble=trouble)]
    # IPv4 is tried first: a daemon told to listen at 0.0.0.0 listens only there.
    named = replace(peer, name=peer.host)
    fours = [replace(named, host=host) for host in sorted({host for host in addresses if ":" not in host})]
    sixes = [replace(named, host=host) for host in sorted({host for host in addresses if ":" in host})]
    daemons = fours or sixes
    if len(daemons) == 1:
        return [Target(peer=peer, ways=(*daemons, *(way for way in sixes if way not in daemons))[:_MOST_WAYS])]
    if len(fours) == len(sixes):
        # As many of both families: daemons with one address of each.
        return [Target(peer=four, ways=(four, six), guessed=True) for four, six in zip(fours, sixes, strict=True)]
    return [Target(peer=daemon, ways=(daemon,)) for daemon in daemons]


def _is_name(host: str) -> bool:
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host != "localhost"
    return False


class NameWatch:
    """Looks the names up periodically, in a thread of its own that runs only if there are names."""

    def __init__(
        self,
        on_change: Callable[[tuple[Target, ...]], None],
        *,
        look_up: Callable[[str], Sequence[str]] | None = None,
        every_s: float | None = None,
    ) -> None:
        """Prepare the watch.

        Args:
            on_change: called from the thread with the daemons when they or their addresses have
                changed.
            look_up: see `daemons_at`.
            every_s: seconds between look-ups; by default ten, and one for a while after `hurry`.
        """
        self._on_change = on_change
        self._look_up = look_up
        self._every_s = _EVERY_S if every_s is None else every_s
        self._lock = RLock()  # a signal handler may close the loader during another call of the same thread
        self._bell = Bell()
        self._known: dict[str, tuple[str, ...]] = {}
        self._peers: tuple[Peer, ...] = ()
        self._meant: tuple[Target, ...] = ()
        self._hurried = False
        self._hurry_until = 0.0
        self._closed = False
        self._thread = Thread(target=self._run, name="emlio-names", daemon=True)

    def look(self, peers: Sequence[Peer]) -> tuple[Target, ...]:
        """Return the daemons that these addresses stand for now. Waits for name look-ups."""
        return daemons_at(peers, self._addresses)

    def watch(self, peers: Sequence[Peer], meant: Sequence[Target]) -> None:
        """Watch these from now on; `meant` are the daemons they stand for now."""
        hosts = {peer.host for peer in peers}
        with self._lock:
            self._peers, self._meant = tuple(peers), tuple(meant)
            self._known = {host: found for host, found in self._known.items() if host in hosts}
        if any(_is_name(peer.host) for peer in peers) and self._thread.ident is None:
            self._thread.start()

    def hurry(self) -> None:
        """Look the names up soon: a daemon does not answer where it was, so it may have moved."""
        if self._thread.ident is not None and not self._hurried:
            self._hurried = True
            self._bell.ring()

    def _run(self) -> None:
        while self._pause():
            with self._lock:
                peers, before = self._peers, self._meant
            meant = self.look(peers)
            with self._lock:
                if self._closed:
                    return
                if self._peers != peers or meant == before:
                    continue
                self._meant = meant
            self._on_change(meant)

    def _pause(self) -> bool:
        """Wait until the next look-up is due; return False at the end."""
        now = time.monotonic()
        unknown = any(target.trouble for target in self._meant)
        soon = unknown or now < self._hurry_until
        until = now + (min(_SOON_S, self._every_s) if soon else self._every_s)
        while not self._closed and (soon or not self._hurried) and (left := until - time.monotonic()) > 0:
            self._bell.wait(left)
        if self._hurried:
            self._hurried, self._hurry_until = False, time.monotonic() + _HURRY_S
        return not self._closed

    def _addresses(self, host: str) -> Sequence[str]:
        """Return a host's addresses; while it cannot be looked up, the last known ones.

        So a failing name server does not remove daemons.
        """
        try:
            found = tuple((self._look_up or addresses_of)(host))
        except (OSError, UnicodeError) as error:
            found = ()
            if host not in self._known or is_interrupt(error):
                raise
        if found:
            with self._lock:
                self._known[host] = found
        return found or self._known.get(host, ())

    def close(self) -> None:
        """Stop the thread. A second call does nothing."""
        self._closed = True
        self._bell.ring()
        if self._thread.ident is not None:
            self._thread.join(_CLOSE_S)
