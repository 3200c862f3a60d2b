"""What a link takes of a round trip before it has held anything back: wake-ups, and the way through the kernel.

It is found out on the link itself, by pings when it is made, and counts as a part of the round trip that was asked for.

Covers: those pings, what follows from them. Does not cover: taking it off (emlio.benchmarks.link.forwarder); whether the round
trip is right then (emlio.benchmarks.link.accuracy).
"""

import os
import socket
import threading
import time
from collections.abc import Sequence
from typing import Final

__all__ = ["MOST_OWN_NS", "OwnTimeProbe", "own_time_ns", "trial_rtt_ns"]

_LONGEST_TRIAL_NS: Final = 30_000_000
_PINGS: Final = 8
MOST_OWN_NS: Final = 600_000
"""A calm machine was found to take up to 0.5 ms. One that takes longer does something else just now, which later it does not."""
_ANSWER_S: Final = 1.0


def trial_rtt_ns(rtt_ns: int) -> int:
    """The round trip to find it out with: what wakes up late is as late after 30 ms as after more."""
    return min(rtt_ns, _LONGEST_TRIAL_NS)


def own_time_ns(pings_ns: Sequence[int], held_ns: int) -> int:
    """What remains of pings without what they were held back, never more than that, and less than a millisecond.

    The quickest one tells it, since whatever else runs on the machine makes the others longer.

    Args:
        pings_ns: none where nothing came back, and then it is 0.
        held_ns: how long each was held back, in both directions together.
    """
    if not pings_ns:
        return 0
    return min(max(min(pings_ns) - held_ns, 0), held_ns, MOST_OWN_NS)


class OwnTimeProbe:
    """Pings over a link by a thread of the process that is the link: one datagram there and back, and again.

    Attributes:
        ended: descriptor that becomes readable when the last has come back.
    """

    def __init__(self, near: socket.socket, far: socket.socket) -> None:
        """Begin.

        Args:
            near: bound at one end.
            far: bound at the other one.
        """
        self._near = near
        self._far = far
        self._pings_ns: list[int] = []
        self.ended, self._ending = os.pipe2(os.O_CLOEXEC)
        self._thread = threading.Thread(target=self._ping_all, name="emlio-own-time")
        self._thread.start()

    def close(self) -> tuple[int, ...]:
        """End it, once `ended` is readable. How long the pings took; the first, which finds everything cold, is left out."""
        self._thread.join()
        os.close(self.ended)
        return tuple(self._pings_ns[1:])

    def _ping_all(self) -> None:
        near, far = self._near, self._far
        try:
            for one in (near, far):
                one.settimeout(_ANSWER_S)
            for _ in range(_PINGS):
                begun_ns = time.monotonic_ns()
                near.sendto(b"?", far.getsockname())
                _, sender = far.recvfrom(1)
                far.sendto(b"!", sender)
                near.recv(1)
                self._pings_ns.append(time.monotonic_ns() - begun_ns)
        except OSError:
            self._pings_ns.clear()  # nothing is known, so nothing is counted
        finally:
            os.close(self._ending)
