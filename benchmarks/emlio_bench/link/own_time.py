"""The time that a link itself adds to a round trip: wake-ups, and the path through the kernel.

It is measured with pings on the link when the link is made, and counts as a part of the requested
round trip.
"""

import os
import socket
import threading
import time
from collections.abc import Sequence
from typing import Final

__all__ = ["MOST_OWN_NS", "OwnTimeProbe", "bound_datagrams", "own_time_ns", "trial_rtt_ns"]

_LONGEST_TRIAL_NS: Final = 30_000_000
_PINGS: Final = 8
MOST_OWN_NS: Final = 600_000
"""The upper bound of the added time.

On an idle machine up to 0.5 ms were measured. A longer time has a temporary cause, which does not
affect later packets.
"""
_ANSWER_S: Final = 1.0


def trial_rtt_ns(rtt_ns: int) -> int:
    """Return the round trip for the trial.

    A late wake-up is as late after 30 ms as after a longer wait.
    """
    return min(rtt_ns, _LONGEST_TRIAL_NS)


def own_time_ns(pings_ns: Sequence[int], held_ns: int) -> int:
    """Return the time that the link itself adds to a round trip.

    This is the part of the quickest ping that exceeds the delay, at most the delay itself and at
    most `MOST_OWN_NS`. The quickest ping is used because other load on the machine makes pings
    longer.

    Args:
        pings_ns: durations of the pings. If nothing came back this is empty, and the result is 0.
        held_ns: delay of each ping, both directions together.
    """
    if not pings_ns:
        return 0
    return min(max(min(pings_ns) - held_ns, 0), held_ns, MOST_OWN_NS)


class OwnTimeProbe:
    """A thread of the link's process that sends pings over the link, one datagram at a time.

    Attributes:
        ended: descriptor that becomes readable after the last ping.
    """

    def __init__(self, near: socket.socket, far: socket.socket) -> None:
        """Start the pings.

        Args:
            near: socket bound at one end.
            far: socket bound at the other end.
        """
        self._near = near
        self._far = far
        self._pings_ns: list[int] = []
        self.ended, self._ending = os.pipe2(os.O_CLOEXEC)
        self._thread = threading.Thread(target=self._ping_all, name="emlio-own-time")
        self._thread.start()

    def close(self) -> tuple[int, ...]:
        """End the probe once `ended` is readable, and return the durations of the pings.

        The first ping is left out, because it runs with cold caches.
        """
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
            self._pings_ns.clear()  # no result, so no time is subtracted
        finally:
            os.close(self._ending)


def bound_datagrams(address: str) -> socket.socket:
    """Return a UDP socket at this address, in the namespace of the calling thread."""
    pinger = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        pinger.bind((address, 0))
    except OSError:
        pinger.close()
        raise
    return pinger
