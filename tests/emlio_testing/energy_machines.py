"""Simulated machines: trees of powercap, of perf's PMU and of hwmon, a proc, a GPU driver."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from emlio.energy.sources.machine import Machine
from emlio_testing.clock import ManualClock

__all__ = [
    "PACKAGE_RANGE_UJ",
    "FakeGpu",
    "FakeNvml",
    "FakeNvmlError",
    "MovingCounters",
    "machine_at",
    "write_pmu",
    "write_proc",
    "write_sensor",
    "write_zone",
]

PACKAGE_RANGE_UJ = 262_143_328_850


def write_zone(root: Path, zone: str, name: str | None, *, energy_uj: int = 1_000_000, **files: int | str) -> Path:
    """Write one zone of a flat powercap tree; return the file of its counter.

    Args:
        root: the tree.
        zone: the folder's name, such as "intel-rapl:0:0".
        name: the name of the zone; None for a tree without names.
        energy_uj: the value of its counter.
        files: more of its files; by default `max_energy_range_uj` is that of a package.
    """
    folder = root / zone
    folder.mkdir(parents=True)
    if name is not None:
        (folder / "name").write_text(f"{name}\n")
        files.setdefault("max_energy_range_uj", PACKAGE_RANGE_UJ)
    for file, value in files.items():
        (folder / file).write_text(f"{value}\n")
    counter = folder / "energy_uj"
    counter.write_text(f"{energy_uj}\n")
    return counter


def write_pmu(
    sysfs: Path, events: Mapping[str, int], *, cpus: str = "0", scale: str = "2.3283064365386962890625e-10"
) -> None:
    """Write the kernel's PMU for power: event names and numbers, and the CPUs to ask."""
    folder = sysfs / "bus/event_source/devices/power"
    (folder / "events").mkdir(parents=True)
    (folder / "format").mkdir()
    (folder / "type").write_text("9\n")
    (folder / "cpumask").write_text(f"{cpus}\n")
    (folder / "format/event").write_text("config:0-7\n")
    for event, number in events.items():
        (folder / "events" / event).write_text(f"event={number:#04x}\n")
        (folder / "events" / f"{event}.scale").write_text(f"{scale}\n")
        (folder / "events" / f"{event}.unit").write_text("Joules\n")


def write_sensor(sysfs: Path, chip: int, name: str, **files: int | str) -> Path:
    """Write a chip of hwmon; return its folder."""
    folder = sysfs / f"class/hwmon/hwmon{chip}"
    folder.mkdir(parents=True)
    (folder / "name").write_text(f"{name}\n")
    for file, value in files.items():
        (folder / file).write_text(f"{value}\n")
    return folder


def write_proc(
    proc: Path,
    *,
    cores: int = 4,
    busy: int = 0,
    idle: int = 0,
    steal: int = 0,
    virtual: bool = False,
    memory_gb: int = 16,
) -> None:
    """Write a proc with this many cores; ticks are of all of them."""
    proc.mkdir(parents=True, exist_ok=True)
    lines = [f"cpu  {busy} 0 0 {idle} 0 0 0 {steal} 0 0", *(f"cpu{core} 0 0 0 0 0 0 0 0 0 0" for core in range(cores))]
    (proc / "stat").write_text("\n".join(lines) + "\n")
    (proc / "meminfo").write_text(f"MemTotal:       {memory_gb * 1_000_000_000 // 1024} kB\n")
    flags = "fpu hypervisor" if virtual else "fpu"
    (proc / "cpuinfo").write_text(f"processor\t: 0\nmodel name\t: Imagined CPU\nflags\t\t: {flags}\n")


class MovingCounters:
    """Files of counters that rise while a core is kept busy; pass it as the machine's burner."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._watts: dict[Path, float] = {}
        self._calls: list[Callable[[int], None]] = []

    def add(self, counter: Path, watts: float) -> None:
        """Make a counter rise by this power."""
        self._watts[counter] = watts

    def call(self, moved: Callable[[int], None]) -> None:
        """Call a function with the nanoseconds of each period."""
        self._calls.append(moved)

    def __call__(self, duration_ns: int) -> None:
        """Advance the clock and the counters."""
        self._clock.advance(duration_ns)
        for counter, watts in self._watts.items():
            counter.write_text(f"{int(counter.read_text()) + round(watts * duration_ns / 1000)}\n")
        for moved in self._calls:
            moved(duration_ns)


class FakeNvmlError(Exception):
    """An error like NVML's, with its number."""

    def __init__(self, value: int) -> None:
        super().__init__(f"NVML error {value}")
        self.value = value


class FakeGpu:
    """One GPU. Its fields may be changed at any time; None is what it does not have.

    Attributes:
        energy_mj: the value of its counter.
        power_mw: the power that it draws.
        limit_mw: its power limit.
        mig: whether it is divided into instances; None if it cannot be.
        error: the error of every call about it; 0 for none.
    """

    def __init__(
        self,
        uuid: str,
        *,
        energy_mj: int | None = 5_000_000,
        power_mw: int | None = 60_000,
        limit_mw: int | None = 300_000,
        mig: bool | None = None,
    ) -> None:
        self.uuid = uuid
        self.energy_mj = energy_mj
        self.power_mw = power_mw
        self.limit_mw = limit_mw
        self.mig = mig
        self.error = 0

    def work(self, duration_ns: int) -> None:
        """Draw power for this long."""
        if self.energy_mj is not None and self.power_mw is not None:
            self.energy_mj += self.power_mw * duration_ns // 1_000_000_000


class FakeNvml:
    """A fake of the module pynvml.

    Attributes:
        users: the number of initializations without a shutdown.
    """

    NVMLError = FakeNvmlError

    def __init__(self, *gpus: FakeGpu, broken: int = 0) -> None:
        """Have these GPUs; `broken` is the error of the initialization."""
        self.users = 0
        self._gpus = gpus
        self._broken = broken

    def nvmlInit(self) -> None:  # NVML's names, here and below
        """See NVML."""
        if self._broken:
            raise FakeNvmlError(self._broken)
        self.users += 1

    def nvmlShutdown(self) -> None:  # as above
        """See NVML."""
        self.users -= 1

    def nvmlDeviceGetCount(self) -> int:  # as above
        """See NVML."""
        return len(self._gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> FakeGpu:  # as above
        """See NVML."""
        return self._gpus[index]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> FakeGpu:  # as above
        """See NVML."""
        return next(gpu for gpu in self._gpus if gpu.uuid == uuid)

    def nvmlDeviceGetUUID(self, gpu: FakeGpu) -> str:  # as above
        """See NVML."""
        return str(self._answer(gpu, gpu.uuid))

    def nvmlDeviceGetName(self, gpu: FakeGpu) -> str:  # as above
        """See NVML."""
        return str(self._answer(gpu, "Imagined GPU"))

    def nvmlDeviceGetTotalEnergyConsumption(self, gpu: FakeGpu) -> int:  # as above
        """See NVML."""
        return int(self._answer(gpu, gpu.energy_mj))

    def nvmlDeviceGetPowerUsage(self, gpu: FakeGpu) -> int:  # as above
        """See NVML."""
        return int(self._answer(gpu, gpu.power_mw))

    def nvmlDeviceGetEnforcedPowerLimit(self, gpu: FakeGpu) -> int:  # as above
        """See NVML."""
        return int(self._answer(gpu, gpu.limit_mw))

    def nvmlDeviceGetMigMode(self, gpu: FakeGpu) -> list[int]:  # as above
        """See NVML."""
        now = int(self._answer(gpu, gpu.mig))
        return [now, now]

    def _answer(self, gpu: FakeGpu, value: Any) -> Any:
        if gpu.error:
            raise FakeNvmlError(gpu.error)
        if value is None:
            raise FakeNvmlError(3)
        return value


def machine_at(
    folder: Path,
    *,
    clock: ManualClock,
    burner: Callable[[int], None] | None = None,
    nvml: FakeNvml | None = None,
    open_event: Callable[[int, int, int], int] | None = None,
) -> Machine:
    """Return the machine whose trees are in `sys` and `proc` of a folder.

    It has no GPU driver unless one is given.
    """

    def load() -> FakeNvml:
        if nvml is None:
            raise ImportError("no NVML")
        return nvml

    def refuse(pmu: int, config: int, cpu: int) -> int:
        raise OSError(f"no event {config} of PMU {pmu} on CPU {cpu}")

    return Machine(
        sysfs=folder / "sys",
        proc=folder / "proc",
        clock=clock,
        open_event=open_event or refuse,
        load_nvml=load,
        burner=burner or clock.advance,
    )
