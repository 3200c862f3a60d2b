"""`emlio-bench memory`: the memory of both sides while the training process pauses.

The epoch is made of a smaller dataset whose shards are named several times by hard links. It is
sent and received in full, and still fits in the page cache.

Covers: resident memory of a daemon and a rank before, during and after a pause, with bounds. Pages
of mapped files belong to the page cache and are reported separately. Does not cover: the page
cache, the kernel's socket buffers, a slow user over a long link
(emlio_bench.memory.over_link).
"""

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from emlio.daemon.config import DaemonConfig, DatasetSource
from emlio.errors import TransportError
from emlio.progress import Progress
from emlio.units import format_duration, format_size
from emlio_bench.harness.data import data_root, link_copies, make_data, warm_cache
from emlio_bench.harness.environment import read_environment
from emlio_bench.harness.pair import ANSWER_S
from emlio_bench.harness.resident import Resident, read_resident
from emlio_bench.harness.results import Figure, Results
from emlio_bench.harness.scenario import MESSAGE_BYTES, DataSpec
from emlio_bench.memory.over_link import run_memory_over_link
from emlio_bench.memory.settings import MemorySettings
from emlio_bench.processes.child import say, start_worker
from emlio_bench.processes.daemon import running_daemon
from emlio_bench.subjects.loader import open_loader

__all__ = ["consume", "run_memory"]

_RECORD_BYTES: Final = 100_000
_FRAME_BYTES: Final = 16
_BASE_BYTES: Final = 2_000_000_000
_SAMPLE_S: Final = 0.1
_MIB: Final = 1 << 20
_BATCHES_HELD: Final = 3
"""The batches in memory at once: one with the user, one complete, one being assembled."""

_IN_LIBZMQ: Final = 2
"""The messages of a lane that are neither in its queue nor in the window.

One is being received, and one is being taken.
"""


class _Order(msgspec.Struct, frozen=True, kw_only=True):
    address: str
    daemon_pid: int
    data: DataSpec
    batch_records: int
    pause_ns: int


class _Idle(msgspec.Struct, frozen=True, kw_only=True):
    rank: Resident
    daemon: Resident


class _Phase(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    lanes: int = 0
    window_bytes: int = 0
    records: int = 0


def consume(orders: bytes) -> None:
    """Run the rank's process: one epoch, with a pause in its middle."""
    order = msgspec.json.decode(orders, type=_Order)
    with open_loader(order.address, order.data, order.batch_records, "global") as loader:
        # The rank reads both processes itself, at a time when no data flow yet.
        say(_Idle(rank=read_resident(os.getpid()), daemon=read_resident(order.daemon_pid)))
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


def run_memory(settings: MemorySettings) -> Results:
    """Run the epoch and record the memory."""
    if settings.rtt:
        return run_memory_over_link(settings)
    base = 20_000_000 if settings.quick else min(_BASE_BYTES, settings.size)
    size = 10 * base if settings.quick else settings.size
    pause_ns = min(settings.pause, 500_000_000) if settings.quick else settings.pause
    data = DataSpec(kind="opaque", record_bytes=_RECORD_BYTES, records=base // _RECORD_BYTES)
    copies = max(-(-size // data.payload_bytes), 1)
    with data_root(settings.data) as root:
        directory = make_data(data, root, progress=sys.stderr.isatty())
        warm_cache(directory)
        linked = link_copies(directory, copies)
        watched = _watch(linked, data, min(settings.batch_records, data.records * copies), pause_ns)
    expected = data.records * copies
    if watched.records != expected:
        raise TransportError(f"the epoch must have {expected} records, got {watched.records}")
    daemon = DaemonConfig(data=(DatasetSource(name="bench", directory=linked),))
    message = max(daemon.message_bytes(1), MESSAGE_BYTES, _RECORD_BYTES + _FRAME_BYTES)
    batch_bytes = settings.batch_records * (_RECORD_BYTES + _FRAME_BYTES)
    rank_bound = watched.window_bytes + watched.lanes * _IN_LIBZMQ * message + _BATCHES_HELD * batch_bytes
    daemon_bound = daemon.memory + (daemon.readers + watched.lanes) * message
    note = (
        f"Memory on top of what each process had before data flowed, every {_SAMPLE_S:g} s, own pages only. The epoch of "
        f"{format_size(expected * _RECORD_BYTES)} is {format_size(data.payload_bytes)} whose shards are linked {copies} times; "
        f"the consumer stopped for {format_duration(pause_ns)} half way.\n"
        f"Rank's bound: window {format_size(watched.window_bytes)} + {watched.lanes} lane(s) x {_IN_LIBZMQ} x "
        f"message {format_size(message)} + {_BATCHES_HELD} batches of {format_size(batch_bytes)}. Daemon's bound: --memory "
        f"{format_size(daemon.memory)} + ({daemon.readers} readers + {watched.lanes} lane(s)) x message."
    )
    return Results(
        benchmark="memory",
        environment=read_environment(None),
        settings=(("size", str(size)), ("pause_ns", str(pause_ns)), ("batch", str(settings.batch_records))),
        figures=(
            *_figures("rank", watched.idle.rank, watched.rank, rank_bound, note),
            *_figures("daemon", watched.idle.daemon, watched.daemon, daemon_bound, note),
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Watched:
    """Resident memory before data flowed, and by phase: "before", "during", "after" the pause."""

    idle: _Idle
    rank: dict[str, list[Resident]]
    daemon: dict[str, list[Resident]]
    lanes: int
    window_bytes: int
    records: int


def _watch(directory: Path, data: DataSpec, batch_records: int, pause_ns: int) -> _Watched:
    rank_seen: dict[str, list[Resident]] = {}
    daemon_seen: dict[str, list[Resident]] = {}
    lanes = window_bytes = 0
    quiet_s = pause_ns / 1e9 + ANSWER_S
    with running_daemon(directory) as daemon, Progress("phases of the epoch", 3) as bar:
        order = _Order(
            address=daemon.address,
            daemon_pid=daemon.pid,
            data=data,
            batch_records=batch_records,
            pause_ns=pause_ns,
        )
        with start_worker("loader-pause", order) as rank:
            idle = rank.hear(_Idle, ANSWER_S)
            phase = rank.hear(_Phase, ANSWER_S)
            since = time.monotonic()
            while phase.name != "done":
                rank_seen.setdefault(phase.name, []).append(read_resident(rank.pid))
                daemon_seen.setdefault(phase.name, []).append(read_resident(daemon.pid))
                line = rank.line(_SAMPLE_S)
                if line is not None:
                    phase, since = msgspec.json.decode(line, type=_Phase), time.monotonic()
                    lanes, window_bytes = max(lanes, phase.lanes), max(window_bytes, phase.window_bytes)
                    bar.add(1)
                elif time.monotonic() - since > 10 * quiet_s:
                    raise TransportError(f"the rank must get through phase {phase.name!r} within {10 * quiet_s:g} s")
            rank.rest(ANSWER_S)
    return _Watched(
        idle=idle, rank=rank_seen, daemon=daemon_seen, lanes=lanes, window_bytes=window_bytes, records=phase.records
    )


def _figures(side: str, idle: Resident, seen: dict[str, list[Resident]], bound: int, note: str) -> tuple[Figure, ...]:
    words = {"before": "before the pause", "during": "during it", "after": "after it"}
    return (
        Figure(name=f"{side}, when nothing flowed", unit="MiB", values=(idle.own_bytes / _MIB,)),
        *(
            Figure(
                name=f"{side}, more {words[phase]}",
                unit="MiB",
                values=tuple((resident.own_bytes - idle.own_bytes) / _MIB for resident in seen[phase]),
                at_most=bound / _MIB,
                every=True,
                note=note,
            )
            for phase in words
        ),
        Figure(
            name=f"{side}, pages of files",
            unit="MiB",
            values=tuple(resident.file_bytes / _MIB for phase in words for resident in seen[phase]),
        ),
    )
