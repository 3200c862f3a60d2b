"""DLIO's workloads, in sizes that a small machine can hold, and the options that DLIO is given."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import isqrt
from typing import Final

__all__ = ["ACCELERATORS", "INDEXED", "SCALES", "WORKLOADS", "Size", "Task", "Workload"]

ACCELERATORS: Final = ("h100", "a100", "b200")
SCALES: Final = ("tiny", "fit")


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The part of a workload that a run reads.

    Attributes:
        steps: of an epoch and a rank.
        batch: samples in a batch.
        shrink: the record length is divided by it.
    """

    steps: int
    batch: int
    shrink: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A workload of DLIO.

    Attributes:
        config: its configuration in DLIO's package, for the first accelerator of `step_s`.
        format: of its files.
        record_bytes: length of a record; a square of bytes, so up to a row less is made.
        spread_bytes: standard deviation of it.
        batches_per_file: batches that a file holds; 0 for a sample in each file, None for all in one file.
        step_s: computation time of a step, by accelerator.
        told: where times come from that are not DLIO's, by accelerator.
        sizes: by scale.
    """

    config: str
    format: str
    record_bytes: int
    spread_bytes: int = 0
    batches_per_file: int | None = 0
    step_s: Mapping[str, float]
    told: Mapping[str, str] = field(default_factory=dict[str, str])
    sizes: Mapping[str, Size]


_HALVED: Final = {"b200": "half of h100's, as MLPerf Storage v3.0 has it for unet3d; DLIO has none"}
_ONE_TIME: Final[Mapping[str, str]] = dict.fromkeys(ACCELERATORS, "DLIO's only time for this workload")
INDEXED: Final = "mmap_indexed_binary"
"""A format of DLIO's that EMLIO does not read: it serves the same samples as rows of an .npy file."""

_UNET3D: Final = Workload(
    config="unet3d_h100",
    format="npz",
    record_bytes=146_600_628,
    spread_bytes=68_341_808,
    step_s={"h100": 0.323, "a100": 0.636, "b200": 0.162},
    told={"b200": "MLPerf Storage v3.0's"},
    sizes={"tiny": Size(steps=8, batch=7, shrink=128), "fit": Size(steps=20, batch=7, shrink=32)},
)

WORKLOADS: Final[Mapping[str, Workload]] = {
    "unet3d": _UNET3D,
    "unet3d-npy": replace(_UNET3D, format="npy"),
    "resnet50": Workload(
        config="resnet50_h100",
        format="tfrecord",
        record_bytes=114_660,
        batches_per_file=1,
        step_s={"h100": 0.224, "a100": 0.435, "b200": 0.112},
        told=_HALVED,
        sizes={"tiny": Size(steps=8, batch=40), "fit": Size(steps=20, batch=400)},
    ),
    "cosmoflow": Workload(
        config="cosmoflow_h100",
        format="tfrecord",
        record_bytes=2_828_486,
        spread_bytes=71_311,
        step_s={"h100": 0.0035, "a100": 0.00551, "b200": 0.00175},
        told=_HALVED,
        sizes={"tiny": Size(steps=100, batch=1, shrink=16), "fit": Size(steps=800, batch=1, shrink=8)},
    ),
    "bert": Workload(
        config="bert_v100",
        format="tfrecord",
        record_bytes=2_500,
        batches_per_file=1,
        step_s=dict.fromkeys(ACCELERATORS, 0.968),
        told=_ONE_TIME,
        sizes={"tiny": Size(steps=4, batch=48), "fit": Size(steps=20, batch=48)},
    ),
    "megatron": Workload(
        config="megatron_deepspeed",
        format=INDEXED,
        record_bytes=2_048,
        batches_per_file=None,
        step_s=dict.fromkeys(ACCELERATORS, 0.03),
        told=_ONE_TIME,
        sizes={"tiny": Size(steps=20, batch=256), "fit": Size(steps=200, batch=1024)},
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """The work of a DLIO job, whichever its loader.

    Attributes:
        workload: name of the workload.
        accelerator: name of the accelerator.
        scale: "tiny" or "fit".
        ranks: emulated accelerators.
        epochs: epochs of a run.
        steps: of an epoch and a rank; 0 for the scale's.
        size: what a run reads.
    """

    workload: str
    accelerator: str
    scale: str
    ranks: int
    epochs: int
    steps: int = 0
    size: Size = field(init=False)

    def __post_init__(self) -> None:
        size = self.about.sizes[self.scale]
        object.__setattr__(self, "size", Size(steps=self.steps or size.steps, batch=size.batch, shrink=size.shrink))

    @property
    def about(self) -> Workload:
        """The workload."""
        return WORKLOADS[self.workload]

    @property
    def format(self) -> str:
        """Format of its files."""
        return self.about.format

    @property
    def step_s(self) -> float:
        """Computation time of a step."""
        return self.about.step_s[self.accelerator]

    @property
    def told(self) -> str:
        """The origin of that time, in words; empty if it is DLIO's own."""
        words = self.about.told.get(self.accelerator, "")
        return f" ({words})" if words else ""

    @property
    def per_file(self) -> int:
        """Samples in a file."""
        batches = self.about.batches_per_file
        return self.samples if batches is None else batches * self.size.batch or 1

    @property
    def samples(self) -> int:
        """Samples of an epoch, over all ranks."""
        return self.size.steps * self.size.batch * self.ranks

    @property
    def files(self) -> int:
        """Files of the dataset."""
        return self.samples // self.per_file

    @property
    def record_bytes(self) -> int:
        """Length of a record."""
        return self.about.record_bytes // self.size.shrink

    @property
    def row_bytes(self) -> int:
        """Bytes that DLIO makes of a record without a spread."""
        return isqrt(self.record_bytes) ** 2

    @property
    def size_bytes(self) -> int:
        """Size of the dataset, about."""
        return self.samples * self.record_bytes

    @property
    def needed_bytes_per_s(self) -> float:
        """Bytes that all ranks read in a second where none ever waits."""
        return self.ranks * self.size.batch * self.record_bytes / self.step_s

    @property
    def folder(self) -> str:
        """Name of its data's folder, the same for tasks with the same data."""
        return f"dlio-{self.workload}-{self.format}-{self.record_bytes}-x{self.samples}in{self.files}"

    def overrides(self) -> Iterator[str]:
        """Yield the options of DLIO that all runs of this task share."""
        about = self.about
        yield f"workload={about.config}"
        values: Mapping[str, object] = {
            "dataset.format": self.format,
            "dataset.num_files_train": self.files,
            "dataset.num_samples_per_file": self.per_file,
            "dataset.record_length": self.record_bytes,
            "dataset.record_length_stdev": about.spread_bytes // self.size.shrink,
            "reader.batch_size": self.size.batch,
            "train.epochs": self.epochs,
            "train.total_training_steps": -1,
            "train.computation_time": self.step_s,
            "workflow.checkpoint": False,
            "checkpoint.model_size": 0,  # DLIO would allocate it even so
            "checkpoint.layer_parameters": "[]",
            "checkpoint.optimization_groups": "[]",
        }
        for name, value in values.items():
            yield f"++workload.{name}={value}"
