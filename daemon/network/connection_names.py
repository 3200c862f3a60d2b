"""Connection names that a peer cannot predict.

Does not cover: sockets (emlio.daemon.network.transport), the reason (docs/internals/decisions/libzmq.md).
"""

import ctypes
import os

__all__ = ["draw_connection_names"]


def draw_connection_names() -> None:
    """Make libzmq number its connections from a random start; call it before the first socket.

    libzmq begins with one of the C library's random numbers, which it does not seed: every process
    would begin with the same one. A peer that took the name of the next connection would end this
    process, as libzmq asserts that names differ.
    """
    ctypes.CDLL(None).srand(int.from_bytes(os.urandom(4), "little"))
