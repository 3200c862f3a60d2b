"""The daemon's side of a session, with a rank that says anything at any time.

byte 0        the state to begin in
then          one step after the other: a message, time, or what the daemon's shell found out
"""

from collections.abc import Sequence
from typing import get_args

from emlio.errors import LocalProtocolError
from emlio.session.daemon import DaemonSession
from emlio.session.instructions import (
    DaemonInstruction,
    Ended,
    Judge,
    Send,
    StartStream,
    StopStream,
)
from emlio.session.states import DaemonState
from emlio.wire.control import ControlMessage, decode_control, encode_control
from emlio.wire.limits import MAX_SHARDS
from emlio_testing.session_states import daemon_in
from tests.fuzz.draws import Draws
from tests.fuzz.target import Target

__all__ = ["TARGET", "fuzz"]

_KINDS = get_args(ControlMessage)


def fuzz(data: bytes) -> None:
    """Whatever the rank says, nothing is raised, one message at most is answered, and streams begin and end in turn."""
    draws = Draws(data)
    daemon = daemon_in(draws.choice(tuple(DaemonState)))
    shell = _Shell(running=daemon.state is DaemonState.STREAMING, over=daemon.state is DaemonState.OVER)
    now_ns = 0
    while draws.left:
        step = draws.byte()
        if step < 160:
            message = draws.message(_KINDS)
            shell.does(daemon, daemon.receive(message, now_ns) if message is not None else [])
        elif step < 190:
            now_ns += draws.number() ** 2 % (1 << 36)
            shell.does(daemon, daemon.tick(now_ns))
        elif daemon.state is not DaemonState.OVER:
            shell.does(daemon, _found_out(daemon, draws))


def _found_out(daemon: DaemonSession, draws: Draws) -> list[DaemonInstruction]:
    judging = daemon.state is DaemonState.JUDGING
    try:
        match draws.byte() % 16:
            case 0 | 1 | 2 | 3:
                return daemon.agree()
            case 4 | 5 | 6 | 7:
                return daemon.ask_catalog()
            case 8 | 9 | 10:
                return daemon.opened(draws.number(), 2)
            case 11:
                return daemon.refuse("plan-refused", "another digest came out here")
            case 12:
                return daemon.drain()
            case 13:
                return daemon.end("the rank has gone")
            case 14 | 15:
                daemon.answered(draws.number())
                return []
            case _:
                return []
    except LocalProtocolError:
        assert not judging, "an offer that is judged may be answered"
        return []


class _Shell:
    """What the instructions so far amount to."""

    def __init__(self, *, running: bool, over: bool) -> None:
        self._running = running
        self._over = over

    def does(self, daemon: DaemonSession, instructions: Sequence[DaemonInstruction]) -> None:
        assert sum(isinstance(instruction, Send) for instruction in instructions) <= 1
        for instruction in instructions:
            assert not self._over, f"nothing may happen after the end, got {instruction}"
            match instruction:
                case Send(message=message):
                    # A stream's number is the shell's own; what it may say wrong is not this machine's fault.
                    assert encode_control(message)
                    if type(message).__name__ != "Opened":
                        assert decode_control(encode_control(message)) == message
                case Judge(rows=rows):
                    assert rows is None or len(rows) <= MAX_SHARDS
                case StartStream():
                    assert not self._running, "a stream must be stopped before another is started"
                    self._running = True
                case StopStream():
                    assert self._running, "only a stream that runs can be stopped"
                    self._running = False
                case Ended():
                    assert not self._running, "a stream must be stopped before its session ends"
                    self._over = True
                case _:
                    pass
        assert self._over == (daemon.state is DaemonState.OVER)


TARGET = Target(fuzz=fuzz, raises=(), most_bytes=1024)
