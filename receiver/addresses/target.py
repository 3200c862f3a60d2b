"""A daemon named in a loader's address.

Covers: the value. Does not cover: host names (emlio.receiver.addresses.host_names).
"""

from dataclasses import dataclass

from emlio.receiver.addresses.address import Peer

__all__ = ["Target"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A daemon named in the loader's address, by its own address or by a host name.

    Attributes:
        peer: the address that identifies it.
        ways: the addresses to reach it at, in the order to try them; none if the host name is not
            known.
        trouble: why the host name is not known; "" otherwise.
        guessed: whether the ways are those of several daemons, and which belong together is a
            guess.
    """

    peer: Peer
    ways: tuple[Peer, ...]
    trouble: str = ""
    guessed: bool = False
