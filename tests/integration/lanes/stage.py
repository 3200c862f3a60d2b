"""The daemon's lanes with ranks' sockets at the other ends, for tests of the thread that sends."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from queue import SimpleQueue

import zmq

from emlio.clock import SystemClock
from emlio.daemon.access.gate import Gate
from emlio.daemon.config import Endpoint
from emlio.daemon.lanes.group import LaneGroup
from emlio.daemon.lanes.sender import LaneSender
from emlio.daemon.network.transport import Network
from emlio.daemon.network.zap_thread import ZapThread
from emlio.daemon.reading.readers import Readers
from emlio.daemon.reading.stream import Stream, StreamFailure
from emlio.errors import RemoteProtocolError
from emlio.wire.credit import Credit, encode_credit
from emlio.wire.seal import lane_group, lane_name, lane_token, new_secret
from emlio_testing.daemon_streams import FOR_EVER_S, MESSAGE, start_readers
from emlio_testing.data_messages import DataMessage, read_data

NO_END = Credit(read_bytes=0, stream=1, allowed_bytes=1 << 60, epoch=1 << 40)
FRAME = MESSAGE + 100
"""A little more than a message's frame has."""


class Peer:
    """A rank's end of one lane."""

    def __init__(self, context: "zmq.Context[zmq.Socket[bytes]]", port: int, secret: bytes, number: int) -> None:
        self.socket = context.socket(zmq.DEALER)
        for option, value in (
            (zmq.LINGER, 0),
            (zmq.RECONNECT_IVL, -1),
            (zmq.RCVHWM, 1),
            (zmq.RCVTIMEO, FOR_EVER_S * 1000),
            (zmq.ROUTING_ID, lane_name(secret, number)),
            (zmq.PLAIN_USERNAME, f"{lane_group(secret)}.{number}".encode("ascii")),
            (zmq.PLAIN_PASSWORD, lane_token(secret, number)),
        ):
            self.socket.setsockopt(option, value)
        self.number = number
        self.read_bytes = 0
        self.socket.connect(f"tcp://127.0.0.1:{port}")

    def credit(self, **fields: int) -> None:
        self.socket.send(encode_credit(Credit(read_bytes=self.read_bytes, **fields)))

    def read(self, *, answer: bool = True, timeout_s: float = FOR_EVER_S) -> DataMessage | None:
        """The next message, credited at once; None if none comes."""
        if not self.socket.poll(round(timeout_s * 1000)):
            return None
        message = read_data(self._receive)
        if answer:
            self.credit()
        return message

    def _receive(self) -> bytes:
        data = self.socket.recv()
        self.read_bytes += len(data)
        return data


class Stage:
    """A daemon's lanes, and ranks for them."""

    def __init__(self, network: Network, zap_thread: ZapThread, context: "zmq.Context[zmq.Socket[bytes]]") -> None:
        self.faults: SimpleQueue[tuple[int, RemoteProtocolError]] = SimpleQueue()
        self.failures: SimpleQueue[StreamFailure] = SimpleQueue()
        self.zap_thread = zap_thread
        self.socket = network.lanes(Endpoint(host="127.0.0.1", port=0), 65_535)
        self.sender = LaneSender(
            self.socket, on_failure=self.failures.put, on_fault=lambda *fault: self.faults.put(fault)
        )
        zap_thread.when_admitted(self.sender.admitted)
        self.sender.start()
        self.context = context
        self.peers: list[Peer] = []

    def expect(self, session: int, *, limit_bytes: int = 4 * FRAME) -> bytes:
        secret = new_secret()
        self.sender.register(LaneGroup(session=session, secret=secret, limit_bytes=limit_bytes))
        assert self.zap_thread.expect(lane_group(secret), secret)
        return secret

    def connect(self, secret: bytes, *numbers: int) -> list[Peer]:
        made = [Peer(self.context, self.socket.port, secret, number) for number in numbers]
        self.peers += made
        return made

    def attach(self, stream: Stream, secret: bytes, lanes: int, credit: Credit = NO_END) -> None:
        self.sender.attach(stream, lane_group(secret), lanes=lanes, credit=credit)


@contextmanager
def open_stage() -> Iterator[Stage]:
    with ExitStack() as undo:
        network = Network(Endpoint(host="127.0.0.1", port=0))
        undo.callback(network.close)
        zap_thread = ZapThread(Gate(None), network.authentication_socket(), SystemClock())
        undo.callback(zap_thread.close)
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        context.set(zmq.MAX_SOCKETS, 2000)
        undo.callback(context.term)
        stage = Stage(network, zap_thread, context)
        undo.callback(stage.sender.close)
        yield stage
        for peer in stage.peers:
            peer.socket.close(linger=0)
        assert stage.failures.empty()


@contextmanager
def reading(stage: Stage, *streams: Stream, memory_bytes: int = 100 * MESSAGE) -> Iterator[Readers]:
    with start_readers(
        threads=1, on_ready=stage.sender.signal, on_failure=stage.failures.put, memory_bytes=lambda: memory_bytes
    ) as readers:
        for stream in streams:
            readers.add(stream)
        yield readers
        for stream in streams:
            readers.remove(stream)
            stage.sender.detach(stream)
