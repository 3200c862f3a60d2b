"""`emlio-bench energy`: training over a long link, with an energy report of both nodes.

Two hosts share one machine: a daemon and its recorder run on one, and `emlio energy run` with a
small training on the other. The training decodes pictures by Pillow and sleeps for each step in
place of a computation.

Covers: the pictures, the run, the checks of its report. Does not cover: the hosts
(emlio_bench.energy.hosts), the report (emlio.energy).
"""

import shutil
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from emlio import EmlioLoader
from emlio.energy.job.epoch_energy import Role
from emlio.energy.job.job_energy import Job, MeasuredEpoch, read_job
from emlio.energy.job.stage_table import View
from emlio.energy.report.job_report import job_text
from emlio.energy.report.stage_rows import stage_rows
from emlio.errors import ConfigError, TransportError
from emlio_bench.decode.order import IMAGE, LABEL
from emlio_bench.decode.pillow import RandomCrop
from emlio_bench.decode.run import make_pictures
from emlio_bench.energy.hosts import COMPUTE, two_hosts
from emlio_bench.harness.data import data_root
from emlio_bench.harness.environment import read_environment
from emlio_bench.harness.results import Figure, Results
from emlio_bench.harness.settings import EnergySettings
from emlio_bench.processes.child import Child, say

__all__ = ["Trained", "energy_figures", "run_energy", "train"]

_SIZE: Final = (500, 375)
_QUICK_SIZE: Final = (160, 120)
_QUICK_IMAGES: Final = 256
_THREADS: Final = 1
_SILENT_S: Final = 600.0
_NOTE: Final = (
    "Both hosts are one machine. An estimate is of how busy all of its processors are, so each node's has the work of both: the\n"
    "report shows its form and that its parts add up, and says nothing of what two machines would use."
)


class TrainingOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of the training."""

    address: str
    batch: int
    epochs: int
    step_ns: int


class Trained(msgspec.Struct, frozen=True, kw_only=True):
    """The last report of the training: the number of samples in each epoch."""

    samples: list[int]


def train(orders: bytes) -> None:
    """Run the training process."""
    order = msgspec.json.decode(orders, type=TrainingOrder)
    samples: list[int] = []
    with EmlioLoader(
        order.address,
        batch_size=order.batch,
        seed=1,
        fields=(IMAGE, LABEL),
        transform=RandomCrop(),
        threads=_THREADS,
        to="numpy",
    ) as loader:
        for _ in range(order.epochs):
            samples.append(0)
            for batch in loader:
                samples[-1] += len(batch["label"])
                time.sleep(order.step_ns / 1e9)
    say(Trained(samples=samples))


def run_energy(settings: EnergySettings) -> Results:
    """Run the training, and check its report."""
    if settings.out is not None and settings.out.exists() and any(settings.out.iterdir()):
        raise ConfigError(f"--out must be a new folder, {settings.out} has something in it")
    images = min(settings.images, _QUICK_IMAGES) if settings.quick else settings.images
    size = _QUICK_SIZE if settings.quick else _SIZE
    with data_root(settings.data) as root, _folder() as folder:
        pictures = make_pictures(images, size, root, progress=sys.stderr.isatty())
        trained, job = _measure(pictures.directory, folder, settings)
        if settings.out is not None:
            shutil.copytree(folder / "job", settings.out, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.sock"))
    if [one.samples for one in job.energies] != trained.samples:
        raise TransportError(
            f"the report must have the samples {trained.samples}, got {[one.samples for one in job.energies]}"
        )
    return Results(
        benchmark="energy",
        environment=read_environment(None),
        settings=(
            ("rtt_ns", str(settings.rtt)),
            ("images", str(images)),
            ("image_size", f"{size[0]}x{size[1]}"),
            ("batch", str(settings.batch)),
            ("epochs", str(settings.epochs)),
            ("step_ns", str(settings.step)),
            ("cpu_watts", settings.cpu_watts),
        ),
        figures=energy_figures(job, note=f"{_NOTE}\n\n{job_text(job)}"),
    )


@contextmanager
def _folder() -> Generator[Path]:
    with tempfile.TemporaryDirectory(prefix="emlio-bench-energy-") as folder:
        yield Path(folder)


def _measure(dataset: Path, folder: Path, settings: EnergySettings) -> tuple[Trained, Job]:
    watts = ("--cpu-watts", settings.cpu_watts) if settings.cpu_watts else ()
    with two_hosts(dataset, folder, rtt_ns=settings.rtt, source_flags=watts) as hosts:
        order = TrainingOrder(
            address=hosts.address, batch=settings.batch, epochs=settings.epochs, step_ns=settings.step
        )
        training = [
            sys.executable,
            "-m",
            "emlio_bench.processes.worker",
            "energy-train",
            msgspec.json.encode(order).decode(),
        ]
        words = ["energy", "run", "--out", str(folder / "job"), "--node", COMPUTE, *watts, "--", *training]
        with Child("the training", hosts.compute.emlio(*words)) as child:
            trained = child.hear(Trained, _SILENT_S)
            child.rest(_SILENT_S)
    return trained, read_job([folder / "job"])


def energy_figures(job: Job, *, note: str = "") -> tuple[Figure, ...]:
    """Return the figures of a report, with bounds for the sum of its parts and the clock offset."""
    epochs = job.epochs
    if not epochs or any(one.joined is None for one in epochs):
        raise TransportError("the training must have noted its epochs; the report has none")
    clocks = [clock for one in epochs for clock in _clocks(one)]
    if not clocks:
        raise TransportError(
            f"the storage node must be in the report; it has {', '.join(job.notes) or 'no word of it'}"
        )
    figures = [
        Figure(name="epoch", unit="s", values=tuple(one.energy.duration_ns / 1e9 for one in epochs)),
        Figure(
            name="both nodes",
            unit="J",
            values=tuple(_known(one.energy.total.energy_uj) / 1e6 for one in epochs),
            note=note,
        ),
        Figure(
            name="stages beside total",
            unit="µJ",
            values=tuple(float(_difference(one)) for one in epochs),
            at_most=0,
            every=True,
        ),
        Figure(name="clock offset found, true 0", unit="ms", values=tuple(abs(offset) / 1e6 for offset, _ in clocks)),
        Figure(name="its bound", unit="ms", values=tuple(error / 1e6 for _, error in clocks)),
        Figure(
            name="offset : bound",
            unit="",
            values=tuple(abs(offset) / error for offset, error in clocks),
            at_most=1,
            every=True,
        ),
        Figure(name="moments missed", unit="times", values=tuple(float(_missed(one)) for one in epochs)),
    ]
    return tuple(figures)


def _known(energy_uj: int | None) -> int:
    if energy_uj is None:
        raise TransportError("the energy of each epoch must be known, and of one it is not")
    return energy_uj


def _difference(epoch: MeasuredEpoch) -> int:
    """Return the difference between the sum of the stages and the compute nodes' total."""
    nodes = epoch.energy.with_role(Role.COMPUTE)
    stages = [row.total for row in stage_rows(nodes, View.BLOCKED) if row.stage is not None]
    return abs(sum(_known(one.energy_uj) for one in stages) - sum(_known(node.total.energy_uj) for node in nodes))


def _clocks(epoch: MeasuredEpoch) -> list[tuple[int, int]]:
    """Return offset and bound of each storage node's clock in the middle of the epoch."""
    if epoch.joined is None:
        return []
    node = epoch.joined.nodes[0]
    at_ns = (node.from_ns + node.to_ns) // 2
    fits = [one.clock for one in epoch.storage if one.clock is not None]
    return [(fit.theirs_at(at_ns) - at_ns, fit.error_at(at_ns)) for fit in fits]


def _missed(epoch: MeasuredEpoch) -> int:
    return sum(node.missed for node in epoch.energy.nodes)
