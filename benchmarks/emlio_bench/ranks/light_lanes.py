"""The lanes of a light rank, its hello and its request for a stream.

Data are read at once and dropped, and the lane's credit is returned. The stream's credit grows at a
steady rate, as with a user who takes little at a time.

Covers: protocol version 3. Does not cover: the session (emlio_bench.ranks.light_rank), the
contents of messages.
"""

import itertools
import os
import socket as tcp
import time
import uuid
from collections.abc import Callable
from typing import Final

import zmq

from emlio import __version__
from emlio.receiver.addresses.lane_pass import LanePass
from emlio.session.stream_wanted import StreamWanted
from emlio.wire.control import Hello
from emlio.wire.credit import Credit, encode_credit
from emlio.wire.limits import MAX_DATA_FRAME_BYTES
from emlio_bench.ranks.crowd_order import CrowdOrder
from emlio_bench.ranks.waiter import Waiter

__all__ = ["LightLanes"]

_SECRET_BYTES: Final = 32
_HEARTBEAT_MS: Final = 10_000
_SILENT_MS: Final = 60_000

_LOST_NS: Final = 7_000_000_000
"""The time after which a lane that is not up is replaced. A daemon gives a handshake up after 5 s.
"""

_AHEAD_BYTES: Final = 512 << 10
"""The bytes that a stream may be ahead of the user. Those of a thousand ranks must fit in memory.
"""

_STEP_BYTES: Final = 64 << 10
"""The least new credit that is sent on its own, about a batch."""

_FAR: Final = 1 << 40
"""An epoch that is never reached, so that only bytes limit these streams."""


class _Lane:
    """One connection for data.

    Attributes:
        socket: socket of this lane.
        up: whether the daemon has accepted it.
        since_ns: time when it was connected, or was last up.
        read_bytes: bytes of all messages.
    """

    def __init__(self, socket: "zmq.Socket[bytes]", credit: Callable[[int], Credit], now_ns: int) -> None:
        """Create a lane.

        Args:
            socket: socket of this lane.
            credit: returns the credit message for a number of bytes read.
            now_ns: the time.
        """
        self.socket = socket
        self.up = False
        self.since_ns = now_ns
        self.read_bytes = 0
        self._credit = credit

    def hear(self) -> None:
        """Read what has arrived, and send credit for it."""
        while self._read() or not self.up:
            if not self.say():
                return  # there is no connection yet

    def say(self) -> bool:
        """Send the bytes read on this lane and the stream's credit; return whether it was sent."""
        try:
            self.socket.send(encode_credit(self._credit(self.read_bytes)), zmq.DONTWAIT)
        except zmq.Again:
            self.up = False
            return False
        self.up = True
        return True

    def _read(self) -> bool:
        before_bytes = self.read_bytes
        try:
            while True:
                self.read_bytes += len(self.socket.recv(zmq.DONTWAIT, copy=False).buffer)
        except zmq.Again:
            return self.read_bytes > before_bytes

    def close(self) -> None:
        """Disconnect."""
        self.socket.close(linger=0)


class LightLanes:
    """The lanes of one light rank. Used by one thread.

    Attributes:
        replaced: lanes that were lost, or never came up.
    """

    def __init__(self, context: "zmq.Context[zmq.Socket[bytes]]", waiter: Waiter, order: CrowdOrder) -> None:
        """Create the object, without lanes.

        Args:
            context: ZeroMQ context.
            waiter: waits for sockets.
            order: configuration of all ranks of this process.
        """
        self._context = context
        self._waiter = waiter
        self._order = order
        self._secret = os.urandom(_SECRET_BYTES)
        self.replaced = 0
        self._lanes: list[_Lane] = []
        self._port = 0
        self._numbers = itertools.count()
        self._lost_bytes = 0
        self._stream = 0
        self._allowed_bytes = self._told_bytes = _AHEAD_BYTES
        self._begun_ns: int | None = None
        self._turn = 0

    @property
    def read_bytes(self) -> int:
        """Bytes of all messages so far."""
        return self._lost_bytes + sum(lane.read_bytes for lane in self._lanes)

    @property
    def up(self) -> bool:
        """True if the daemon has accepted all lanes."""
        return bool(self._lanes) and all(lane.up for lane in self._lanes)

    def hello(self, rank: int) -> Hello:
        """Return the hello of a rank."""
        order = self._order
        return Hello(
            job=order.job,
            client=f"{order.job}-{rank}",
            rank=rank,
            world_size=order.ranks,
            dataset=order.dataset,
            host=tcp.gethostname(),
            pid=os.getpid(),
            software=__version__,
            lane_secret=self._secret,
            process=uuid.uuid4().hex,
        )

    def wanted(self, shards: int) -> StreamWanted:
        """Return the request for a stream of all records of this many shards, without end."""
        owned = ((1 << shards) - 1).to_bytes(-(-shards // 8), "little")
        return StreamWanted(epoch=0, origin=0, slot=0, owned=owned, lanes=self._order.lanes, credit=self._credit(0))

    def ordered(self, stream: int) -> None:
        """Set the stream that credit is for from now on."""
        self._stream = stream

    def connect(self, port: int) -> None:
        """Connect all lanes to the daemon's data port."""
        self._port = port
        self._lanes = [self._connected() for _ in range(self._order.lanes)]

    def _connected(self) -> _Lane:
        pass_ = LanePass.of(self._secret, next(self._numbers))
        socket = self._context.socket(zmq.DEALER)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.IMMEDIATE, 1)  # a successful send shows that the daemon has accepted the lane
        socket.setsockopt(zmq.RECONNECT_IVL, -1)
        socket.setsockopt(zmq.HEARTBEAT_IVL, _HEARTBEAT_MS)
        socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, _SILENT_MS)
        socket.setsockopt(zmq.MAXMSGSIZE, MAX_DATA_FRAME_BYTES)
        socket.setsockopt(zmq.RCVHWM, 0)
        socket.setsockopt(zmq.ROUTING_ID, pass_.name)
        socket.setsockopt(zmq.PLAIN_USERNAME, pass_.user)
        socket.setsockopt(zmq.PLAIN_PASSWORD, pass_.token)
        socket.connect(self._order.endpoint(self._port))
        lane = _Lane(socket, self._credit, time.monotonic_ns())
        self._waiter.add(socket, lane.hear)
        return lane

    def tend(self, now_ns: int) -> None:
        """Replace lanes that were lost, or never came up."""
        for place, lane in enumerate(self._lanes):
            if lane.up:
                lane.since_ns = now_ns
            elif now_ns - lane.since_ns >= _LOST_NS:
                self._lost_bytes += lane.read_bytes
                self._waiter.forget(lane.socket)
                lane.close()
                self._lanes[place] = self._connected()
                self.replaced += 1

    def take(self, now_ns: int) -> None:
        """Increase the stream's credit as for a user with a steady rate, from the first message on."""
        if self._begun_ns is None:
            self._begun_ns = now_ns if self.read_bytes else None
            return
        self._allowed_bytes = _AHEAD_BYTES + (now_ns - self._begun_ns) * self._order.bytes_per_s // 1_000_000_000
        if self._allowed_bytes - self._told_bytes >= _STEP_BYTES:
            lane = self._lanes[self._turn]
            self._turn = (self._turn + 1) % len(self._lanes)
            lane.say()
            lane.hear()

    def _credit(self, read_bytes: int) -> Credit:
        self._told_bytes = self._allowed_bytes
        return Credit(read_bytes=read_bytes, stream=self._stream, allowed_bytes=self._allowed_bytes, epoch=_FAR, slot=0)

    def close(self) -> None:
        """Disconnect all lanes."""
        for lane in self._lanes:
            lane.close()
        self._lanes.clear()
