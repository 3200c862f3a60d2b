"""All streams of a daemon and the threads that serve them.

Covers: building a stream from a rank's order, its share of lanes and memory, starting and ending
it. Does not cover: which orders are allowed (emlio.session.daemon), reading
(emlio.daemon.reading.readers), sending (emlio.daemon.lanes.sender).
"""

from collections.abc import Callable
from functools import partial
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from emlio.clock import Clock
from emlio.daemon.access.connected_lanes import ConnectedLanes
from emlio.daemon.config import DaemonConfig
from emlio.daemon.datasets.plans import AgreedPlan
from emlio.daemon.datasets.served import ServedDataset
from emlio.daemon.lanes.group import LaneGroup, lane_limit
from emlio.daemon.lanes.sender import LaneSender
from emlio.daemon.limits import MOST_LANE_MESSAGES
from emlio.daemon.network.lane_socket import LaneSocket
from emlio.daemon.network.zap_thread import ZapThread
from emlio.daemon.reading.read_times import ReadTimes
from emlio.daemon.reading.readers import Readers
from emlio.daemon.reading.session_memory import ClientMemory, MemoryBudget, SessionMemory
from emlio.daemon.reading.stream import Stream, StreamFailure, StreamLimits, held_bytes
from emlio.errors import RefusedError, RemoteProtocolError
from emlio.reading.buffers import BufferPool
from emlio.reading.feed import Feed
from emlio.reading.message_planner import NO_OPENING, Opening, StreamPosition
from emlio.reading.sharing.shared_records import SharedMemory
from emlio.session.daemon import DaemonSession
from emlio.socket_buffers import send_buffer_bytes
from emlio.wire.control import Open
from emlio.wire.data import tail_room
from emlio.wire.limits import MAX_LANES, MAX_PAYLOAD_BYTES
from emlio.wire.seal import CIPHERS, StreamSeal
from emlio.wire.tuning import StreamTuning

__all__ = ["Streams", "opening_of", "paced_bytes"]

_MESSAGES_IN_MEMORY = 4
_LEAST_MESSAGE_BYTES = 64 << 10
"""The first message of each stream is read in any case; otherwise a rank might wait forever for
memory that other streams hold."""

_SESSION_BYTES = 36 << 10
_LANE_BYTES = 41 << 10
"""Memory that libzmq and this process take for a control connection and for a lane, queues and
buffers, measured with 10,000 connections."""

_PLANNED = 1 << 20
_LEAST_PLANNED = 1 << 10
"""Places planned in advance: for all streams, and at least for each. A place takes about 64
bytes."""

_TAIL_BYTES = 64 << 10
"""Room for the tail of a message of 8 MiB, enough for records of 1.1 KiB and more; of shorter ones two are under way."""

_READY_BYTES = 8 << 20
_MESSAGES_READY = 2
"""Bytes that a stream reads ahead: two messages per lane, and an amount for several lanes together, or for small messages;
two messages of 8 MiB with one lane. They have to outlast a pause of the reading threads, a few milliseconds. The network's
delay is covered by the kernel's buffers."""

_OPENING_BYTES = 128 << 10
_OPENING_ALONE_BYTES = 1 << 20
"""The size of messages until each lane has had the bytes of a usual message, or half of the messages
that may be under way on it. Smaller ones gain little: TCP sends its first 15 kB before any acknowledgement anyway. The path
of a single lane is short, and connections there are fast from the start."""

_PACED_PART = 2
_LEAST_PACED_BYTES = 256 << 10
"""A message of a single lane takes half a second at most, as far as the lane's pace is known: a rank hears only of whole
ones, and one that takes seconds looks as if it were lost. So messages are as in the opening until a pace is known."""

_MOST_TUNED_BYTES = 8 << 20
"""The largest size of messages that a rank may wish for: three must fit the bytes under way on a lane."""

_ABSENT_NAMED = 16


class Streams:
    """Owns the reading threads, the sending thread, and the memory between them.

    Used by the control thread.

    Attributes:
        sender: sends over the lanes, and counts what is sent.
        readers: read for the streams.
        budget: the bytes of records that all sessions hold.
        connected: counts the connected lanes.
        read_times: of messages, by the name of their dataset.
        data_port: the port that ranks connect lanes to.
        lane_bytes: the bytes that may be under way on each lane.
    """

    def __init__(
        self,
        config: DaemonConfig,
        socket: LaneSocket,
        zap_thread: ZapThread,
        clock: Clock,
        *,
        on_failure: Callable[[StreamFailure], None],
        on_fault: Callable[[int, RemoteProtocolError], None],
        shared: SharedMemory | None = None,
    ) -> None:
        """See the class.

        Args:
            config: the daemon's configuration.
            socket: for the lanes of all ranks.
            zap_thread: admits lanes of sessions.
            clock: for the age of checks.
            on_failure: called with a stream that ended by an error.
            on_fault: called with a session whose rank broke the protocol on its lanes.
            shared: the memory for records that several jobs need; less is left for messages.
        """
        self._config = config
        self._shared = shared or SharedMemory(0)
        self._clock = clock
        self._zap_thread = zap_thread
        self._pool = BufferPool(_with_tail(config.message_bytes(MAX_LANES)), config.memory // 4)
        self.budget = MemoryBudget(config.memory)
        self.data_port = socket.port
        self._most_messages = min(config.high_water_mark, MOST_LANE_MESSAGES)
        self.lane_bytes = lane_limit(config.message_bytes(1) + _TAIL_BYTES, send_buffer_bytes())
        self._groups: dict[str, int] = {}  # the most lanes that a stream of each session had
        self._lanes: dict[str, LaneGroup] = {}
        self._ordered = 0  # the sum of these numbers
        self._ahead_bytes = 0  # for what is requested ahead, once there is a stream that does so
        self._memories: dict[str, SessionMemory] = {}
        # Weak: an entry lives while a session of the client holds memory.
        self._clients: WeakValueDictionary[bytes, ClientMemory] = WeakValueDictionary()
        self.connected = ConnectedLanes()
        self.read_times: dict[str, ReadTimes] = {}
        self.sender = LaneSender(
            socket, on_failure=on_failure, on_fault=on_fault, on_lane_ended=self.connected.give_back
        )
        zap_thread.when_admitted(self._admitted)
        self._shared.on_change = self._set_aside
        self.readers = Readers(
            threads=config.readers,
            memory_bytes=lambda: self.budget.bound_bytes,
            on_ready=self.sender.signal,
            on_failure=on_failure,
        )

    def start(self) -> None:
        """Start the threads."""
        self.sender.start()
        self.readers.start()

    def begin(self, session: int, secret: bytes, owner: bytes) -> str | None:
        """Begin a session and admit its lanes; return its group, or None if the group is taken."""
        group = LaneGroup(
            session=session,
            secret=secret,
            limit_bytes=self.lane_bytes,
            most_messages=self._most_messages,
        )
        if group.label in self._groups or not self.connected.expect(group.label, owner):
            return None
        self._groups[group.label] = 0
        self._lanes[group.label] = group
        client = self._clients.get(owner) or ClientMemory()
        self._clients[owner] = client
        self._memories[group.label] = SessionMemory(self.budget, client)
        self._set_aside()
        self.sender.register(group)  # before any of its lanes can be admitted
        self._zap_thread.expect(group.label, secret)
        return group.label

    def end(self, group: str) -> None:
        """End a session: admit no more of its lanes, and close those that it has."""
        self._ordered -= self._groups.pop(group, 0)
        self._lanes.pop(group, None)
        if (memory := self._memories.pop(group, None)) is not None:
            memory.end()
        self._set_aside()
        self._zap_thread.forget(group)
        self.connected.forget(group)
        self.sender.close_group(group)

    def _admitted(self, group: str, number: int) -> str | None:
        """Count a lane that showed its token; return the reason if it is refused."""
        reason = self.connected.take(group)
        if reason is None:
            self.sender.admitted(group, number)
            self._set_aside()
        return reason

    def open(
        self,
        *,
        served: ServedDataset,
        agreed: AgreedPlan,
        machine: DaemonSession,
        order: Open,
        group: str,
        lanes: int,
        protection: str,
        label: str,
        tuning: StreamTuning,
    ) -> Stream:
        """Begin the stream that a rank ordered.

        Args:
            served: the dataset.
            agreed: the plan.
            machine: the session.
            order: the position to start from, and the shards.
            group: the session's group of lanes.
            lanes: the number of lanes it may use.
            protection: the protection of its payloads.
            label: the name of the session, for the log.
            tuning: the wishes of the rank for it.

        Raises:
            EmlioError: the order is impossible.
        """
        owned = _owned(agreed, order)
        self._count(group, lanes)
        if served.reads_ahead:
            self._ahead_bytes = self._config.ahead_bytes
        self._set_aside()
        agreed.plan.epoch(order.epoch, order.origin)  # an impossible position is refused here, not in a reading thread
        limits = StreamLimits(ready_bytes=0)
        self._limit(limits, tuning, lanes, order.message_bytes)
        feed = Feed(
            plan=agreed.plan,
            rank=machine.hello.rank,
            position=StreamPosition(epoch=order.epoch, origin=order.origin, slot=order.slot, end=order.end or None),
            owned=owned,
            local=agreed.local,
            engine=served.files,
            message_bytes=MAX_PAYLOAD_BYTES,
            clock=self._clock,
            opening=opening_of(lanes, limits.message_bytes, self._most_messages),
            most_bytes=partial(self._most_message_bytes, machine.hello.job, limits, self._lanes[group]),
            chunk=max(_PLANNED // max(self.readers.streams, 1), _LEAST_PLANNED),
        )
        stream = Stream(
            session=machine.session,
            stream=order.stream,
            feed=feed,
            pool=self._pool,
            memory=self._memories[group],
            limits=limits,
            label=label,
            dataset=served.key,
            name=served.name,
            job=machine.hello.job,
            seal=(
                StreamSeal(
                    cipher=protection, secret=machine.hello.lane_secret, session=machine.session, stream=order.stream
                )
                if protection in CIPHERS
                else None
            ),
            times=order.times,
            read_times=self.read_times.setdefault(served.name, ReadTimes()),
        )
        self.sender.attach(stream, group, lanes=lanes, credit=order.credit)
        if tuning.lanes:
            self.sender.tune(stream, lanes)
        self.readers.add(stream)
        return stream

    def _count(self, group: str, lanes: int) -> None:
        more = max(lanes - self._groups[group], 0)
        self._groups[group] += more
        self._ordered += more

    def tune(self, stream: Stream, group: str, tuning: StreamTuning, lanes: int) -> None:
        """Serve a stream in another way from now on, over so many lanes."""
        self._count(group, lanes)
        self._set_aside()
        self._limit(stream.limits, tuning, lanes)
        self.readers.tuned(stream)
        self.sender.tune(stream, lanes)

    def _limit(self, limits: StreamLimits, tuning: StreamTuning, lanes: int, most_bytes: int = 0) -> None:
        """Set a stream's limits as its rank wishes, within those of the daemon."""
        size_bytes = self._config.message_bytes(lanes)
        if tuning.message_bytes:
            # A size that the daemon was given is the largest.
            most = self._config.message_size or _MOST_TUNED_BYTES
            size_bytes = min(max(tuning.message_bytes, _LEAST_MESSAGE_BYTES), most)
        limits.message_bytes = min(size_bytes, max(most_bytes or MAX_PAYLOAD_BYTES, _LEAST_MESSAGE_BYTES))
        two = _MESSAGES_READY * _held(limits.message_bytes)
        usual = _READY_BYTES + lanes * two if lanes > 1 else max(_READY_BYTES, two)
        limits.ready_bytes = max(tuning.ready_bytes or usual, two)
        limits.paced = lanes == 1 and not self._config.message_size
        limits.readers = tuning.readers

    def _set_aside(self) -> None:
        """Subtract the memory of connections, of requests ahead, and of shared records from the budget, used or not.

        With thousands of connections it is a large part. May be called by any thread.
        """
        lanes = max(self._ordered, self.connected.lanes)
        connections = len(self._groups) * _SESSION_BYTES + lanes * _LANE_BYTES
        self.budget.set_aside(connections + self._ahead_bytes + self._shared.held_bytes)
        self._pool.keep(self.budget.bound_bytes // 4)

    def _most_message_bytes(self, job: str, limits: StreamLimits, lanes: LaneGroup) -> int:
        """Return a stream's size of messages: some of each stream of its job fit the job's part of the daemon's memory."""
        most = min(limits.message_bytes, self._part_of_message(job))
        return min(most, paced_bytes(lanes.pace)) if limits.paced else most

    def _part_of_message(self, job: str) -> int:
        return max(self.budget.bound_bytes // (_MESSAGES_IN_MEMORY * self.readers.parts(job)), _LEAST_MESSAGE_BYTES)

    def lanes_of(self, asked: int, world_size: int, tuned: int = 0) -> int:
        """Return the number of lanes for a rank.

        The ranks of a job share the link, so each gets its part of the number that one rank needs, unless it has `tuned`
        its own.
        """
        if self._config.lanes or tuned:
            return self._config.lanes or tuned
        return min(max(-(-asked // world_size), min(asked, 2)), MAX_LANES)

    def stop(self, stream: Stream) -> None:
        """End the stream; what is still being read for it is dropped."""
        self.readers.remove(stream)
        self.sender.detach(stream)

    def session_bytes(self, group: str) -> int:
        """Return the bytes of records that a session holds."""
        memory = self._memories.get(group)
        return memory.held_bytes if memory is not None else 0

    def close(self) -> None:
        """Stop all threads and close all lanes."""
        self.readers.close()
        self.sender.close()


def _owned(agreed: AgreedPlan, order: Open) -> npt.NDArray[np.bool_]:
    """Return the shards that the order names, as a mask; all of them must be held here."""
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
        raise RefusedError(
            f"a stream must name only shards of this daemon, it does not hold {', '.join(names)}", code="not-held"
        )
    return owned


def _with_tail(message_bytes: int) -> int:
    """Return the memory of a message with its tail, if its records have at least 64 bytes."""
    return message_bytes + tail_room(message_bytes // 64)


def _held(message_bytes: int) -> int:
    """Return the bytes for which such a message counts while it is held."""
    return held_bytes(message_bytes, message_bytes // 64)


def paced_bytes(pace: int) -> int:
    """Return the most bytes of a message on a lane of this pace in bytes a second; 0 if it is not known."""
    return max(pace // _PACED_PART, _LEAST_PACED_BYTES) if pace else _OPENING_ALONE_BYTES


def opening_of(lanes: int, message_bytes: int, most_messages: int) -> Opening:
    """Return the rule for the first messages of a stream.

    Half of the messages that may be under way on a lane stay for usual ones: if all were short, the
    lanes would be empty until the rank reports them as read.
    """
    size_bytes = _OPENING_BYTES if lanes > 1 else _OPENING_ALONE_BYTES
    lane_bytes = min(message_bytes, most_messages // 2 * size_bytes)
    return Opening(message_bytes=size_bytes, total_bytes=lanes * lane_bytes) if lane_bytes > size_bytes else NO_OPENING
