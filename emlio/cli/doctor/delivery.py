"""The records themselves: whether they come, how fast over one connection and several, and what holds them up."""

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from emlio.cli.doctor.finding import Finding, Verdict
from emlio.errors import EmlioError
from emlio.receiver.addresses.security import Security
from emlio.receiver.loader import EmlioLoader
from emlio.receiver.setup.recovery import Recovery
from emlio.receiver.stats import LoaderStats
from emlio.receiver.tuning.tuning import Tuning
from emlio.status.verdict import NEXT_STEPS, Bound
from emlio.units import counted, format_duration, format_size

__all__ = ["check_delivery"]

_CONNECTIONS: Final = (1, 4, 16)
_WINDOW_BYTES: Final = 128 << 20
_BATCH_BYTES: Final = 1 << 20
_PATIENCE: Final = 3
"""Records may take so many times as long as an answer: a disk may be cold."""

_MORE: Final = 1.2
"""With so much more by several connections than by one, one is not enough."""

_POOR_BYTES: Final = 12_500_000
"""A second, all connections together: 100 Mbit/s. Where records lie, links are faster."""

_LATE_NS: Final = 5_000_000_000

_SETTLES_NS: Final = 500_000_000


def check_delivery(
    address: str, security: Security, *, remote: bool, record_bytes: int, over_ns: int, timeout_ns: int, about: str
) -> Iterator[Finding]:
    """Yield findings on the records of a dataset, which are read as training reads them.

    Args:
        address: as for a loader.
        security: keys and encryption.
        remote: whether daemons send them.
        record_bytes: the usual size of a record; 0 if that is not known.
        over_ns: how long for each number of connections.
        timeout_ns: how long to wait for records.
        about: whom the findings are about.
    """
    batch_records = max(_BATCH_BYTES // record_bytes, 1) if record_bytes else 64
    rates: dict[int, float] = {}
    last: LoaderStats | None = None
    for lanes in _CONNECTIONS if remote else (0,):
        try:
            rates[lanes], last = _read(address, security, lanes, batch_records, over_ns, timeout_ns)
        except EmlioError as error:
            yield Finding(check="records", about=about, verdict=Verdict.FAIL, evidence=str(error))
            return
        if len(rates) == 1:
            first = format_duration(last.first_batch_ns or 0)
            yield Finding(
                check="records",
                about=about,
                verdict=Verdict.OK if (last.first_batch_ns or 0) < _LATE_NS else Verdict.WARN,
                evidence=f"they come; the first {batch_records:,} after {first}",
            )
    yield (
        _bandwidth(about, rates)
        if remote
        else Finding(
            check="reading", about=about, verdict=Verdict.OK, evidence=f"{format_size(rates[0])}/s, in random order"
        )
    )
    if last is not None:
        yield _bound(about, last)


def _bandwidth(about: str, rates: dict[int, float]) -> Finding:
    told = ", ".join(f"{counted(lanes, 'connection')} {format_size(rate)}/s" for lanes, rate in rates.items())
    one, most = rates[_CONNECTIONS[0]], max(rates.values())
    if most < _POOR_BYTES:
        mend = "measure the path without EMLIO (iperf3), and its parts (ethtool NAME | grep Speed): this is less than 100 Mbit/s"
        return Finding(check="bandwidth", about=about, verdict=Verdict.WARN, evidence=told, mend=mend)
    if most > _MORE * one:
        return Finding(
            check="bandwidth",
            about=about,
            verdict=Verdict.NOTE,
            evidence=told,
            mend="a loader uses as many as the path needs; larger TCP buffers on both hosts make fewer do",
        )
    return Finding(check="bandwidth", about=about, verdict=Verdict.OK, evidence=told)


def _bound(about: str, stats: LoaderStats) -> Finding:
    bound = stats.waits.bound
    advice = NEXT_STEPS[bound] if bound in (Bound.STORAGE, Bound.AWAY, Bound.RECEIVING) else ""
    return Finding(
        check="bound by",
        about=about,
        verdict=Verdict.NOTE if advice else Verdict.OK,
        evidence=f"{bound.value}, when everything that comes is taken",
        mend=advice,
    )


def _read(
    address: str, security: Security, lanes: int, batch_records: int, over_ns: int, timeout_ns: int
) -> tuple[float, LoaderStats]:
    """Read for a while over so many connections; return bytes a second, and the figures of that time."""
    with EmlioLoader(
        address,
        batch_size=batch_records,
        raw=True,
        rank=0,
        world_size=1,
        to="numpy",
        tune=Tuning(window_bytes=_WINDOW_BYTES, lanes=lanes),
        energy=False,
        security=security,
        recovery=Recovery(timeout=_PATIENCE * timeout_ns / 1e9, on_error="skip"),
    ) as loader:
        before, began_ns = None, 0
        settled_ns = time.monotonic_ns() + _SETTLES_NS
        while True:
            for _ in loader:
                now_ns = time.monotonic_ns()
                if before is None and now_ns >= settled_ns:
                    before, began_ns = loader.stats(), now_ns
                elif before is not None and now_ns >= began_ns + over_ns:
                    stats = loader.stats()
                    change = replace(stats.since(before), first_batch_ns=stats.first_batch_ns)
                    return (change.received_bytes + change.local_bytes) * 1e9 / (now_ns - began_ns), change
