"""Binds the lanes of streams, without holding up the thread that serves others.

Covers: lanes that are made one by one, and asked for again where every port of the range is taken for a moment. Used by one
sending thread. Does not cover: sockets (emlio.daemon.transport), what becomes of lanes that are bound (emlio.daemon.sender).
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from emlio.daemon.reservation import Reservation
from emlio.daemon.transport import Lane, Network
from emlio.errors import EmlioError

__all__ = ["LaneBinder"]

_LOG = logging.getLogger("emlio.daemon.sender")

_PORT_FREED_NS = 250_000_000
"""The longest wait for a port of a full range. A stream that is opened again gets the ports it just gave back."""

_PORT_LOOK_NS = 2_000_000
"""libzmq frees the port of a closed lane in a thread of its own and tells nobody when it has."""


@dataclass(slots=True, kw_only=True, eq=False)
class _Asked:
    reservation: Reservation
    until_ns: int
    on_bound: Callable[[list[Lane]], None]
    on_failure: Callable[[EmlioError], None]
    made: list[Lane] = field(default_factory=list[Lane])


class LaneBinder:
    """See the module. Owns the lanes until they are handed over."""

    def __init__(self, network: Network, high_water_mark: int) -> None:
        self._network = network
        self._high_water_mark = high_water_mark
        self._waiting: list[_Asked] = []

    def bind(
        self,
        reservation: Reservation,
        now_ns: int,
        on_bound: Callable[[list[Lane]], None],
        on_failure: Callable[[EmlioError], None],
        *,
        waits: bool,
    ) -> None:
        """Bind these lanes; one of the two is called, now or by `turn`. With `waits`, full ranges get a moment."""
        until_ns = now_ns + (_PORT_FREED_NS if waits else 0)
        asked = _Asked(reservation=reservation, until_ns=until_ns, on_bound=on_bound, on_failure=on_failure)
        if not self._go_on(asked, now_ns):
            self._waiting.append(asked)

    def turn(self, now_ns: int) -> None:
        """Try again."""
        for asked in list(self._waiting):
            # Taken off first: what is called may give up others.
            if asked in self._waiting:
                self._waiting.remove(asked)
                if not self._go_on(asked, now_ns):
                    self._waiting.append(asked)

    def due_ns(self, now_ns: int) -> int | None:
        """The time of the next `turn`; None while no lanes wait."""
        return now_ns + _PORT_LOOK_NS if self._waiting else None

    def give_up(self, reservation: Reservation) -> None:
        """These are not wanted any more; nothing is called."""
        for asked in [one for one in self._waiting if one.reservation is reservation]:
            self._waiting.remove(asked)
            _close(asked.made)

    def close(self) -> None:
        """Give all up."""
        for asked in self._waiting:
            _close(asked.made)
        self._waiting.clear()

    def _go_on(self, asked: _Asked, now_ns: int) -> bool:
        """Return True once the lanes are bound or have failed."""
        guard, made = asked.reservation.guard, asked.made
        try:
            while len(made) < asked.reservation.lanes:
                lane = self._network.lane(self._high_water_mark, guard.guest(len(made), now_ns))
                if lane is None and now_ns < asked.until_ns:
                    return False
                if lane is None:
                    raise self._network.exhausted()
                made.append(lane)
        except EmlioError as error:
            _close(made)
            asked.on_failure(error)
        except Exception as error:  # noqa: BLE001  # the control thread waits for an answer, whatever went wrong here
            _LOG.exception("lanes could not be bound")
            _close(made)
            asked.on_failure(EmlioError(f"internal error while binding lanes: {error!r}"))
        else:
            asked.on_bound(made)
        return True


def _close(lanes: list[Lane]) -> None:
    for lane in lanes:
        lane.close()
