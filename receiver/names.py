"""Names of hosts: the daemons that they stand for, the addresses of each, looked up now and again.

A name with several addresses means a daemon at each. Who runs daemons behind such a name adds and removes them there, and loaders
follow without being told. A name with one address of each family means one daemon that may be reached by either.

Covers: what a name means now, a thread that notices when that changes. Does not cover: calling daemons (emlio.receiver.crew), at
which of its addresses one is called (emlio.receiver.routes), several that turn out to be one (emlio.receiver.membership).
"""

import ipaddress
import logging
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from threading import RLock, Thread

from emlio.receiver.address import Peer
from emlio.receiver.bell import Bell
from emlio.receiver.interrupts import is_interrupt

__all__ = ["NameWatch", "Target", "addresses_of", "daemons_at"]

_LOG = logging.getLogger("emlio.receiver")
_EVERY_S = 10.0
_SOON_S = 1.0
_HURRY_S = 15.0
"""A daemon that was lost may be somewhere else now: for so long after each failure its name is looked up every second."""

_CLOSE_S = 0.5
"""A look-up cannot be interrupted; the thread ends by itself after it, and nobody need wait for that."""

_MOST_WAYS = 8
_LOCALHOST = ("127.0.0.1", "::1")
"""Known without asking anybody. Daemons listen at the first unless they are told otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A daemon that the loader was told of, by its own address or by a name.

    Attributes:
        peer: what it is called.
        ways: the addresses to reach it at, in the order to try them; none where the name is not known.
        trouble: why it is not.
        guessed: whether the ways are those of several daemons, and which belong together is a guess.
    """

    peer: Peer
    ways: tuple[Peer, ...]
    trouble: str = ""
    guessed: bool = False


def addresses_of(host: str) -> tuple[str, ...]:
    """The addresses of a host, of both families.

    Raises:
        OSError: it is not known.
    """
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    kinds = (socket.AF_INET, socket.AF_INET6)
    return tuple(dict.fromkeys(str(address[0]) for kind, _, _, _, address in found if kind in kinds))


def daemons_at(peers: Sequence[Peer], look_up: Callable[[str], Sequence[str]] | None = None) -> tuple[Target, ...]:
    """The daemons that these addresses stand for, each once; waits for the names to be looked up.

    Args:
        peers: what the loader was told.
        look_up: the addresses of a host; `OSError` or none where it is not known. By default the system's.
    """
    found: dict[Peer, Target] = {}
    for peer in peers:
        for target in _targets(peer, look_up or addresses_of):
            found.setdefault(target.peer, target)
    return tuple(found.values())


def _targets(peer: Peer, look_up: Callable[[str], Sequence[str]]) -> list[Target]:
    if not _is_name(peer.host):
        hosts = _LOCALHOST if peer.host == "localhost" else (peer.host,)
        return [Target(peer=peer, ways=tuple(replace(peer, host=host) for host in hosts))]
    try:
        addresses = look_up(peer.host)
        trouble = "" if addresses else "it has no address"
    except (OSError, UnicodeError) as error:  # UnicodeError: it is too long to be a name, or has an empty part
        if is_interrupt(error):
            raise
        addresses, trouble = (), str(error)
    if trouble:
        _LOG.debug("the name %s cannot be looked up: %s", peer.host, trouble)
        return [Target(peer=peer, ways=(), trouble=trouble)]
    # The fourth family is tried first: it is the one that a daemon listens at which was told 0.0.0.0.
    fours = [replace(peer, host=host) for host in sorted({host for host in addresses if ":" not in host})]
    sixes = [replace(peer, host=host) for host in sorted({host for host in addresses if ":" in host})]
    daemons = fours or sixes
    if len(daemons) == 1:
        return [Target(peer=peer, ways=(*daemons, *(way for way in sixes if way not in daemons))[:_MOST_WAYS])]
    if len(fours) == len(sixes):
        # As many of both: daemons with one of each.
        return [Target(peer=four, ways=(four, six), guessed=True) for four, six in zip(fours, sixes, strict=True)]
    return [Target(peer=daemon, ways=(daemon,)) for daemon in daemons]


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
        on_change: Callable[[tuple[Target, ...]], None],
        *,
        look_up: Callable[[str], Sequence[str]] | None = None,
        every_s: float | None = None,
    ) -> None:
        """See the class.

        Args:
            on_change: told the daemons when they or their addresses are others than before, from the thread.
            look_up: see `daemons_at`.
            every_s: seconds from one look to the next; ten by default, and one for a while after `hurry`.
        """
        self._on_change = on_change
        self._look_up = look_up
        self._every_s = _EVERY_S if every_s is None else every_s
        self._lock = RLock()  # a signal's handler may close the loader in the midst of another call of the same thread
        self._bell = Bell()
        self._known: dict[str, tuple[str, ...]] = {}
        self._peers: tuple[Peer, ...] = ()
        self._meant: tuple[Target, ...] = ()
        self._hurried = False
        self._hurry_until = 0.0
        self._closed = False
        self._thread = Thread(target=self._run, name="emlio-names", daemon=True)

    def look(self, peers: Sequence[Peer]) -> tuple[Target, ...]:
        """What these stand for now; waits for the names to be looked up."""
        return daemons_at(peers, self._addresses)

    def watch(self, peers: Sequence[Peer], meant: Sequence[Target]) -> None:
        """From now on look these up; `meant` is what they stand for now."""
        hosts = {peer.host for peer in peers}
        with self._lock:
            self._peers, self._meant = tuple(peers), tuple(meant)
            self._known = {host: found for host, found in self._known.items() if host in hosts}
        if any(_is_name(peer.host) for peer in peers) and self._thread.ident is None:
            self._thread.start()

    def hurry(self) -> None:
        """A daemon does not answer where it was: look whether its name means another place now."""
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
        """Wait until it is time for the next look; false at the end."""
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
        """Its addresses now; where it cannot be looked up for a while the last ones, so that nobody is sent away."""
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
        """End the thread. Closing again does nothing."""
        self._closed = True
        self._bell.ring()
        if self._thread.ident is not None:
            self._thread.join(_CLOSE_S)
