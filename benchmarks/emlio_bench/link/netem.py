"""The kernel's own packet delay, netem."""

import shutil
import subprocess
from functools import cache
from typing import Final

import msgspec

from emlio.errors import TransportError
from emlio_bench.link.contract import ENTER, LineCounts, LinkSpec

__all__ = ["netem_words", "read_line_counts", "why_no_netem"]

_PACKET_BYTES: Final = 1500
_LEAST_PACKETS: Final = 1000
_ETHERNET_BYTES: Final = 14
_PROBE_S: Final = 10.0
_NEEDED: Final = ("tc", "ip", "unshare", ENTER)


class _Qdisc(msgspec.Struct, frozen=True):
    kind: str
    bytes: int = 0
    packets: int = 0
    drops: int = 0


def netem_words(spec: LinkSpec) -> list[str]:
    """Return the arguments that follow `tc qdisc add dev DEVICE root`."""
    # The limit counts packets, which may stand for many segments. It bounds memory rather than
    # emulating a router's buffer.
    words = ["netem", "limit", str(max(spec.held_bytes // _PACKET_BYTES, _LEAST_PACKETS))]
    words += ["delay", _microseconds(spec.delay_ns)]
    if spec.rate_bytes_per_s is not None:
        words += ["rate", f"{spec.rate_bytes_per_s * 8}bit"]
    return words


def read_line_counts(said: bytes) -> LineCounts:
    """Read the counts printed by `tc -s -j qdisc show dev DEVICE`.

    tc does not distinguish lost packets from packets dropped at the limit.

    Args:
        said: output of tc.
    """
    try:
        qdiscs = msgspec.json.decode(said, type=list[_Qdisc])
    except msgspec.MsgspecError as error:
        raise TransportError(f"tc must report what it counted as JSON: {error}") from error
    found = next((qdisc for qdisc in qdiscs if qdisc.kind == "netem"), None)
    if found is None:
        raise TransportError(f"tc must report what netem counted, it named {[qdisc.kind for qdisc in qdiscs]}")
    return LineCounts(
        packets=found.packets,
        wire_bytes=found.bytes - _ETHERNET_BYTES * found.packets,
        overflowed_packets=found.drops,
    )


def why_no_netem() -> str | None:
    """Return the reason why the kernel cannot delay packets for this process, or None if it can.

    The first call tries it in a namespace of its own.
    """
    missing = [program for program in _NEEDED if shutil.which(program) is None]
    if missing:
        return f"needs the programs {', '.join(missing)}"
    return _try(shutil.which("unshare") or "", shutil.which("tc") or "")


@cache
def _try(unshare: str, tc: str) -> str | None:
    words = [unshare, "--net", tc, "qdisc", "add", "dev", "lo", "root", *netem_words(LinkSpec(rtt_ns=2_000_000))]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=_PROBE_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"needs tc to work: {error}"
    return None if done.returncode == 0 else f"needs tc to know netem: {done.stderr.strip() or done.returncode}"


def _microseconds(duration_ns: int) -> str:
    return f"{duration_ns / 1000:.3f}us"
