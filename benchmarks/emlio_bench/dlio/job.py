"""One job of DLIO: its processes at the training end of a link, and what they wrote."""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import msgspec

import emlio
import emlio_bench
from emlio.errors import ConfigError, TransportError
from emlio_bench.dlio.utilisation import RankEpoch, read_epochs
from emlio_bench.dlio.workloads import Task
from emlio_bench.link.contract import HERE, LinkEnd
from emlio_bench.processes.child import Child
from emlio_bench.race.needs.environments import environment_python

__all__ = ["ENVIRONMENT", "TENSORFLOW", "Counts", "Figures", "Output", "check_delivered", "generate", "run_job"]

ENVIRONMENT: Final = "dlio"
TENSORFLOW: Final = "tf"
_IMPORTED: Final = ("dali", "tensorflow", "torch")
"""The modules that DLIO imports; rank.py has stand-ins for those that a run does not use."""
_RANK: Final = Path(__file__).with_name("rank.py")
_OURS: Final = "emlio.dlio.DlioLoader"
_USED: Final = "Running DLIO with custom data loader class DlioLoader"
_START_S: Final = 180.0
_SLOWEST: Final = 60.0
"""A run that takes longer than this times what its steps compute is ended."""


class Figures(msgspec.Struct, frozen=True):
    """The figures of a rank, as rank.py writes them."""

    begun_ns: int
    ended_ns: int
    cpu_ns: int
    barrier_cpu_ns: int
    step_wait_ns: int
    end_wait_ns: int
    forgetting_ns: int = 0
    machine_cpu_ns: int = 0


class Counts(msgspec.Struct, frozen=True):
    """The counts that `emlio.dlio` writes, as far as it is used here."""

    batches: int
    records: int
    bad_records: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """The files that a job wrote.

    Attributes:
        epochs: by rank.
        figures: by rank.
        counts: by rank; empty if the loader is not ours.
        log: DLIO's log.
    """

    epochs: Sequence[Sequence[RankEpoch]]
    figures: Sequence[Figures]
    counts: Sequence[Counts]
    log: str


def generate(task: Task, folder: Path, cache: Path) -> None:
    """Let DLIO make a task's data in a folder."""
    overrides = [
        *task.overrides(),
        f"++workload.dataset.data_folder={folder}",
        "++workload.workflow.generate_data=True",
        "++workload.workflow.train=False",
        "++workload.framework=pytorch",
        "++workload.reader.data_loader=custom",
        f"++workload.checkpoint.checkpoint_folder={folder.parent}/checkpoints",
        f"hydra.run.dir={folder.parent}/generated",
    ]
    uses = "tensorflow" if task.format == "tfrecord" else ""
    _mpirun(task, overrides, cache, ranks=1, end=HERE, uses=uses, generates=True)


def run_job(
    task: Task,
    loader: str,
    folder: Path,
    out: Path,
    *,
    cache: Path,
    end: LinkEnd,
    period: int,
    cold: Sequence[Path],
    addresses: Sequence[str] = (),
) -> Output:
    """Run a job, and read what it wrote.

    Args:
        task: what it does.
        loader: "synthetic" (DLIO's own without I/O), "stock" or "emlio".
        folder: DLIO's data folder: data, or placeholders.
        out: empty folder of what it writes.
        cache: folder of environments.
        end: end of a link where it runs.
        period: steps from one barrier to the next; 0 for none in an epoch.
        cold: folders that leave the page cache before each epoch.
        addresses: of the data, for "emlio": each rank's, in turns.

    Raises:
        TransportError: a rank failed.
    """
    stock = "tensorflow" if task.format == "tfrecord" else "pytorch"
    reader: Mapping[str, object] = {
        "synthetic": {"data_loader": "synthetic", "data_loader_sampler": "index"},
        "stock": {"data_loader": stock},
        "emlio": {"data_loader": "custom", "data_loader_classname": _OURS, "data_loader_sampler": "iterative"},
    }[loader]
    overrides = [
        *task.overrides(),
        f"++workload.framework={stock if loader == 'stock' else 'pytorch'}",
        f"++workload.dataset.data_folder={folder}",
        f"++workload.checkpoint.checkpoint_folder={out}/checkpoints",
        *(f"++workload.reader.{name}={value}" for name, value in reader.items()),
        f"hydra.run.dir={out}",
    ]
    _mpirun(
        task,
        overrides,
        cache,
        ranks=task.ranks,
        end=end,
        uses=stock.removeprefix("py") if loader == "stock" else "",
        period=period,
        cold=cold,
        addresses=addresses,
    )
    return _read(task, out, ours=loader == "emlio")


def _mpirun(
    task: Task,
    overrides: Sequence[str],
    cache: Path,
    *,
    ranks: int,
    end: LinkEnd,
    uses: str,
    generates: bool = False,
    period: int = 1,
    cold: Sequence[Path] = (),
    addresses: Sequence[str] = (),
) -> None:
    python = environment_python(ENVIRONMENT, cache)
    if python is None:
        raise ConfigError(f"the environment {ENVIRONMENT} must be made in {cache}, it is not")
    with TemporaryDirectory(prefix="emlio-dlio-") as scratch:  # where DLIO's workers leave their sockets
        order: dict[str, Any] = {
            "paths": [*(_tensorflow(cache) if uses == "tensorflow" else ()), *_own_paths()],
            "unused": [name for name in _IMPORTED if name != uses],
            "overrides": list(overrides),
            "generates": task.format if generates else "",
            "period": period,
            "cold": [str(one) for one in cold],
            "addresses": list(addresses),
            "scratch": scratch,
        }
        command = [str(python.with_name("mpirun")), "--oversubscribe", "-n", str(ranks)]
        command += ["--allow-run-as-root"] if os.geteuid() == 0 else []
        command += [str(python), "-P", str(_RANK), msgspec.json.encode(order).decode()]
        settings = {"DFTRACER_ENABLE": "0", "TF_CPP_MIN_LOG_LEVEL": "3", "HYDRA_FULL_ERROR": "1"}
        command = ["env", *(f"{name}={value}" for name, value in settings.items()), *command]
        with Child("DLIO", end.command(command)) as job:
            computing_s = task.epochs * task.size.steps * task.step_s
            job.rest(_START_S + _SLOWEST * computing_s)


def _tensorflow(cache: Path) -> list[str]:
    python = environment_python(TENSORFLOW, cache)
    if python is None:
        raise ConfigError(f"the environment {TENSORFLOW} must be made in {cache}, it is not")
    return [str(path) for path in python.parents[1].glob("lib/python*/site-packages")]


def _own_paths() -> list[str]:
    """Return where this process finds EMLIO, its benchmarks, and what they need."""
    packages = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    return [*packages, *(str(Path(str(one.__file__)).parents[1]) for one in (emlio, emlio_bench))]


def _read(task: Task, out: Path, *, ours: bool) -> Output:
    ranks = range(task.ranks)
    try:
        outputs = [msgspec.json.decode((out / f"{rank}_output.json").read_bytes()) for rank in ranks]
        figures = [msgspec.json.decode((out / f"{rank}_figures.json").read_bytes(), type=Figures) for rank in ranks]
        log = (out / "dlio.log").read_text(encoding="utf-8", errors="replace")
        names = [out / f"emlio-train-{rank}.json" for rank in ranks] if ours else []
        counts = [msgspec.json.decode(name.read_bytes(), type=Counts) for name in names]
    except FileNotFoundError as error:
        raise TransportError(f"DLIO must have written {error.filename}, it has not") from error
    epochs = [read_epochs(output, task.epochs, task.size.batch) for output in outputs]
    check_delivered(task, epochs, counts, log, ours=ours)
    return Output(epochs=epochs, figures=figures, counts=counts, log=log)


def check_delivered(
    task: Task, epochs: Sequence[Sequence[RankEpoch]], counts: Sequence[Counts], log: str, *, ours: bool
) -> None:
    """Refuse a run in which DLIO did not take each step, or took another loader than ours and it was to be ours.

    Raises:
        TransportError: it is so; the message says why.
    """
    steps = task.size.steps
    taken = [[len(epoch.load) for epoch in rank] for rank in epochs]
    if any(number != steps for rank in taken for number in rank):
        raise TransportError(f"each rank must take {steps} steps in each epoch, they took {taken}")
    if (_USED in log) != ours:
        raise TransportError(f"DLIO must say in its log {_USED!r} if and only if the loader is ours")
    if not ours:
        return
    batches = steps * task.epochs
    if [one.batches for one in counts] != [batches] * task.ranks:
        raise TransportError(f"each rank must be handed {batches} batches, got {[one.batches for one in counts]}")
    records, expected = sum(one.records - one.bad_records for one in counts), batches * task.size.batch * task.ranks
    if records != expected:
        raise TransportError(f"verified records must be steps x batch x ranks, {expected:,}, got {records:,}")
