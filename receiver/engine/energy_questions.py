"""Questions of other threads for the energy of the daemons' nodes, each for an interval of its own clock.

A recorder writes once a second, so the end of an epoch that has just ended is not in its file yet.
The missing part is requested again a moment later.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from emlio.clock import Clock
from emlio.clocks.fit import ClockFit
from emlio.energy.export.wire_rows import device_of, reading_of
from emlio.energy.job.journal import StorageEnergy
from emlio.energy.values.series import Series
from emlio.errors import ConfigError, EmlioError, RemoteProtocolError
from emlio.receiver.engine.asker import OpenQuestion
from emlio.receiver.machine.daemon_pool import DaemonPool
from emlio.receiver.machine.source import Source
from emlio.units import format_duration
from emlio.wire.questions import Absent, AskEnergy, Energy, Told

__all__ = ["EnergyQuestion", "Stretches", "energy_of", "energy_questions"]

_AGAIN_NS = 300_000_000
_WRITTEN_NS = 3_000_000_000
"""By then a running recorder has written its readings to its file."""

_MOST_READINGS = 1 << 19
"""The most readings of one question: fourteen hours at ten per second."""

Stretches = Mapping[int, tuple[int, int]]
"""The interval for the daemon with this number, by its clock. A daemon without one cannot be
asked."""


def energy_of(daemon: str, parts: Sequence[Energy], absent: str, clock: ClockFit | None) -> StorageEnergy:
    """Join the parts of an answer. Parts that do not fit each other count as absent.

    Args:
        daemon: the daemon's address.
        parts: in the order of time.
        absent: why there are none; may be empty.
        clock: the clock of the daemon's node; None where it was not compared.
    """
    if not parts:
        return StorageEnergy(daemon=daemon, clock=clock, absent=absent or "the daemon has not answered")
    told = StorageEnergy(daemon=daemon, node=parts[0].node, boot=parts[0].boot, clock=clock)
    try:
        series = _series(parts)
    except (ConfigError, RemoteProtocolError) as error:
        return replace(told, absent=f"the daemon sent an invalid answer: {error}")
    return replace(told, devices=series.devices, readings=series.readings, interval_ns=parts[0].interval_ns)


def _series(parts: Sequence[Energy]) -> Series:
    first = parts[0]
    if not first.node or any(part.devices != first.devices for part in parts):
        raise RemoteProtocolError("all parts must be from one node with the same devices")
    devices = tuple(device_of(row) for row in first.devices)
    return Series(devices=devices, readings=tuple(reading_of(row) for part in parts for row in part.readings))


def energy_questions(pool: DaemonPool, clock: Clock, stretches: Stretches, timeout_ns: int) -> "list[EnergyQuestion]":
    """Return a question for each daemon."""
    return [
        EnergyQuestion(pool, clock, source, stretches.get(source.number), timeout_ns)
        for source in _one_each(pool.sources)
    ]


class EnergyQuestion(OpenQuestion):
    """For the energy of one daemon's node."""

    kind = AskEnergy

    def __init__(
        self, pool: DaemonPool, clock: Clock, source: Source, stretch: tuple[int, int] | None, timeout_ns: int
    ) -> None:
        """Prepare the question.

        Args:
            pool: the daemons.
            clock: the receive thread's.
            source: the daemon.
            stretch: the interval by its clock; None if that is not known, then it cannot be asked.
            timeout_ns: the time it has.
        """
        self._pool = pool
        self._clock = clock
        self._daemon = source.peer_name
        self._number = source.number
        self._stretch = stretch or (0, 0)
        self._begun_ns = clock.monotonic_ns()
        self._timeout_ns = timeout_ns
        self._parts: list[Energy] = []
        self._absent = ""
        self.until_ns = self._begun_ns + timeout_ns
        if stretch is None:
            self._finish("its clock could not be compared with this host's. It may run an older release of emlio")

    def energy(self, clocks: Mapping[int, ClockFit]) -> StorageEnergy:
        """Return what the daemon has answered, with the clock of its number."""
        return energy_of(self._daemon, self._parts, self._absent, clocks.get(self._number))

    def source(self) -> Source | None:
        """Return the daemon."""
        source = self._pool.sources.number(self._number)
        if source is None or source.peer_name != self._daemon:
            self._finish("the daemon was removed from the job before it answered")
            return None
        return source if source.is_here else None

    def about(self) -> AskEnergy:
        """Return the question: for the whole interval, or for what follows the last reading."""
        from_ns, to_ns = self._stretch
        recording = self._parts[0].recording if self._parts else 0
        return AskEnergy(from_ns=from_ns, to_ns=to_ns, recording=recording, first=self._last()[0] + 1)

    def hear(self, source: Source, told: Told) -> None:
        """Take a part."""
        if isinstance(told, Absent):
            self._finish(told.text)
            return
        assert isinstance(told, Energy)  # as the session has checked
        before = self._parts[0] if self._parts else told
        if (told.boot, told.recording) != (before.boot, before.recording):
            self._fail("its node restarted during the request")
            return
        if told.readings or not self._parts:
            self._parts.append(told)
        if sum(len(part.readings) for part in self._parts) > _MOST_READINGS:
            self._fail(f"it has more than {_MOST_READINGS:,} readings of this time. Request a shorter time")
            return
        if told.more:
            return
        now_ns = self._clock.monotonic_ns()
        behind = self._last()[1] < self._stretch[1]
        if behind and told.live and now_ns - self._begun_ns < _WRITTEN_NS:
            self.not_before_ns = now_ns + _AGAIN_NS
        else:
            self._finish()

    def expire(self) -> None:
        """Give it up."""
        self._finish(f"it did not answer within {format_duration(self._timeout_ns)}")

    def end(self, error: EmlioError) -> None:
        """End it: the loader is closed."""
        self._finish("the loader was closed before it answered")

    def _fail(self, absent: str) -> None:
        self._parts.clear()
        self._finish(absent)

    def _finish(self, absent: str = "") -> None:
        self.done, self._absent = True, absent

    def _last(self) -> tuple[int, int]:
        """Return number and time of the last reading so far."""
        readings = [part.readings[-1] for part in self._parts if part.readings]
        return (readings[-1].seq, readings[-1].mono_ns) if readings else (-1, -1)


def _one_each(sources: Iterable[Source]) -> list[Source]:
    """Return one session of each daemon: it has several if it holds several datasets of a mixture."""
    found: dict[str, Source] = {}
    for source in sources:
        welcome = source.conversation.welcome
        found.setdefault((welcome.process if welcome is not None else "") or source.peer_name, source)
    return list(found.values())
