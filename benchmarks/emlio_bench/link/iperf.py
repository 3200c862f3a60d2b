"""iperf3 between two ends: a server and a client, and the client's report."""

import shutil
from collections.abc import Sequence
from typing import Final

import msgspec

from emlio.errors import TransportError
from emlio_bench.link.contract import HERE, LinkEnd
from emlio_bench.processes.child import Child

__all__ = ["Ended", "Processor", "Total", "find_iperf", "read_end", "run_iperf"]

_ANSWER_S: Final = 30.0


class Total(msgspec.Struct, frozen=True):
    """The sum of all streams in one direction; `retransmits` are known to the sender only."""

    seconds: float = 0.0
    bytes: int = 0
    retransmits: int | None = None


class Processor(msgspec.Struct, frozen=True):
    """The processor time of both sides, in percent of the test's length."""

    host_total: float
    remote_total: float


class Ended(msgspec.Struct, frozen=True):
    """The last part of a report."""

    sum_received: Total
    sum_sent: Total = Total()
    cpu_utilization_percent: Processor | None = None


class _Report(msgspec.Struct, frozen=True):
    end: Ended


def find_iperf() -> str | None:
    """Return the path of iperf3, or None."""
    return shutil.which("iperf3")


def read_end(said: bytes) -> Ended:
    """Read the output of `iperf3 -J`."""
    try:
        return msgspec.json.decode(said, type=_Report).end
    except msgspec.MsgspecError as error:
        raise TransportError(f"iperf3 must report a whole test as JSON: {error}") from error


def run_iperf(
    program: str,
    words: Sequence[str],
    *,
    server: LinkEnd = HERE,
    client: LinkEnd = HERE,
    warm_up_s: int,
    span_s: int,
) -> bytes:
    """Run one test, and return the client's report.

    Args:
        program: path of iperf3.
        words: more arguments of the client.
        server: end of the server.
        client: end of the client.
        warm_up_s: whole seconds before the test.
        span_s: whole seconds of the test.
    """
    port = _free_port(server)
    listening = [program, "-s", "-1", "-B", server.listen, "-p", str(port), "--forceflush"]
    with Child("iperf3 -s", server.command(listening)) as listener:
        while b"listening" not in (listener.line(_ANSWER_S) or b"listening"):
            continue
        asking = [program, "-c", server.address, "-p", str(port), "-t", str(span_s), "-O", str(warm_up_s), "-J", *words]
        with Child("iperf3 -c", client.command(asking)) as asker:
            return asker.rest(warm_up_s + span_s + _ANSWER_S)


def _free_port(end: LinkEnd) -> int:
    with end.make_socket() as probe:
        probe.bind((end.listen, 0))
        return int(probe.getsockname()[1])
