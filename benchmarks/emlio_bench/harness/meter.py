"""The measurement of one sample, in the receiving process."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from emlio.clock import Clock, SystemClock
from emlio.errors import ConfigError
from emlio_bench.harness.scenario import Window

__all__ = ["Measurement", "Meter", "Resident", "process_cpu_ns", "read_resident"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resident:
    """The memory of a process that is in RAM.

    Attributes:
        own_bytes: memory of the process itself: heap, stacks, shared memory.
        file_bytes: pages of mapped files, which the kernel may reclaim at any time.
    """

    own_bytes: int
    file_bytes: int


def read_resident(pid: int, proc: Path = Path("/proc")) -> Resident:
    """Read the resident memory of a process from /proc."""
    sizes: dict[str, int] = {}
    for line in (proc / str(pid) / "status").read_text(encoding="ascii", errors="replace").splitlines():
        name, _, rest = line.partition(":")
        if name in ("RssAnon", "RssShmem", "RssFile"):
            sizes[name] = int(rest.split()[0]) * 1024
    return Resident(own_bytes=sizes["RssAnon"] + sizes["RssShmem"], file_bytes=sizes["RssFile"])


_OWN_PROCESS = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """The bytes and times of one measurement window.

    Attributes:
        payload_bytes: payload of the records, without headers.
        records: number of records, or 0 if the stream has no records.
        elapsed_ns: length of the window.
        sender_cpu_ns: processor time of the sending process in the window: user and system, all
            threads.
        receiver_cpu_ns: processor time of the receiving process, counted in the same way.
        first_batch_ns: time from the loader's construction to its first batch; None without a
            loader.
        protection: protection of the records in transit, such as a cipher; None without a loader.
    """

    payload_bytes: int
    records: int
    elapsed_ns: int
    sender_cpu_ns: int
    receiver_cpu_ns: int
    first_batch_ns: int | None = None
    protection: str | None = None

    def __post_init__(self) -> None:
        if self.payload_bytes < 1 or self.elapsed_ns < 1:
            raise ConfigError(
                f"a sample must have payload and length, got {self.payload_bytes} bytes in {self.elapsed_ns} ns"
            )

    @property
    def bytes_per_s(self) -> float:
        """Payload bytes per second."""
        return self.payload_bytes * 1e9 / self.elapsed_ns

    @property
    def records_per_s(self) -> float:
        """Records per second."""
        return self.records * 1e9 / self.elapsed_ns

    @property
    def cpu_s_per_gb(self) -> float:
        """Processor seconds of both sides for 10^9 bytes of payload."""
        return (self.sender_cpu_ns + self.receiver_cpu_ns) / self.payload_bytes


def process_cpu_ns(pid: int) -> int:
    """Return the processor time of a process so far, with all its threads; 0 means this process.

    The figures equal those of `getrusage`, but have the kernel's own resolution, and any process
    can be asked for.
    """
    # On Linux, the clock id of a process is its complemented id shifted left by three. The low bits
    # select the scheduler's exact count.
    return time.clock_gettime_ns((~pid << 3 | 2) if pid else time.CLOCK_PROCESS_CPUTIME_ID)


class Meter:
    """A counter of the data that arrives. Used by one thread."""

    def __init__(
        self,
        window: Window,
        sender_pid: int,
        *,
        clock: Clock | None = None,
        cpu_ns: Callable[[int], int] = process_cpu_ns,
    ) -> None:
        """Create a meter that has counted nothing yet.

        Args:
            window: the beginning and end of the sample.
            sender_pid: process id of the sender.
            clock: the source of time.
            cpu_ns: returns the processor time of a process; 0 means this process.
        """
        self._window = window
        self._sender_pid = sender_pid
        self._clock = clock if clock is not None else SystemClock()
        self._cpu_ns = cpu_ns
        self._warmed_bytes = 0
        self._begun: tuple[int, int, int] | None = None
        self._ended: tuple[int, int, int] | None = None
        self._payload_bytes = 0
        self._records = 0

    def add(self, payload_bytes: int, records: int) -> bool:
        """Count data that arrived, and return whether the sample is complete."""
        if self._begun is None:
            self._warmed_bytes += payload_bytes
            if self._warmed_bytes >= self._window.warm_up_bytes:
                self._begun = self._read()
            return False
        self._payload_bytes += payload_bytes
        self._records += records
        elapsed_ns = self._clock.monotonic_ns() - self._begun[0]
        window = self._window
        if elapsed_ns >= window.most_ns or (
            elapsed_ns >= window.least_ns and self._payload_bytes >= window.sample_bytes
        ):
            self._ended = self._read()
            return True
        return False

    def measurement(self, first_batch_ns: int | None = None, protection: str | None = None) -> Measurement:
        """Return the sample. It must be complete."""
        if self._begun is None or self._ended is None:
            raise ConfigError("a sample must be complete before it is read")
        elapsed_ns, sender_ns, receiver_ns = (
            after - before for before, after in zip(self._begun, self._ended, strict=True)
        )
        return Measurement(
            payload_bytes=self._payload_bytes,
            records=self._records,
            elapsed_ns=elapsed_ns,
            sender_cpu_ns=sender_ns,
            receiver_cpu_ns=receiver_ns,
            first_batch_ns=first_batch_ns,
            protection=protection,
        )

    def _read(self) -> tuple[int, int, int]:
        return self._clock.monotonic_ns(), self._cpu_ns(self._sender_pid), self._cpu_ns(_OWN_PROCESS)
