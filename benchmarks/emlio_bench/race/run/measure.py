"""One run: a server and a consumer at the two ends of a link, with all meters."""

import logging
import re
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from emlio.errors import TransportError
from emlio_bench.harness.contest import Contest
from emlio_bench.harness.results import Run
from emlio_bench.harness.spread import Value
from emlio_bench.link.contract import LinkSpec
from emlio_bench.processes.child import Child
from emlio_bench.race.records.order import Epoch, Finished, RaceOrder
from emlio_bench.race.run.joules import Energy, EnergyMeter
from emlio_bench.race.run.one_machine import Serving, StorageSide
from emlio_bench.race.run.values import Heard, exactness, values_of
from emlio_bench.race.servers.scratch import scratch_folder
from emlio_bench.race.systems.system import Setting, System

__all__ = ["Job", "Look", "run_once"]

_LOG: Final = logging.getLogger("emlio_bench.race")
_START_S: Final = 120.0
"""Time for imports and other work before the first epoch, in addition to the contest's limit."""
_END_S: Final = 45.0
_NAMES_ERROR: Final = re.compile(r"[\w.]*(?:Error|Exception)\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The description of one run.

    Attributes:
        contest: contest of the run.
        system: system to measure.
        setting: setting of the system.
        prepared: records in the system's own format, where the system reads them.
        spec: specification of the link.
        round: round of the run, for the result.
        place: position in the round, for the result.
        seed: seed of the order of records, different in each round.
    """

    contest: Contest
    system: System
    setting: Setting
    prepared: Path
    spec: LinkSpec
    round: int
    place: int
    seed: int

    @property
    def name(self) -> str:
        """Display name of the run."""
        return f"{self.system.name}, {self.setting.name}"


Look = Callable[[Contest, Heard], dict[str, float]]
"""Returns more values of a run that ended."""


def run_once(job: Job, side: StorageSide, joules: EnergyMeter | None = None, look: Look | None = None) -> Run:
    """Measure one run.

    Args:
        job: what is measured.
        side: the storage side.
        joules: records energy; None if nothing does.
        look: returns more values; None for no more.
    """
    heard = Heard()
    with scratch_folder("client") as folder:
        try:
            with side.serving(
                job.system,
                job.prepared,
                spec=job.spec,
                halves=job.contest.halves,
                corpus=job.contest.corpus,
                folder=folder,
            ) as serving:
                _carry_out(job, serving, folder, heard)
        except TransportError as error:
            _LOG.warning("%s: %s", job.name, error)
            heard.failure = _in_short(str(error))
    return _run_of(job, heard, _energy(heard, joules), look)


def _energy(heard: Heard, joules: EnergyMeter | None) -> Energy | None:
    if joules is None or not heard.epochs:
        return None
    return joules.used(
        heard.epochs[0].begun_ns,
        heard.epochs[-1].ended_ns,
        steps=heard.steps,
        compute_cpu_ns=None if heard.finished is None else heard.finished.cpu_ns,
        storage_cpu_ns=heard.storage_cpu_ns,
    )


def _run_of(job: Job, heard: Heard, energy: Energy | None, look: Look | None) -> Run:
    values = values_of(job.contest, heard, energy)
    if look is not None and heard.failure is None and heard.epochs:
        values |= {name: Value(value=value) for name, value in look(job.contest, heard).items()}
    words = {
        "exact": exactness(job.contest, heard.epochs) if heard.failure is None else "",
        "energy": "" if energy is None else energy.told,
        "memory": "RSS" if heard.finished is not None and not heard.finished.peak_pss_bytes else "",
    }
    learned = heard.epochs[0] if heard.epochs and heard.epochs[0].losses else None
    return Run(
        scenario=job.contest.name,
        subject=job.system.name,
        setting=job.setting.name,
        round=job.round,
        place=job.place,
        values=values,
        words={name: told for name, told in words.items() if told},
        series={}
        if learned is None
        else {"loss": learned.losses, "seconds": tuple(after_ns / 1e9 for after_ns in learned.learned_ns)},
        failure=heard.failure,
    )


def _in_short(failure: str) -> str:
    """Return the first line of a failure, and the last line of what the process said that names an error."""
    first, *said = [line.strip() for line in failure.splitlines() if line.strip()] or [""]
    named = [line for line in said if _NAMES_ERROR.match(line)] or said
    return " ".join((first, *named[-1:]))


def _carry_out(job: Job, serving: Serving, folder: Path, heard: Heard) -> None:
    client = folder / "client"
    client.mkdir()
    command = serving.training.command(job.system.command(_order(job, serving, client)))
    serving.begin()
    begun_ns = time.monotonic_ns()
    try:
        with Child(job.name, command) as consumer:
            _listen(job, consumer, heard)
            heard.storage_cpu_ns = serving.cpu_ns()
            with suppress(TransportError):  # all messages have arrived; some systems hang when they end
                consumer.rest(_END_S)
    finally:
        heard.elapsed_ns = time.monotonic_ns() - begun_ns
        heard.traffic = serving.traffic()


def _order(job: Job, serving: Serving, client: Path) -> RaceOrder:
    contest = job.contest
    return RaceOrder(
        url=serving.url,
        corpus=contest.corpus,
        batch=contest.batch,
        epochs=contest.epochs,
        seed=job.seed,
        step_ns=contest.step_ns,
        limit_ns=contest.limit_ns,
        decode=contest.decode,
        decoders=contest.decoders,
        train=contest.train,
        here=serving.here,
        folder=str(client),
        options=dict(job.setting.options),
    )


def _listen(job: Job, consumer: Child, heard: Heard) -> None:
    """Read the consumer's messages until it has finished.

    Each epoch may take the contest's limit plus `_START_S`, which allows for imports before the
    first epoch.
    """
    while heard.finished is None:
        limit_s = job.contest.limit_ns / 1e9 + _START_S
        line = consumer.line(limit_s)
        if line is None:
            raise TransportError(
                f"{job.name} must end an epoch or come to its limit, it said nothing for {limit_s:g} s"
            )
        _take(heard, line)


def _take(heard: Heard, line: bytes) -> None:
    said = msgspec.json.decode(line)
    if "epoch" in said:
        heard.steps += msgspec.convert(said.get("steps", []), list[tuple[int, int]])
        heard.epochs.append(msgspec.convert(said, Epoch))
    else:
        heard.finished = msgspec.convert(said, Finished)
