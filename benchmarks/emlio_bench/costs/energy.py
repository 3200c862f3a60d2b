"""The energy of a storage and a training node: training over a long link, with `emlio energy`'s report of both.

Two hosts share one machine: a daemon and its recorder run on one, and `emlio energy run` with a small training
on the other. The training decodes pictures by Pillow and sleeps for each step in place of a computation.
"""

import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from emlio import EmlioLoader
from emlio.energy.job.epoch_energy import TOTAL, Role
from emlio.energy.job.job_energy import Job, MeasuredEpoch, read_job
from emlio.energy.job.stages import View
from emlio.energy.report.text import job_text
from emlio.errors import TransportError
from emlio_bench.costs.hosts import COMPUTE, two_hosts
from emlio_bench.costs.settings import CostsSettings
from emlio_bench.decode.order import IMAGE, LABEL
from emlio_bench.decode.pillow import RandomCrop
from emlio_bench.decode.run import make_pictures
from emlio_bench.harness.data import data_root
from emlio_bench.harness.figures import figure
from emlio_bench.harness.results import Figure
from emlio_bench.processes.child import Child, say, worker_command

__all__ = ["energy_figures", "job_figures", "train"]

_BATCH: Final = 32
_EPOCHS: Final = 2
_STEP_NS: Final = 400_000_000
_QUICK_STEP_NS: Final = 50_000_000
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


def energy_figures(settings: CostsSettings) -> Iterator[Figure]:
    """Run the training, and yield the figures of its report."""
    images, size, step_ns = (256, (160, 120), _QUICK_STEP_NS) if settings.quick else (1024, (500, 375), _STEP_NS)
    with data_root(settings.data) as root, tempfile.TemporaryDirectory(prefix="emlio-bench-energy-") as name:
        pictures = make_pictures(images, size, root, progress=sys.stderr.isatty())
        trained, job = _measure(pictures.directory, Path(name), settings, step_ns)
        if settings.out is not None:
            job_folder, sockets = Path(name) / "job", shutil.ignore_patterns("*.sock")
            shutil.copytree(job_folder, settings.out, dirs_exist_ok=True, ignore=sockets)
    if [one.samples for one in job.report.epochs] != trained.samples:
        raise TransportError(
            f"the report must have the samples {trained.samples}, got {[one.samples for one in job.report.epochs]}"
        )
    yield from job_figures(job, note=f"{_NOTE}\n\n{job_text(job.report)}")


def _measure(dataset: Path, folder: Path, settings: CostsSettings, step_ns: int) -> tuple[Trained, Job]:
    watts = ("--cpu-watts", settings.cpu_watts) if settings.cpu_watts else ()
    with two_hosts(dataset, folder, rtt_ns=settings.rtt, source_flags=watts) as hosts:
        order = TrainingOrder(address=hosts.address, batch=_BATCH, epochs=_EPOCHS, step_ns=step_ns)
        training = worker_command("energy-train", order)
        words = ["energy", "run", "--out", str(folder / "job"), "--node", COMPUTE, *watts, "--", *training]
        with Child("the training", hosts.compute.emlio(*words)) as child:
            trained = child.hear(Trained, _SILENT_S)
            child.rest(_SILENT_S)
    return trained, read_job([folder / "job"])


def job_figures(job: Job, *, note: str = "") -> tuple[Figure, ...]:
    """Return the figures of a report, with bounds for the sum of its parts and the clock offset."""
    epochs = job.epochs
    if not epochs:
        raise TransportError("the training must have noted its epochs; the report has none")
    clocks = [clock for one in epochs for clock in _clocks(one)]
    if not clocks:
        raise TransportError(
            f"the storage node must be in the report; it has {', '.join(job.report.job.notes) or 'no word of it'}"
        )
    joules = (_known(one.energy.total.energy_uj) / 1e6 for one in epochs)
    beside = (float(_difference(one)) for one in epochs)
    shares = (abs(offset) / error for offset, error in clocks)
    return (
        figure("epoch", "s", (one.energy.seconds for one in epochs)),
        figure("both nodes", "J", joules, note),
        figure("stages beside total", "µJ", beside, at_most=0, every=True),
        figure("clock offset found, true 0", "ms", (abs(offset) / 1e6 for offset, _ in clocks)),
        figure("its bound", "ms", (error / 1e6 for _, error in clocks)),
        figure("offset : bound", "", shares, at_most=1, every=True),
        figure("moments missed", "times", (float(_missed(one)) for one in epochs)),
    )


def _known(energy_uj: int | None) -> int:
    if energy_uj is None:
        raise TransportError("the energy of each epoch must be known, and of one it is not")
    return energy_uj


def _difference(epoch: MeasuredEpoch) -> int:
    """Return the difference between the sum of the stages and the compute nodes' total."""
    nodes = epoch.energy.with_role(Role.COMPUTE)
    stages = [row.total for node in nodes for row in node.stages[View.BLOCKED] if row.stage != TOTAL]
    return abs(sum(_known(one.energy_uj) for one in stages) - sum(_known(node.total.energy_uj) for node in nodes))


def _clocks(epoch: MeasuredEpoch) -> list[tuple[int, int]]:
    """Return offset and bound of each storage node's clock in the middle of the epoch."""
    node = epoch.joined.nodes[0]
    at_ns = (node.from_ns + node.to_ns) // 2
    fits = [one.clock for one in epoch.storage if one.clock is not None]
    return [(fit.theirs_at(at_ns) - at_ns, fit.error_at(at_ns)) for fit in fits]


def _missed(epoch: MeasuredEpoch) -> int:
    return sum(node.missed_ticks for node in epoch.energy.nodes)
