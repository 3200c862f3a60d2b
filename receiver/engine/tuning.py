"""The tuner of a loader, between the rule and the parts that it looks at and sets.

Covers: what is seen at a moment, the limits of the settings, which file the log is. Used by the receive thread. Does not
cover: the rule (emlio.receiver.tuning.rule).
"""

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Final

from emlio.errors import ConfigError
from emlio.processor import processor_times
from emlio.receiver.addresses.lane_count import lanes_per_ms
from emlio.receiver.batches.prefetch import Prefetch
from emlio.receiver.machine.events import Event, ReportsWanted, Tuned
from emlio.receiver.machine.rank import RankMachine
from emlio.receiver.setup.config import LoaderConfig
from emlio.receiver.timing.thread_times import look
from emlio.receiver.tuning.learned import Learned
from emlio.receiver.tuning.log import TuningLog
from emlio.receiver.tuning.snapshot import DaemonWork, Snapshot, trip_of_path
from emlio.receiver.tuning.state import Limits
from emlio.receiver.tuning.tuner import Tuner
from emlio.receiver.tuning.tuning import SMALLEST_AUTO_BYTES, Tuning
from emlio.socket_buffers import receive_buffer_bytes, send_buffer_bytes

__all__ = ["LoaderTuning"]

_FOLDER: Final = "EMLIO_TUNE_LOG"
_UNSAFE: Final = re.compile(r"[^\w.-]")
_ASK_EVERY_NS: Final = 500_000_000
_RANKS: Final = 64
"""Daemons are asked so often in a job of so many ranks, and more rarely in a larger one: a daemon may serve all of them."""

_WAITS: Final = 0.005
"""Up to this share of the time a user counts as one that never waits."""

_PARTS: Final = 4
_GOVERNED_PARTS: Final = 2
"""The fewest parts in which credit is given: at the worst moment so much of the window is empty, which is missing when a
daemon stands still."""


class LoaderTuning:
    """The tuner of one loader; it does nothing where the settings are fixed.

    Attributes:
        now: the settings that hold.
        changes: how often they were changed.
    """

    def __init__(
        self,
        config: LoaderConfig,
        machine: RankMachine,
        prefetch: Prefetch,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        """Begin.

        Raises:
            ConfigError: the log cannot be written.
        """
        self.now = config.tuning
        self.changes = 0
        self._config = config
        self._machine = machine
        self._prefetch = prefetch
        self._tuner: Tuner | None = None
        self._looked = False
        self._processors = processor_times()
        self._work = DaemonWork()
        self._asked_ns = 0
        self._ask_every_ns = max(_ASK_EVERY_NS, config.world_size * _ASK_EVERY_NS // _RANKS)
        self.set(self.now)
        if config.tune.way in ("auto", "joules", "learned", "own"):
            log = _log(config, environment.get(_FOLDER, ""))
            self._tuner = Tuner(config.tuning, self._look, log, config.tune.rule)

    def deadline_ns(self) -> int | None:
        """The time of the next look; None while nothing happens."""
        return self._tuner.deadline_ns() if self._tuner is not None else None

    def events(self, now_ns: int, *, hungry: bool) -> list[Event]:
        """Look, if it is time, and return the events that follow. Nothing is looked at before the user asks for a batch."""
        tuner = self._tuner
        if tuner is None or self._machine.intake.idle or not tuner.is_due(now_ns):
            return []
        tuning = tuner.turn(now_ns, self._limits())
        asks: list[Event] = []
        if not hungry and now_ns - self._asked_ns >= self._ask_every_ns:
            self.asked(now_ns)
            asks = [ReportsWanted(waits=False)]  # for the next look
        if tuning is None:
            return asks
        self.changes += 1
        return [*asks, self.set(tuning)]

    def asked(self, now_ns: int) -> None:
        """Note that daemons are asked for reports. A second one that does not count waits would hide those before it."""
        self._asked_ns = now_ns

    def set(self, tuning: Tuning) -> Tuned:
        """Take over settings that hold from now on, and return the event for the machine."""
        self.now = tuning
        self._prefetch.tune(threads=tuning.threads, ahead=tuning.ahead)
        return Tuned(tuning)

    def close(self) -> None:
        """Close the log."""
        if self._tuner is not None:
            self._tuner.close()

    def _limits(self) -> Limits:
        bound = self._config.prefetch
        path = lanes_per_ms(send_buffer_bytes(), receive_buffer_bytes())
        waits = self._config.tune.waits
        return Limits(
            waits=_WAITS if waits is None else waits,
            governs=waits is not None,
            alone=self._config.world_size == 1,
            least_parts=_PARTS if waits is None else _GOVERNED_PARTS,
            least_window_bytes=SMALLEST_AUTO_BYTES if bound.follows_path else bound.most_bytes,
            most_window_bytes=bound.most_bytes,
            lanes=path / (max(self._senders, 1) * self._config.world_size),
        )

    @property
    def _senders(self) -> int:
        return sum(map(self._machine.pool.assignment.needs, self._machine.pool.sources))

    def _look(self) -> Snapshot:
        figures, sources, cpu = self._machine.figures(), self._machine.pool.sources, look()
        self._work.add({source.number: source.conversation.report.work for source in sources})
        before, self._processors = self._processors, processor_times()
        idle = self._processors.idle_since(before) if before is not None and self._processors is not None else None
        pings = [(source.conversation.pings.take_round_trip(), source.stream.handshake_ns) for source in sources]
        if not self._looked:  # the lanes were chosen by the best that was known
            self._looked, pings = True, [(source.stream.round_trip_ns() or None, None) for source in sources]
        return Snapshot(
            at_ns=self._machine.now_ns,
            received_bytes=figures.received_bytes,
            batches=self._prefetch.taken_batches,
            wait_ns=self._prefetch.hunger.waited_ns,
            lane_ns=figures.network_blocked_ns,
            credit_ns=figures.credit_withheld_ns,
            starved_ns=figures.storage_starved_ns,
            held_bytes=self._machine.intake.grants.held_bytes,
            cpu_ns=sum(cpu.readers.values()) + sum(cpu.decoders.values()),
            storage_cpu_ns=self._work.cpu_ns,
            storage_bytes=self._work.sent_bytes,
            round_trip_ns=max(
                (trip for each in pings if (trip := trip_of_path(*each, idle)) is not None), default=None
            ),
            senders=self._senders,
            lanes=figures.lanes,
            idle=idle,
        )


def _log(config: LoaderConfig, folder: str) -> TuningLog | None:
    """Return a new log in this folder; None without one."""
    if not folder:
        return None
    job = _UNSAFE.sub("-", config.job or "job")
    rule = config.tune.rule
    for number in count():
        path = Path(folder) / f"tune-{job}-rank{config.rank}-{os.getpid()}-{number}.jsonl"
        try:
            with suppress(FileExistsError):
                model = rule.words if isinstance(rule, Learned) else ""
                return TuningLog(path, own=config.tune.way == "own", model=model)
        except ConfigError as error:
            raise ConfigError(f"{_FOLDER} must name a folder for logs, got {folder!r}: {error}") from error
    return None
