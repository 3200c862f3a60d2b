"""What becomes of lanes whose ranks take nothing."""

import time

import zmq
from zmq.utils.monitor import recv_monitor_message

from emlio.daemon.limits import UNREAD_MS
from emlio.daemon.network.lane_socket import set_lane_options

_UNREAD_MS = 500
_SOON_MS = 10_000
_FRAME = bytes(1 << 20)


def _router(context: "zmq.Context[zmq.Socket[bytes]]") -> "zmq.Socket[bytes]":
    router = context.socket(zmq.ROUTER)
    set_lane_options(router)
    return router


def test_the_kernel_hangs_up_on_who_takes_nothing() -> None:
    with (
        zmq.Context() as context,
        context.socket(zmq.REP) as gate,
        _router(context) as router,
        context.socket(zmq.DEALER) as lane,
    ):
        gate.bind("inproc://zeromq.zap.01")
        assert router.getsockopt(zmq.TCP_MAXRT) == UNREAD_MS
        router.setsockopt(zmq.TCP_MAXRT, _UNREAD_MS)
        router.setsockopt(zmq.LINGER, 0)
        with router.get_monitor_socket(zmq.EVENT_DISCONNECTED) as events:
            port = router.bind_to_random_port("tcp://127.0.0.1")
            lane.setsockopt(zmq.LINGER, 0)
            lane.setsockopt(zmq.ROUTING_ID, b"lane")
            lane.setsockopt(zmq.PLAIN_USERNAME, b"lane")
            lane.setsockopt(zmq.RCVHWM, 1)
            lane.setsockopt(zmq.RECONNECT_IVL, -1)
            lane.connect(f"tcp://127.0.0.1:{port}")
            lane.send(b"here")
            request = gate.recv_multipart()[1]
            gate.send_multipart((b"1.0", request, b"200", b"OK", b"", b""))
            assert router.recv_multipart() == [b"lane", b"here"]
            began = time.monotonic()
            for _ in range(64):
                router.send_multipart((b"lane", _FRAME), copy=False)
            assert events.poll(_SOON_MS), "it is still connected"
            assert recv_monitor_message(events)["event"] == zmq.EVENT_DISCONNECTED
            assert time.monotonic() - began >= _UNREAD_MS / 1000
            router.disable_monitor()


def test_lanes_have_no_heartbeats_whose_timers_libzmq_would_walk_over() -> None:
    with zmq.Context() as context, _router(context) as router:
        assert router.getsockopt(zmq.HEARTBEAT_IVL) == 0
