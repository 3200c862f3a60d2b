"""All streams of a daemon and the threads that serve them.

Covers: building a stream from a rank's order, its share of lanes and memory, starting and ending it. Does not cover: who may
order what (emlio.session.daemon), reading (emlio.daemon.readers), sending (emlio.daemon.sender).
"""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from emlio.clock import Clock
from emlio.daemon.config import DaemonConfig
from emlio.daemon.ledger import Ledger
from emlio.daemon.library import AgreedPlan, ServedDataset
from emlio.daemon.pace_keeper import PaceKeeper
from emlio.daemon.readers import Readers
from emlio.daemon.reservation import Reservation
from emlio.daemon.sender import Sender, StreamTotals
from emlio.daemon.stream import Stream, StreamFailure, held_bytes
from emlio.daemon.transport import Network
from emlio.errors import EmlioError, RefusedError, RemoteProtocolError
from emlio.reading.buffers import BufferPool
from emlio.reading.course import NO_OPENING, Opening, StreamPosition
from emlio.reading.feed import Feed
from emlio.session.daemon import DaemonSession
from emlio.wire.control import ENERGY, Open
from emlio.wire.data import tail_room
from emlio.wire.limits import MAX_LANES

__all__ = ["Streams"]

_READY_BYTES = 8 << 20
_MESSAGES_READY = 2
_LEAST_MESSAGES_READY = 4
"""What a stream reads ahead: some for its lanes together, and some messages for each; 16 MiB with one lane. It has to outlast a
pause of the reading threads, a few milliseconds, not the network: what crosses that is the kernel's."""

_OPENING_BYTES = 128 << 10
"""What messages are filled to until each lane has had the bytes of a usual one. Smaller ones gain little: TCP sends its first
15 kB anyway before it hears of anything."""

_ABSENT_NAMED = 16


class Streams:
    """Owns the reading and sending threads and the memory between them. Used by the control thread.

    `on_failure` is called from the threads that read and send.
    """

    def __init__(
        self, config: DaemonConfig, network: Network, clock: Clock, on_failure: Callable[[StreamFailure], None]
    ) -> None:
        self._config = config
        self._clock = clock
        self._pool = BufferPool(_with_tail(config.message_bytes(MAX_LANES)), config.memory // 4)
        self._ledger = Ledger(config.memory)
        self._sender = Sender(
            threads=config.workers,
            network=network,
            high_water_mark=config.high_water_mark,
            on_failure=on_failure,
        )
        self._readers = Readers(
            threads=config.readers,
            memory_bytes=config.memory,
            on_ready=self._sender.signal,
            on_failure=on_failure,
        )

    def start(self) -> None:
        """Start the threads."""
        self._sender.start()
        self._readers.start()

    def open(
        self,
        *,
        served: ServedDataset,
        agreed: AgreedPlan,
        machine: DaemonSession,
        order: Open,
        reservation: Reservation,
        label: str,
        on_bound: Callable[[Stream, Sequence[int]], None],
        on_failure: Callable[[EmlioError], None],
    ) -> Stream:
        """Begin what a rank ordered; raises `EmlioError` where the order cannot be.

        Args:
            served: the dataset.
            agreed: the plan.
            machine: the session.
            order: from where on, which shards.
            reservation: its lanes, bound or to be bound.
            label: whose it is, for the log.
            on_bound: called from a sending thread with the lanes' ports.
            on_failure: called from it instead, where no lanes can be had.
        """
        owned = _owned(agreed, order)
        agreed.plan.epoch(order.epoch, order.origin)  # an impossible position is refused here, not in a reading thread
        lanes = reservation.lanes
        message_bytes = self._config.message_bytes(lanes)
        feed = Feed(
            plan=agreed.plan,
            rank=machine.hello.rank,
            position=StreamPosition(epoch=order.epoch, origin=order.origin, slot=order.slot, end=order.end or None),
            owned=owned,
            local=agreed.local,
            shards=served.files,
            message_bytes=message_bytes,
            clock=self._clock,
            opening=_opening(lanes, message_bytes),
        )
        stream = Stream(
            session=machine.session,
            stream=order.stream,
            feed=feed,
            pool=self._pool,
            ledger=self._ledger,
            limit_bytes=max(
                _READY_BYTES + _MESSAGES_READY * lanes * _held(message_bytes),
                _LEAST_MESSAGES_READY * _held(message_bytes),
            ),
            label=label,
            dataset=served.dataset.name,
            pace=(
                PaceKeeper(self._clock, message_bytes=message_bytes, least_bytes=(lanes + 1) * message_bytes)
                if order.pace == ENERGY
                else None
            ),
        )
        self._sender.attach(stream, reservation, lambda ports: on_bound(stream, ports), on_failure)
        self._readers.add(stream)
        return stream

    def reserve(
        self,
        reservation: Reservation,
        on_bound: Callable[[Sequence[int]], None],
        on_failure: Callable[[EmlioError], None],
    ) -> None:
        """Bind lanes for a stream to come; one of the two is called from a sending thread."""
        self._sender.reserve(reservation, on_bound, on_failure)

    def release(self, reservation: Reservation) -> None:
        """No stream takes them: they are closed soon."""
        self._sender.release(reservation)

    def lanes_of(self, asked: int, world_size: int) -> int:
        """How many it gets: the ranks of a job share the link, so each gets its part of what one alone would need."""
        if self._config.lanes:
            return self._config.lanes
        return min(max(-(-asked // world_size), min(asked, 2)), MAX_LANES)

    def finish(self, stream: Stream) -> None:
        """Read no more for it; what was read still leaves."""
        self._readers.finish(stream)

    def stop(self, stream: Stream) -> None:
        """End it; what is still being read for it is dropped. Its lanes are closed soon."""
        self._readers.remove(stream)
        self._sender.detach(stream)

    def totals(self, stream: Stream) -> StreamTotals:
        """What it sent so far."""
        return self._sender.totals(stream)

    def close(self) -> None:
        """Stop all threads and close all lanes."""
        self._readers.close()
        self._sender.close()


def _owned(agreed: AgreedPlan, order: Open) -> npt.NDArray[np.bool_]:
    """Which shards of the catalog the order names; all of them must be held here."""
    shards = len(agreed.local)
    bits = np.unpackbits(np.frombuffer(order.owned, np.uint8), bitorder="little")
    if len(order.owned) != (shards + 7) // 8 or bits[shards:].any() or not bits.any():
        raise RemoteProtocolError(
            f"a stream must name at least one of {shards} shards in {(shards + 7) // 8} bytes of bits, "
            f"got {len(order.owned)} bytes"
        )
    owned = bits[:shards].astype(np.bool_)
    absent: list[int] = np.flatnonzero(owned & (agreed.local < 0)).tolist()
    if absent:
        names = [agreed.plan.catalog.shards[number].name for number in absent[:_ABSENT_NAMED]]
        raise RefusedError(f"a stream must be of shards held here; not held: {', '.join(names)}", code="not-held")
    return owned


def _with_tail(message_bytes: int) -> int:
    """Memory of a message that is filled to so many bytes, of records of 64 bytes and more."""
    return message_bytes + tail_room(message_bytes // 64)


def _held(message_bytes: int) -> int:
    """What such a message counts as while it is held."""
    return held_bytes(message_bytes, message_bytes // 64)


def _opening(lanes: int, message_bytes: int) -> Opening:
    """A single lane has a short path, where connections are fast from the start."""
    if lanes < 2 or message_bytes <= _OPENING_BYTES:
        return NO_OPENING
    return Opening(message_bytes=_OPENING_BYTES, total_bytes=lanes * message_bytes)
