"""A rank of DLIO, in DLIO's environment: python rank.py ORDER, started by mpirun.

DLIO itself is not changed. What is around it is: modules that it imports and does not use are stand-ins, its communicator
measures barriers, and leaves out those that the order says, and files leave the page cache between epochs.
"""

# DLIO has no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false
import ctypes
import gc
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

__all__ = ["Barriers", "main"]

_STAND_INS: dict[str, dict[str, dict[str, Any]]] = {
    "tensorflow": {"tensorflow": {}},
    "torch": {
        "torch": {
            "mean": None,
            "__version__": "stand-in",
            "device": type("device", (), {}),
            "cuda": SimpleNamespace(is_available=lambda: False),
        }
    },
    "dali": {
        "nvidia": {},
        "nvidia.dali": {},
        "nvidia.dali.pipeline": {"Pipeline": None},
        "nvidia.dali.fn": {},
        "nvidia.dali.types": {},
    },
}
"""Modules that DLIO imports and does not use in a run, with what it looks up when it imports them."""


_NAP_S = 50e-6
_SET_TIMER_SLACK = 29


class Barriers:
    """DLIO's communicator. In an epoch only every `period`-th step has a barrier, or none if that is 0."""

    def __init__(self, communicator: Any, period: int) -> None:
        self._communicator = communicator
        self._period = period
        self._steps_left = self._step = 0
        self.step_wait_ns = self.end_wait_ns = self.cpu_ns = 0

    def begin(self, steps: int) -> None:
        """Begin an epoch: so many calls of `barrier` are those of steps."""
        self._steps_left, self._step = steps, 0

    def barrier(self) -> None:
        """Wait for all ranks, unless this barrier is left out."""
        in_step = self._steps_left > 0
        if in_step:
            self._steps_left -= 1
            self._step += 1
            if not self._period or self._step % self._period:
                return
        if in_step:
            self.step_wait_ns += self.wait()
        else:
            self.end_wait_ns += self.wait()

    def wait(self, before: Callable[[], None] = lambda: None) -> int:
        """Call a function, wait for all ranks, and return how long both took; their processor time is counted apart."""
        begun_ns, cpu_ns = time.monotonic_ns(), time.thread_time_ns()
        before()
        meeting = self._communicator.Ibarrier()
        while not meeting.Test():  # MPI would spin, and take the processors from those it waits for
            time.sleep(_NAP_S)
        self.cpu_ns += time.thread_time_ns() - cpu_ns
        return time.monotonic_ns() - begun_ns

    def __getattr__(self, name: str) -> Any:
        return getattr(self._communicator, name)


def _measured(benchmark: Any, order: dict[str, Any]) -> Any:
    """Return DLIO's benchmark, which also writes the time, the processor time and the waits of its run."""
    trees_cpu_ns = import_module("emlio_bench.race.run.one_machine").trees_cpu_ns

    class Measured(benchmark):  # type: ignore[misc]
        def __init__(self, config: Any) -> None:
            super().__init__(config)
            self.comm: Any = Barriers(self.comm, order["period"])
            self._forgetting_ns = 0

        def run(self) -> None:
            gc.collect()
            gc.freeze()  # as our loader does, for all: to look through what was imported takes 60 ms of some step
            self.comm.wait()
            self.comm.cpu_ns = 0
            begun_ns, begun_cpu_ns, machine_ns = time.monotonic_ns(), trees_cpu_ns([os.getpid()]), _machine_cpu_ns()
            super().run()
            figures = {
                "begun_ns": begun_ns,
                "ended_ns": time.monotonic_ns(),
                "cpu_ns": trees_cpu_ns([os.getpid()]) - begun_cpu_ns - self.comm.cpu_ns,
                "barrier_cpu_ns": self.comm.cpu_ns,
                "step_wait_ns": self.comm.step_wait_ns,
                "end_wait_ns": self.comm.end_wait_ns,
                "forgetting_ns": self._forgetting_ns,
                "machine_cpu_ns": _machine_cpu_ns() - machine_ns,
            }
            path = Path(self.args.output_folder, f"{self.my_rank}_figures.json")
            path.write_text(json.dumps(figures), encoding="utf-8")

        def _train(self, epoch: int) -> Any:
            self._forgetting_ns += self.comm.wait(partial(self._forget, epoch))
            self.comm.begin(self.num_samples * self.num_files_train // (self.batch_size * self.comm_size))
            return super()._train(epoch)

        def _forget(self, epoch: int) -> None:
            for folder in order["cold"] if self.my_rank == 0 else ():
                if epoch == 1 and os.path.ismount(folder):
                    continue  # a new mount, in which each file costs a round trip
                for path in filter(Path.is_file, Path(folder).rglob("*")):
                    with path.open("rb") as file:
                        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    return Measured


def _machine_cpu_ns() -> int:
    """Return how long all processors of the machine were busy."""
    user, nice, system, _, _, irq, softirq = map(
        int, Path("/proc/stat").read_text(encoding="ascii").split(maxsplit=8)[1:8]
    )
    return (user + nice + system + irq + softirq) * (1_000_000_000 // os.sysconf("SC_CLK_TCK"))


def main(order: dict[str, Any]) -> None:
    """Run DLIO."""
    ctypes.CDLL(None).prctl(_SET_TIMER_SLACK, 1)  # a computation is slept, and 50 us more by default
    tempfile.tempdir = order["scratch"]
    sys.path += order["paths"]
    if order["addresses"]:
        rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
        os.environ["EMLIO_DLIO_ADDRESS"] = order["addresses"][rank % len(order["addresses"])]
    for unused in order["unused"]:
        for name, members in _STAND_INS[unused].items():
            module = sys.modules[name] = ModuleType(name)
            module.__dict__.update(members)
            parent, _, last = name.rpartition(".")
            if parent:
                setattr(sys.modules[parent], last, module)
    dlio: Any = import_module("dlio_benchmark.main")
    dlio.DLIOBenchmark = _measured(dlio.DLIOBenchmark, order)
    if order["generates"] == "tfrecord":  # DLIO makes indexes for DALI with a program of DALI's
        import_module("dlio_benchmark.data_generator.tf_generator").__dict__["call"] = lambda command: 0
    sys.argv = ["dlio_benchmark", *order["overrides"]]
    dlio.main()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
