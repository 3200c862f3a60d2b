"""Transfers whose block size and depth follow a decider, reads and writes each by themselves."""

import logging
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, Final, Self

from emlio.aio.decider import Decide, Memory, decide
from emlio.aio.interval import NAMES, Interval, Setting
from emlio.aio.transfers import Task, Transfers
from emlio.errors import ConfigError
from emlio.learned.model import Model
from emlio.native.disk import DiskQueue

__all__ = ["Tune", "TunedTransfers", "load_models", "shipped_models"]

_LOG: Final = logging.getLogger("emlio.aio")
_MODELS: Final = Path(__file__).parent / "models"


def shipped_models() -> dict[bool, Model]:
    """Return the models that come with EMLIO: of writes (True) and of reads.

    Raises:
        ConfigError: one is damaged.
    """
    return load_models(_MODELS)


def load_models(folder: Path) -> dict[bool, Model]:
    """Return the models of a folder, write.npz (True) and read.npz.

    Raises:
        ConfigError: one cannot be read, or is not a handle's.
    """
    found: dict[bool, Model] = {}
    for write, name in ((False, "read.npz"), (True, "write.npz")):
        found[write] = model = Model.load(folder / name)
        if model.names != NAMES:
            raise ConfigError(
                f"{folder / name} must be a model of this release for AioHandle, has other columns: train it again by "
                "`emlio-bench dial --train`"
            )
        if any(each.startswith("reads" if write else "writes") for each in model.environments):
            raise ConfigError(f"{folder / name} must be a model of {name[:-4]}s, is one of {model.environments[0]}")
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Tune:
    """The decider of a handle, and how often it is asked: after calls that were under way for so long."""

    decide: Decide
    every_ns: int = 500_000_000

    @classmethod
    def parse(cls, given: Any) -> Self | None:
        """Return the choice of a user, a word or the folder of models; None for "off"."""
        if isinstance(given, cls):
            return given
        folder: Any = given
        if isinstance(given, str) and given == "off":
            return None
        if isinstance(given, str) and given == "learned":
            models = shipped_models()
        elif isinstance(given, str | os.PathLike) and os.path.isdir(folder):  # False for text that is no path
            models = load_models(Path(os.fsdecode(folder)))
        else:
            raise ConfigError(f'tune must be "off", "learned" or a folder with read.npz and write.npz, got {given!r}')
        return cls(decide=lambda memory, now: decide(models[now.write], memory, now))


@dataclass(slots=True, kw_only=True)
class _Direction:
    """Reads or writes: the setting that holds for them, and their figures since the last look."""

    write: bool
    memory: Memory
    transfers: Transfers
    under_way: int = 0
    busy_since_ns: int = 0
    busy_ns: int = 0
    size_bytes: int = 0
    requests: int = 0
    calls: int = 0
    call_ns: int = 0
    cpu_ns: int = 0

    def begin(self, now_ns: int) -> None:
        """Count a call that begins."""
        if not self.under_way:
            self.busy_since_ns = now_ns
        self.under_way += 1

    def end(self, tasks: Sequence[Task], begun_ns: int, now_ns: int, cpu_ns: int) -> None:
        """Count a call that has ended."""
        self.under_way -= 1
        self.busy_ns += now_ns - self.busy_since_ns
        self.busy_since_ns = now_ns
        self.size_bytes += sum(task.memory.size_bytes for task in tasks if task.error is None)
        self.requests += len(tasks)
        self.calls += 1
        self.call_ns += now_ns - begun_ns
        self.cpu_ns += cpu_ns

    def interval(self, now_ns: int) -> Interval:
        """Return the figures, and begin anew."""
        found = Interval(
            write=self.write,
            setting=self.memory.setting,
            at_ns=now_ns,
            busy_ns=max(self.busy_ns, 1),
            size_bytes=self.size_bytes,
            requests=self.requests,
            calls=self.calls,
            call_ns=self.call_ns,
            cpu_ns=self.cpu_ns,
        )
        self.busy_ns = self.size_bytes = self.requests = self.calls = self.call_ns = self.cpu_ns = 0
        return found


class TunedTransfers:
    """Takes the place of `Transfers`. Calls that are under way keep the setting that they began with.

    Each depth has a queue, which stays until all are closed: there are few depths.
    """

    def __init__(self, queue: DiskQueue, setting: Setting, tune: Tune) -> None:
        """Begin with a setting and the queue of its depth, which is the caller's."""
        self._kind = queue.kind
        self._queues = {setting.depth: queue}
        self._opened: list[DiskQueue] = []
        self._refused: set[int] = set()
        self._first = setting
        self._tune: Tune | None = tune
        self._lock = Lock()
        self._directions = [
            _Direction(
                write=write,
                memory=Memory(setting=setting),
                transfers=Transfers(queue, setting.block_bytes, setting.depth),
            )
            for write in (False, True)
        ]

    def setting(self, *, write: bool) -> Setting:
        """Return the setting that holds for reads or for writes."""
        return self._directions[write].memory.setting

    def carry_out(self, tasks: Sequence[Task]) -> None:
        """See `Transfers`."""
        for direction in self._directions:
            own = [task for task in tasks if task.write is direction.write]
            if own:
                self._measured(direction, own)

    def close(self) -> None:
        """Close the queues that were opened here. No call may be under way."""
        for queue in self._opened:
            queue.close()

    def _measured(self, direction: _Direction, tasks: Sequence[Task]) -> None:
        begun_ns, cpu_ns = time.monotonic_ns(), time.thread_time_ns()
        with self._lock:
            transfers = direction.transfers
            direction.begin(begun_ns)
        try:
            transfers.carry_out(tasks)
        finally:
            cpu_ns = time.thread_time_ns() - cpu_ns
            with self._lock:
                now_ns = time.monotonic_ns()
                direction.end(tasks, begun_ns, now_ns, cpu_ns)
                if self._tune is not None and direction.busy_ns >= self._tune.every_ns:
                    self._look(direction, self._tune, now_ns)

    def _look(self, direction: _Direction, tune: Tune, now_ns: int) -> None:
        before, now = direction.memory.setting, direction.interval(now_ns)
        try:
            memory = tune.decide(direction.memory, now)
            setting = memory.setting
        except Exception:  # noqa: BLE001  # the decider may be the user's; transfers go on without it
            _LOG.exception("the decider failed: block size and depth are those at first again, and stay")
            self._tune = None
            for each in self._directions:
                self._use(each, Memory(setting=self._first))
            return
        try:
            self._use(direction, memory)
        except OSError as error:
            if setting.depth not in self._refused:
                self._refused.add(setting.depth)
                _LOG.warning("block size and depth stay as they are: no queue of depth %d: %s", setting.depth, error)
            direction.memory = memory.undone(before, now_ns, "the system gave no queue")
        words, then = "writes" if now.write else "reads", direction.memory
        _LOG.debug("%s: %.0f MB/s with %s, then %s: %s", words, now.rate / 1e6, before, then.setting, then.reason)

    def _use(self, direction: _Direction, memory: Memory) -> None:
        setting = memory.setting
        if setting != direction.memory.setting:
            direction.transfers = Transfers(self._queue(setting.depth), setting.block_bytes, setting.depth)
        direction.memory = memory

    def _queue(self, depth: int) -> DiskQueue:
        if depth not in self._queues:
            self._queues[depth] = DiskQueue(depth, self._kind)
            self._opened.append(self._queues[depth])
        return self._queues[depth]
