"""The agent on the storage host: carries out the requests of one training host, then ends.

Usage: python -m emlio_bench.race.storage.agent, with requests on standard input, as ssh starts it;
or with the arguments ADDRESS PORT, started by hand, with a token in EMLIO_BENCH_TOKEN.

Covers: the connection, its end: whatever happens to the training host, all servers end with it.
Does not cover: the requests (emlio_bench.race.storage.duties), the token
(emlio_bench.race.storage.by_hand).
"""

import os
import queue
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from threading import Thread
from types import FrameType
from typing import BinaryIO, Final

import msgspec

from emlio.errors import EmlioError
from emlio_bench.race.storage.by_hand import TOKEN, admit
from emlio_bench.race.storage.duties import Duties
from emlio_bench.race.storage.messages import Request, Said

__all__ = ["attend", "main"]

_ENDINGS: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


def attend(requests: BinaryIO, answers: BinaryIO, duties: Duties, interrupt: Callable[[], None]) -> None:
    """Answer requests, one per line, until there are no more.

    Args:
        requests: the requests.
        answers: the stream of answers.
        duties: carries out the requests.
        interrupt: called by another thread when the requests end, to end an order that this thread
            is carrying out.
    """
    waiting: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    Thread(target=_read, args=(requests, waiting, interrupt), name="emlio-requests", daemon=True).start()
    while line := waiting.get():
        answers.write(msgspec.json.encode(_answer(line, duties)) + b"\n")
        answers.flush()


def _read(requests: BinaryIO, waiting: "queue.SimpleQueue[bytes]", interrupt: Callable[[], None]) -> None:
    with suppress(OSError, ValueError):
        for line in requests:
            waiting.put(line)
    interrupt()
    waiting.put(b"")


def _interrupt() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def _answer(line: bytes, duties: Duties) -> Said:
    try:
        answer = duties.carry_out(msgspec.json.decode(line, type=Request))
    except msgspec.MsgspecError as error:
        return Said(problem=f"a request must be one of this version, got {line[:80]!r}: {error}")
    except (EmlioError, OSError) as error:
        return Said(problem=str(error))
    return Said(answer=msgspec.Raw(msgspec.json.encode(answer)))


def main(argv: Sequence[str], environment: Mapping[str, str]) -> None:
    """Attend to one training host."""
    for number in _ENDINGS:
        signal.signal(number, _end)
    try:
        if argv:
            address, port = argv
            with admit(address, int(port), environment.get(TOKEN, "")) as connection:
                requests, answers = connection.makefile("rb"), connection.makefile("wb")
                with Duties(environment, reached_at=connection.getsockname()[0]) as duties:
                    _attend(requests, answers, duties)
            return
        # Python closes sys.stdin when it ends, and aborts if a thread is still reading from it.
        requests = os.fdopen(os.dup(0), "rb")
        # Whatever a program writes to standard output must not come between the answers.
        answers = os.fdopen(os.dup(1), "wb")
        os.dup2(2, 1)
        with Duties(environment, reached_at=_reached_at(environment)) as duties:
            _attend(requests, answers, duties)
    except EmlioError as error:
        raise SystemExit(f"the agent: {error}") from error
    except BrokenPipeError:
        return


def _attend(requests: BinaryIO, answers: BinaryIO, duties: Duties) -> None:
    try:
        attend(requests, answers, duties, _interrupt)
    finally:
        _ignore_endings()


def _reached_at(environment: Mapping[str, str]) -> str:
    """Return the server's address in sshd's SSH_CONNECTION: client, port, server, port."""
    words = environment.get("SSH_CONNECTION", "").split()
    return words[2] if len(words) == 4 else ""


def _end(number: int, frame: FrameType | None) -> None:
    _ignore_endings()
    raise SystemExit(0)


def _ignore_endings() -> None:
    """Let no further signal break off the clean-up, which ends all servers."""
    for number in _ENDINGS:
        signal.signal(number, signal.SIG_IGN)


if __name__ == "__main__":
    main(sys.argv[1:], os.environ)
