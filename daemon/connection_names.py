"""Names of connections that a peer cannot know beforehand.

Covers: seeding what libzmq draws them from. Does not cover: sockets (emlio.daemon.transport), why (docs/adr/0016).
"""

import ctypes
import os

__all__ = ["draw_connection_names"]


def draw_connection_names() -> None:
    """Have libzmq begin its numbering of connections anywhere; to be called before the first socket is made.

    It begins at one of the C library's random numbers, which it does not seed: each process would begin at the same one. A peer
    that gave itself the name of the next connection would end this process, by an assertion that names differ.
    """
    ctypes.CDLL(None).srand(int.from_bytes(os.urandom(4), "little"))
