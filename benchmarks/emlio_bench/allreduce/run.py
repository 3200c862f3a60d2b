"""`emlio-bench allreduce`: NCCL's all-reduce beside a loader that receives at full rate.

A training's gradients and its records share processors, memory and perhaps the network. In each
round the loader runs alone, the all-reduce alone, and both together.

Covers: the rounds, the figures. Does not cover: the processes that reduce
(emlio_bench.allreduce.reduce), the loader (emlio_bench.allreduce.load).
"""

import importlib
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from emlio.errors import ConfigError
from emlio.extras import how_to_install
from emlio.progress import Progress
from emlio_bench.allreduce.load import loaded
from emlio_bench.allreduce.reduce import Reducing, reducing, slice_of
from emlio_bench.allreduce.settings import AllReduceSettings
from emlio_bench.decode.subjects import is_installed
from emlio_bench.experiment.command import Command
from emlio_bench.experiment.data import prepared
from emlio_bench.experiment.figures import figure, ratio_values, results_of
from emlio_bench.harness.cuda import why_no_gpu
from emlio_bench.harness.results import Figure, Results
from emlio_bench.harness.runner import rotated
from emlio_bench.harness.scenario import delivery_scenario

__all__ = ["ALONE", "BESIDE", "COMMAND", "WAYS", "Round", "allreduce_figures", "run_allreduce"]

_RECORD_BYTES: Final = 100_000
_PAYLOAD_BYTES: Final = 1_000_000_000
_QUICK_PAYLOAD_BYTES: Final = 20_000_000
_QUICK_SPAN_NS: Final = 600_000_000
_QUICK_BUFFER_BYTES: Final = 1 << 20
_WARM_UP_BYTES: Final = 100_000_000

ALONE: Final = ("loader", "all-reduce")
BESIDE: Final = "both"
WAYS: Final = (*ALONE, BESIDE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Bytes per second of one round, alone and beside each other."""

    loader_alone: float
    loader_beside: float
    reduce_alone: float
    reduce_beside: float


def run_allreduce(settings: AllReduceSettings) -> Results:
    """Measure all rounds."""
    world = _world(settings.device)
    span_ns = _QUICK_SPAN_NS if settings.quick else settings.span
    buffer_bytes = _QUICK_BUFFER_BYTES if settings.quick else settings.buffer
    rounds = 1 if settings.quick else settings.repeats
    scenario = delivery_scenario(_RECORD_BYTES, _QUICK_PAYLOAD_BYTES if settings.quick else _PAYLOAD_BYTES)
    load = partial(
        loaded,
        batch_records=scenario.batch_records,
        record_bytes=_RECORD_BYTES,
        warm_up_bytes=min(_WARM_UP_BYTES, scenario.data.payload_bytes),
        span_ns=span_ns,
    )
    found: list[Round] = []
    with prepared(scenario.data, settings.data) as directory, Progress("rounds", rounds) as bar:
        for number in range(rounds):
            seen: dict[str, float] = {}
            for way in rotated(WAYS, number):
                if way == ALONE[0]:
                    seen["loader_alone"] = load(directory).bytes_per_s
                    continue
                with reducing(settings.device, world, _free_port(), buffer_bytes, slice_of(span_ns)) as group:
                    if way == BESIDE:
                        window = load(directory)
                        seen["loader_beside"] = window.bytes_per_s
                        seen["reduce_beside"] = group.bytes_per_s(window.begun_ns, window.ended_ns)
                    else:
                        seen["reduce_alone"] = _alone(group, span_ns)
            found.append(Round(**seen))
            bar.add(1)
    told: Mapping[str, object] = {
        "device": settings.device,
        "processes": world,
        "span_ns": span_ns,
        "buffer_bytes": buffer_bytes,
        "record_bytes": _RECORD_BYTES,
    }
    return results_of("allreduce", told, allreduce_figures(found, device=settings.device, world=world))


def _world(device: str) -> int:
    """Return the number of processes, one for each GPU.

    Raises:
        ConfigError: something is missing.
    """
    if not is_installed("torch"):
        raise ConfigError(f"an all-reduce needs PyTorch, which is not installed: {how_to_install('torch')}")
    if device == "cpu":
        return 1
    if (reason := why_no_gpu()) is not None:
        raise ConfigError(f"NCCL needs a GPU: {reason}; --device cpu shows Gloo in its place")
    torch: Any = importlib.import_module("torch")
    if not torch.cuda.is_available():
        raise ConfigError("NCCL needs a PyTorch that can use the GPU, and this one cannot")
    return int(torch.cuda.device_count())


def _alone(group: Reducing, span_ns: int) -> float:
    begun_ns = time.monotonic_ns()
    time.sleep(span_ns / 1e9)
    return group.bytes_per_s(begun_ns, begun_ns + span_ns)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def allreduce_figures(rounds: Sequence[Round], *, device: str, world: int) -> tuple[Figure, ...]:
    """Return the rates alone and beside each other, and their ratios within rounds."""
    note = _note(device, world)
    loader = [[getattr(one, f"loader_{way}") / 1e9 for one in rounds] for way in ("alone", "beside")]
    reduce = [[getattr(one, f"reduce_{way}") / 1e9 for one in rounds] for way in ("alone", "beside")]
    return (
        figure("loader alone", "GB/s", loader[0], note),
        figure("loader beside the all-reduce", "GB/s", loader[1]),
        figure("loader, beside / alone", "", ratio_values(loader[1], loader[0])),
        figure("all-reduce alone", "GB/s", reduce[0]),
        figure("all-reduce beside the loader", "GB/s", reduce[1]),
        figure("all-reduce, beside / alone", "", ratio_values(reduce[1], reduce[0])),
    )


def _note(device: str, world: int) -> str:
    rates = (
        "Rates of the all-reduce are bytes of its buffer, of one process; the loader reads on this host from a daemon."
    )
    if device == "cpu":
        return f"{rates}\nGloo in one process: this shows that the benchmark works, and nothing about NCCL."
    if world > 1:
        return f"{rates}\nNCCL between {world} GPUs of one host."
    return (
        f"{rates}\nOne GPU: a group of one process. NCCL runs its kernel for the mean, which reads and writes the buffer, and "
        "sends nothing:\nthis shows what they take from each other on the host and in the GPU's memory, not on a network."
    )


COMMAND: Final = Command(
    name="allreduce",
    settings=AllReduceSettings,
    run=run_allreduce,
    text="NCCL's all-reduce beside a loader that receives at full rate, on this host's GPUs",
)
