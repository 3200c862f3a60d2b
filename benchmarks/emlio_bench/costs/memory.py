"""Memory of both sides while a consumer pauses, and of a rank whose user is slow."""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from emlio.daemon.config import DaemonConfig, DatasetSource
from emlio.errors import TransportError
from emlio.units import format_size
from emlio_bench.costs.reading import ReadOrder, read_in_process
from emlio_bench.costs.settings import CostsSettings
from emlio_bench.harness.data import link_copies, prepared
from emlio_bench.harness.meter import Resident, read_resident
from emlio_bench.harness.results import MIB, Figure, figure, rtt_text
from emlio_bench.harness.scenario import MESSAGE_BYTES, DataSpec
from emlio_bench.harness.sides import ANSWER_S, RunningDaemon, open_rank, running_daemon
from emlio_bench.link.choice import link_of
from emlio_bench.processes.child import Child, say, start_worker

__all__ = ["consume", "pause_figures", "slow_figures"]

_RECORD_BYTES: Final = 100_000
_FRAME_BYTES: Final = 16
_BATCH: Final = 256
_SAMPLE_S: Final = 0.1
_BATCHES_HELD: Final = 3
"""The batch the consumer has, the one being assembled, and the one being taken apart."""
_IN_LIBZMQ: Final = 2
"""Messages of a lane in libzmq: one being read by its thread, one in the pipe."""
_COPIES: Final = 5
_WORDS: Final = {"before": "before the pause", "during": "during it", "after": "after it"}


class _Order(msgspec.Struct, frozen=True, kw_only=True):
    address: str
    daemon_pid: int
    pause_ns: int


class _Phase(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    lanes: int = 0
    window_bytes: int = 0
    records: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Watched:
    rank: dict[str, list[Resident]]
    daemon: dict[str, list[Resident]]
    stopped: _Phase
    records: int


def consume(orders: bytes) -> None:
    """Read an epoch and stop half way; the program of the rank."""
    order = msgspec.json.decode(orders, type=_Order)
    with open_rank(order.address, _BATCH) as loader:
        # Both processes are looked at from here, at a time when no data flow yet.
        say([read_resident(os.getpid()), read_resident(order.daemon_pid)])
        half, records = len(loader) // 2, 0
        for number, batch in enumerate(loader):
            records += len(batch["record"])
            if number == 0:
                say(_Phase(name="before"))
            if number == half:
                stats = loader.stats()
                say(_Phase(name="during", lanes=stats.lanes, window_bytes=stats.window_bytes))
                time.sleep(order.pause_ns / 1e9)
                say(_Phase(name="after"))
        say(_Phase(name="done", records=records))


def pause_figures(settings: CostsSettings) -> Iterator[Figure]:
    """Yield the memory of both sides on top of what they had at rest, with the documented bounds."""
    data = DataSpec(kind="opaque", record_bytes=_RECORD_BYTES, records=200 if settings.quick else 20_000)
    pause_ns = 500_000_000 if settings.quick else 60_000_000_000
    with prepared(data, settings.data) as directory:
        linked = link_copies(directory, _COPIES)
        watched = _watch(linked, pause_ns)
    if watched.records != data.records * _COPIES:
        raise TransportError(f"the epoch must have {data.records * _COPIES} records, got {watched.records}")
    daemon = DaemonConfig(data=(DatasetSource(name="bench", directory=linked),))
    lanes, window_bytes = watched.stopped.lanes, watched.stopped.window_bytes
    message = max(daemon.message_bytes(1), MESSAGE_BYTES, _RECORD_BYTES + _FRAME_BYTES)
    batch_bytes = _BATCH * (_RECORD_BYTES + _FRAME_BYTES)
    note = (
        f"Own pages on top of those at rest, every {_SAMPLE_S:g} s; the consumer stopped for {pause_ns / 1e9:g} s half way "
        f"through {format_size(data.payload_bytes * _COPIES)}.\n"
        f"Rank's bound: window {format_size(window_bytes)} + {lanes} lane(s) x {_IN_LIBZMQ} x message {format_size(message)} + "
        f"{_BATCHES_HELD} batches of {format_size(batch_bytes)}. Daemon's bound: --memory {format_size(daemon.memory)} + "
        f"({daemon.readers} readers + {lanes} lane(s)) x message."
    )
    bounds = {
        "rank": window_bytes + lanes * _IN_LIBZMQ * message + _BATCHES_HELD * batch_bytes,
        "daemon": daemon.memory + (daemon.readers + lanes) * message,
    }
    for side, seen in (("rank", watched.rank), ("daemon", watched.daemon)):
        (rest,) = seen["rest"]
        yield figure(f"{side}, when nothing flowed", "MiB", (rest.own_bytes / MIB,))
        for phase, words in _WORDS.items():
            more = ((one.own_bytes - rest.own_bytes) / MIB for one in seen[phase])
            yield figure(f"{side}, more {words}", "MiB", more, note, at_most=bounds[side] / MIB, every=True)


def _watch(directory: Path, pause_ns: int) -> _Watched:
    with running_daemon(directory) as daemon:
        order = _Order(address=daemon.address, daemon_pid=daemon.pid, pause_ns=pause_ns)
        with start_worker("cost-pause", order) as rank:
            return _watch_phases(rank, daemon, pause_ns)


def _watch_phases(rank: Child, daemon: RunningDaemon, pause_ns: int) -> _Watched:
    at_rest = rank.hear(list[Resident], ANSWER_S)
    seen: tuple[dict[str, list[Resident]], ...] = tuple({"rest": [one]} for one in at_rest)
    phase = stopped = rank.hear(_Phase, ANSWER_S)
    quiet_s, since = 10 * (pause_ns / 1e9 + ANSWER_S), time.monotonic()
    while phase.name != "done":
        for pid, of in zip((rank.pid, daemon.pid), seen, strict=True):
            of.setdefault(phase.name, []).append(read_resident(pid))
        line = rank.line(_SAMPLE_S)
        if line is not None:
            phase, since = msgspec.json.decode(line, type=_Phase), time.monotonic()
            stopped = phase if phase.name == "during" else stopped
        elif time.monotonic() - since > quiet_s:
            raise TransportError(f"the rank must get through phase {phase.name!r} within {quiet_s:g} s")
    rank.rest(ANSWER_S)
    return _Watched(rank=seen[0], daemon=seen[1], stopped=stopped, records=phase.records)


_LANES: Final = (11, 38)
_SLOW_BATCH: Final = 64
_BYTES_PER_S: Final = 200_000_000
_PREFETCH: Final = "128MiB"
_SLOWER: Final = 4
"""The rank may take so many times longer than planned."""


def slow_figures(settings: CostsSettings) -> Iterator[Figure]:
    """Yield the memory of a rank over a link, by its number of lanes."""
    data = DataSpec(kind="opaque", record_bytes=_RECORD_BYTES, records=640 if settings.quick else 6_000)
    seconds = 1 if settings.quick else 10
    note = (
        f"Resident memory of the rank's process. Its user takes {format_size(_BYTES_PER_S)} a second for {seconds} s, in batches "
        f"of {_SLOW_BATCH} records of {format_size(_RECORD_BYTES)}; prefetch {_PREFETCH}; no keys."
    )
    with prepared(data, settings.data) as directory, link_of(settings.rtt) as link:
        assert link is not None
        for lanes in (1, 3) if settings.quick else _LANES:
            with running_daemon(directory, ["--lanes", str(lanes)], link=link) as daemon:
                order = ReadOrder(
                    address=daemon.address,
                    batch_records=_SLOW_BATCH,
                    batches=max(seconds * _BYTES_PER_S // (_SLOW_BATCH * _RECORD_BYTES), 2),
                    bytes_per_s=_BYTES_PER_S,
                    prefetch=_PREFETCH,
                )
                rounds = range(1 if settings.quick else settings.repeats)
                reads = [read_in_process(order, link.training, within_s=_SLOWER * seconds + ANSWER_S) for _ in rounds]
            at = f"{rtt_text(settings.rtt)}, {lanes} lanes"
            yield figure(f"{at}: after imports", "MiB", (one.imported_bytes / MIB for one in reads), note)
            yield figure(f"{at}: peak", "MiB", (one.peak_bytes / MIB for one in reads), note)
            yield figure(f"{at}: the user had", "MB/s", (one.later_bytes_per_s / 1e6 for one in reads), note)
            yield figure(f"{at}: lanes in use", "", (float(one.lanes) for one in reads), note)
