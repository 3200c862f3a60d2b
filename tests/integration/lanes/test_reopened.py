"""A rank that reads nothing and opens its stream again and again, over new lanes each time; then it reads everything.

Covers: what the daemon holds for it, and that the last stream goes on once the rank reads. Does not cover: the rules
(test_daemon_session_memory).
"""

from contextlib import ExitStack
from pathlib import Path

import zmq

from emlio.daemon.config import DaemonConfig, DatasetSource, Endpoint
from emlio.daemon.service import Daemon
from emlio.wire.control import Goodbye, Opened
from emlio.wire.credit import Credit, encode_credit
from emlio.wire.seal import lane_group
from emlio_testing.attacks.insiders import hello_of
from emlio_testing.data_messages import read_data
from emlio_testing.datasets import make_dataset
from emlio_testing.processes import settles
from tests.e2e.attacks.insiders import Insider, lane_in

MEMORY, MESSAGE = 16 << 20, 1 << 20
STREAMS = 30
SETTLED_S = 20.0
TAKEN = 4 * MESSAGE
"""More than a connection takes of a rank that does not read."""


def test_streams_opened_again_keep_the_sessions_share_and_the_last_one_goes_on(tmp_path: Path) -> None:
    make_dataset(tmp_path, records=256, shards=2, payload=64_000)
    config = DaemonConfig(
        data=(DatasetSource(name="one", directory=tmp_path),),
        bind=Endpoint(host="127.0.0.1", port=0),
        message_size=MESSAGE,
        memory=MEMORY,
        lanes=2,
    )
    with (
        Daemon(config) as daemon,
        zmq.Context() as context,
        context.socket(zmq.DEALER) as control,
        ExitStack() as stack,
    ):
        control.setsockopt(zmq.LINGER, 0)
        control.connect(daemon.endpoint)
        rank = Insider(control)
        rank.greet(hello_of("one", protections=("clear",)))
        rank.agree()
        streams = daemon._control._streams
        group = lane_group(rank.secret)
        memory = streams._memories[group]
        lanes: list[zmq.Socket[bytes]] = []
        read_bytes = [0] * 2 * STREAMS
        poller = zmq.Poller()
        for number in range(1, 1 + STREAMS):
            for place in range(len(lanes), len(lanes) + 2):
                lane = lane_in(context, streams.data_port, rank.secret, place)
                stack.callback(lane.close)
                lanes.append(lane)
                poller.register(lane, zmq.POLLIN)
                lane.send(allow_all(0, number))
            enough = streams.sender.unread_bytes(group) + TAKEN
            rank.ask(rank.order(number, lanes=2), Opened)
            # Either the stream waits for those before it, or its lanes have more than their connections take.
            assert settles(
                lambda enough=enough: memory._wake is not None or streams.sender.unread_bytes(group) >= enough,
                SETTLED_S,
            )
            assert streams.budget.held_bytes <= MEMORY + 2 * MESSAGE
        assert settles(lambda: streams.connected.lanes == 2 * STREAMS, SETTLED_S)
        bound_bytes = streams.budget.bound_bytes
        idle = lane_in(context, streams.data_port, rank.secret, 2 * STREAMS)
        stack.callback(idle.close)
        idle.send(allow_all(0, 1))
        assert settles(lambda: streams.budget.bound_bytes < bound_bytes, SETTLED_S), (
            "a lane without a stream takes some"
        )
        newest = 0
        while newest < STREAMS:
            ready = poller.poll(SETTLED_S * 1000)
            assert ready, f"after stream {newest} nothing comes, though all was read"
            for lane, _ in ready:
                place = lanes.index(lane)

                def receive(place: int = place) -> bytes:
                    data = lanes[place].recv()
                    read_bytes[place] += len(data)
                    return data

                newest = max(newest, read_data(receive).header.stream)
                lane.send(allow_all(read_bytes[place], STREAMS))
        rank.send(Goodbye(session=rank.session))
        assert settles(lambda: not streams.connected.lanes, SETTLED_S), (
            "lanes count until they have ended, and no longer"
        )


def allow_all(read_bytes: int, stream: int) -> bytes:
    """Credit for whatever a stream has."""
    return encode_credit(Credit(read_bytes=read_bytes, stream=stream, allowed_bytes=1 << 60, epoch=1 << 40))
