"""The energy of a storage and a training node: training over a long link, with `emlio energy`'s report of both.

Two hosts share one machine: a daemon and its recorder run on one, and `emlio energy run` with a small training
on the other. The training decodes pictures by Pillow and sleeps for each step in place of a computation.
"""

import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from emlio import EmlioLoader
from emlio.energy.job.epoch_energy import TOTAL, Role
from emlio.energy.job.job_energy import Job, MeasuredEpoch, read_job
from emlio.energy.job.stages import View
from emlio.energy.recording.store import Store
from emlio.energy.report.text import job_text
from emlio.errors import ConfigError, TransportError
from emlio_bench.costs.settings import CostsSettings
from emlio_bench.decode.order import IMAGE, LABEL
from emlio_bench.decode.pillow import RandomCrop
from emlio_bench.decode.run import make_pictures
from emlio_bench.harness.data import data_root
from emlio_bench.harness.results import Figure, figure
from emlio_bench.harness.sides import running_daemon
from emlio_bench.link.contract import LinkEnd, LinkSpec
from emlio_bench.link.emulated import EmulatedLink, why_not
from emlio_bench.processes.child import Child, say, worker_command

__all__ = [
    "COMPUTE",
    "STORAGE",
    "Host",
    "TwoHosts",
    "energy_figures",
    "job_figures",
    "train",
    "two_hosts",
    "why_no_hosts",
]

STORAGE: Final = "storage-1"
COMPUTE: Final = "train-1"
_PORT: Final = 5555
_LOOK_S: Final = 0.02
_ENTER: Final = 'mount --bind "$1" /proc/sys/kernel/random/boot_id && shift && exec "$@"'
_EMLIO: Final = "import sys; from emlio.cli import main; sys.exit(main())"


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """One host.

    Attributes:
        name: name of the node in its recording.
        end: end of the link.
        boot: file that holds its boot id.
    """

    name: str
    end: LinkEnd
    boot: Path

    def command(self, argv: Sequence[str]) -> list[str]:
        """Return the command line that runs a program on this host."""
        entered = ["unshare", "--mount", "sh", "-c", _ENTER, "sh", str(self.boot), *argv]
        return self.end.command(entered)

    def emlio(self, *words: str) -> list[str]:
        """Return the command line that runs `emlio` on this host."""
        return self.command([sys.executable, "-c", _EMLIO, *words])


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoHosts:
    """Both hosts while they are up.

    Attributes:
        compute: the training node.
        storage: the storage node, which records its energy.
        address: address of the storage node's daemon, with its dataset.
    """

    compute: Host
    storage: Host
    address: str


def why_no_hosts() -> str | None:
    """Return the reason why two hosts are impossible here, or None."""
    if shutil.which("unshare") is None:
        return "two hosts need the program unshare, of util-linux"
    reason = why_not()
    return None if reason is None else f"a link between two hosts {reason}"


@contextmanager
def two_hosts(dataset: Path, folder: Path, *, rtt_ns: int, source_flags: Sequence[str]) -> Generator[TwoHosts]:
    """Start both hosts; the storage node records its energy and serves one dataset.

    Args:
        dataset: directory of the dataset.
        folder: folder for the hosts' files.
        rtt_ns: time that the link adds to a round trip.
        source_flags: flags of `emlio energy record` on the storage node, besides the output file.
    """
    reason = why_no_hosts()
    if reason is not None:
        raise ConfigError(reason)
    with EmulatedLink(LinkSpec(rtt_ns=rtt_ns)) as link, ExitStack() as stack:
        storage = _host(STORAGE, link.storage, folder)
        recorded = folder / "storage.sqlite"
        flags = ["--out", str(recorded), "--node", STORAGE, *source_flags]
        recorder = stack.enter_context(Child("the recorder", storage.emlio("energy", "record", *flags)))
        recorder.wait_until(lambda: recorded.exists() and _has_readings(recorded), _LOOK_S)
        serving = ["--bind", f"tcp://{storage.end.address}:{_PORT}", "--insecure", "--energy", str(recorded)]
        daemon = stack.enter_context(running_daemon(dataset, serving, within=storage.command))
        yield TwoHosts(compute=_host(COMPUTE, link.training, folder), storage=storage, address=daemon.address)


def _host(name: str, end: LinkEnd, folder: Path) -> Host:
    boot = folder / f"{name}.boot"
    boot.write_text(f"{uuid.uuid4()}\n", encoding="ascii")
    return Host(name=name, end=end, boot=boot)


def _has_readings(path: Path) -> bool:
    try:
        with Store(path) as store:
            return bool(store.load().readings)
    except ConfigError:  # the file is not complete yet
        return False


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
