"""One course of closings: a daemon, ranks that close or die in mid-flow, or a daemon that dies under them, and what is left.

Covers: starting all of it at the two ends of a link, ending ranks and the daemon at random moments, what the daemon holds before
and after. Does not cover: what a rank does (tests.e2e.closings.loaders), arguments and printing (the command).
"""

import json
import os
import random
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import psutil

from emlio.keys.folder import KeyFolder
from emlio_bench.harness.meter import read_resident
from emlio_bench.link.choice import open_link
from emlio_bench.link.contract import Link, LinkEnd, LinkKind, LinkSpec
from emlio_testing.datasets import make_dataset
from emlio_testing.processes import DaemonProcess, RankProcess, settles
from tests.e2e.closings.settings import Ending, Outcome, Settings

__all__ = ["run_course"]

_SOURCE = Path(__file__).with_name("loaders.py").read_text(encoding="utf-8")
_MIB: Final = 1 << 20
_LOOK_EVERY_S: Final = 0.01
_SETTLE_S: Final = 30.0
_END_S: Final = 40.0
_HANG_S: Final = 60.0
"""Without a record or a closing for so long the course hangs; a loader gives up after half of it."""

MOST_GROWTH_BYTES: Final = 24 * _MIB
"""What the daemon's own memory may have grown by: a quarter of --memory is kept for the next messages (8 MiB), and allocators
keep what many lanes at once took. A leak of 5 kB for each of 5,000 closings would be more."""

_OPTIONS: Final = ("--memory", "32MiB", "--heartbeat-timeout", "2s", "--drain-timeout", "1s")


class _End:
    """Processes are started from a thread that has moved to one end of the link."""

    def __init__(self, end: LinkEnd | None, core: int | None = None) -> None:
        self._end = end
        self._core = core
        self._thread = ThreadPoolExecutor(1, "closings-end", initializer=self._enter)

    def _enter(self) -> None:
        if self._end is not None:
            self._end.enter()
        if self._core is not None:
            os.sched_setaffinity(0, {self._core})

    def start(self, kind: type[Any], *words: Any, **options: Any) -> Any:
        return self._thread.submit(kind, *words, **options).result()

    def close(self) -> None:
        self._thread.shutdown()


class _Rank:
    def __init__(self, process: RankProcess, counts: Path) -> None:
        self.process = process
        self.counts = counts

    def has_begun(self) -> bool:
        """Whether it heeds signals."""
        return bool(self.process.lines())

    def counted(self) -> "npt.NDArray[np.int64]":
        """Loaders closed, records and streams begun anew so far."""
        return np.fromfile(self.counts, np.int64).reshape(-1, 3).sum(axis=0)


def run_course(settings: Settings, folder: Path) -> Outcome:
    """Do it; `folder` is an existing one for the dataset, keys and counts."""
    with ExitStack() as stack:
        course = _Course(settings, folder, stack)
        return course.run()


class _Course:
    def __init__(self, settings: Settings, folder: Path, stack: ExitStack) -> None:
        self._settings = settings
        self._folder = folder
        self._draw = random.Random(f"closings {settings.seed}")
        self._stack = stack
        self._troubles: list[str] = []
        self._ranks: list[_Rank] = []
        self._ended = np.zeros(3, np.int64)
        self._endings = 0
        self._started = 0
        data = folder / "data"
        made = make_dataset(data, records=settings.records, shards=settings.shards, payload=settings.record_bytes)
        np.save(folder / "records.npy", np.frombuffer(b"".join(made), np.uint8).reshape(len(made), -1))
        link: Link | None = None
        if settings.link is not None:
            link = stack.enter_context(open_link(LinkSpec(rtt_ns=settings.link), LinkKind.EMULATED))
        core = min(os.sched_getaffinity(0)) if settings.one_core else None
        self._storage = self._end(link.storage if link is not None else None, core)
        self._training = self._end(link.training if link is not None else None)
        host = link.storage.listen if link is not None else "127.0.0.1"
        self._options = [*_OPTIONS, "--lanes", str(settings.lanes), "--message-size", settings.message_size]
        self._told: dict[str, Any] = {}
        if settings.protection == "clear":
            self._options += ["--insecure"] if link is not None else []
        else:
            self._add_keys()
        self._daemon = self._serve(f"tcp://{host}:0")

    def _end(self, end: LinkEnd | None, core: int | None = None) -> _End:
        made = _End(end, core)
        self._stack.callback(made.close)
        return made

    def _add_keys(self) -> None:
        store, rank = KeyFolder(self._folder / "store"), KeyFolder(self._folder / "rank")
        store.make("store")
        rank.make("rank")
        store.allow("rank", rank.pair().public, ("*",))
        self._options += ["--keys", str(store.path)]
        self._options += ["--encryption", "aead"]
        self._told = {"keys": str(rank.path), "daemon_key": str(store.pair().public), "encryption": "aead"}

    def _serve(self, bind: str) -> DaemonProcess:
        data = {"data": self._folder / "data"}
        daemon: DaemonProcess = self._storage.start(DaemonProcess, data, *self._options, folder=self._folder, bind=bind)
        self._stack.callback(daemon.kill)
        return daemon

    # ---- its parts ----------------------------------------------------------------------------------------------------

    def run(self) -> Outcome:
        settings = self._settings
        before = after = None
        if not settings.ending.of_daemon:
            self._go_on_until(min(settings.warm_up, settings.closings), settings.seconds)
            self._end_ranks()
            before = self._held_at_rest()
        at_first, begun = self._counted(), time.monotonic()
        self._go_on_until(at_first[0] + settings.closings, settings.seconds)
        seconds = time.monotonic() - begun
        self._end_ranks()
        closings, records, streams = self._counted()
        if before is not None and not self._troubles:
            after = self._held_at_rest()
        if before is not None and after is not None:
            if after[0] - before[0] > MOST_GROWTH_BYTES:
                self._troubles.append(f"the daemon's own memory grew from {before[0]:,} to {after[0]:,} bytes")
            if after[1] > before[1]:
                self._troubles.append(f"the daemon's descriptors grew from {before[1]} to {after[1]}")
        if not self._troubles and "Traceback" in self._daemon.log:
            self._troubles.append("the daemon wrote a traceback")
        return Outcome(
            closings=closings,
            streams=streams,
            endings=self._endings,
            records=records,
            seconds=seconds,
            closings_per_s=(closings - at_first[0]) / seconds,
            daemon=(before, after) if before is not None and after is not None else None,
            troubles=tuple(self._troubles),
        )

    def _counted(self) -> tuple[int, int, int]:
        """Loaders and streams that were closed in mid-flow, records, and how many of the first were streams only."""
        loaders, records, streams = sum((rank.counted() for rank in self._ranks), self._ended).tolist()
        return loaders + streams, records, streams

    def _go_on_until(self, wanted: int, seconds: float) -> None:
        """Have ranks run until so many closings are reached, or endings where the daemon ends."""
        if self._troubles:
            return
        settings = self._settings
        end = time.monotonic() + seconds
        self._ranks = [self._start_rank() for _ in range(settings.processes)]
        moved, seen, next_end = time.monotonic(), (0, 0, 0), time.monotonic() + self._draw_delay()
        while True:
            self._look_after()
            counted = self._counted()
            now = time.monotonic()
            reached = self._endings if settings.ending.of_daemon else counted[0]
            if self._troubles or reached >= wanted or now >= end:
                return
            if counted != seen:
                moved, seen = now, counted
            if now - moved > _HANG_S:
                self._troubles.append(f"nothing moved for {_HANG_S:.0f} s after {counted[0]} closings")
                return
            if now >= next_end:
                self._end_one()
                next_end = time.monotonic() + self._draw_delay()
            time.sleep(_LOOK_EVERY_S)

    def _draw_delay(self) -> float:
        match self._settings.ending:
            case Ending.CLOSE:
                return float("inf")
            case Ending.KILL:
                return self._draw.uniform(1.0, 3.0)
            case _:
                return self._draw.uniform(0.5, 2.0)

    def _end_one(self) -> None:
        """End a rank process, or the daemon, and start another in its place."""
        self._endings += 1
        match self._settings.ending:
            case Ending.KILL:
                rank = self._draw.choice(self._ranks)
                if not rank.process.lines():
                    return  # it has not begun
                rank.process.kill()
                self._forget(rank)
                self._ranks.append(self._start_rank())
            case _:
                self._look_after_daemon()
                term = self._settings.ending is Ending.DAEMON_TERM
                self._daemon.send_signal(signal.SIGTERM if term else signal.SIGKILL)
                status = self._daemon.finish(_END_S)
                if status != (0 if term else -signal.SIGKILL):
                    self._troubles.append(f"the daemon ended with status {status}: {self._daemon.log[-600:]}")
                self._daemon = self._serve(self._daemon.endpoint)

    def _start_rank(self) -> _Rank:
        settings = self._settings
        self._started += 1
        counts = self._folder / f"counts-{self._started}"
        np.zeros((settings.loaders, 3), np.int64).tofile(counts)
        told = {
            "address": self._daemon.address("data"),
            "records": str(self._folder / "records.npy"),
            "counts": str(counts),
            "loaders": settings.loaders,
            "closes": not settings.ending.of_daemon,
            "streams": settings.streams,
            "most_batches": settings.most_batches,
            "seed": f"{settings.seed} {self._started}",
            "options": {
                "batch_size": max(1, min(settings.records // 20, 200_000 // settings.record_bytes)),
                "prefetch": settings.prefetch,
                "timeout": "30s",
                "heartbeat": "2s",
                **self._told,
            },
        }
        process: RankProcess = self._training.start(RankProcess, _SOURCE, json.dumps(told))
        self._stack.callback(process.kill)
        return _Rank(process, counts)

    def _forget(self, rank: _Rank) -> None:
        self._ended = self._ended + rank.counted()
        self._ranks.remove(rank)
        rank.counts.unlink()

    # ---- who is still there ---------------------------------------------------------------------------------------------

    def _look_after(self) -> None:
        self._look_after_daemon()
        for rank in self._ranks:
            if not rank.process.running:
                self._tell_end(rank)

    def _look_after_daemon(self) -> None:
        if not self._daemon.running:
            status = self._daemon.finish(_END_S)
            after = self._counted()[0]
            self._troubles.append(
                f"the daemon ended by itself with status {status} after {after} closings: {self._daemon.log[-300:]}"
            )

    def _tell_end(self, rank: _Rank) -> None:
        status = rank.process.finish(_END_S)
        self._troubles.append(f"a rank process ended with status {status}: {rank.process.log[-600:]}")

    def _end_ranks(self) -> None:
        """Let them close what they have."""
        for rank in self._ranks:
            if rank.process.running and settles(rank.has_begun, _SETTLE_S):
                rank.process.send_signal(signal.SIGTERM)
        for rank in list(self._ranks):
            try:
                if rank.process.finish(_END_S) != 0 and not self._troubles:
                    self._tell_end(rank)
            except TimeoutError as error:
                self._troubles.append(f"a rank process did not end: {str(error)[-600:]}")
            self._forget(rank)
        if not self._troubles:
            self._look_after_daemon()

    def _held_at_rest(self) -> tuple[int, int] | None:
        """The daemon's own memory and its descriptors once all sessions have ended."""
        daemon = self._daemon
        if self._troubles:
            return None
        if not settles(lambda: daemon.log.count(" began") == daemon.log.count(" ended: "), _SETTLE_S):
            self._troubles.append("sessions of ranks that are gone are still there")
            return None
        looks: list[int] = []

        def still() -> bool:
            looks.append(psutil.Process(daemon.pid).num_fds())
            return len(looks) > 20 and len(set(looks[-20:])) == 1

        if not settles(still, _SETTLE_S) or not daemon.calms_down():
            self._troubles.append("the daemon does not come to rest")
            return None
        return read_resident(daemon.pid).own_bytes, looks[-1]
