"""One run: a server and a consumer at the two ends of a link, with all meters.

Covers: starting and ending the consumer, its messages, the time limit; a failed run is a result
too. Does not cover: the server and the link (emlio_bench.race.run.sides), the list of runs
(emlio_bench.race.run.race), the meaning of the figures (emlio_bench.race.report.standing).
"""

import logging
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from emlio.errors import TransportError
from emlio_bench.link.contract import LinkKind
from emlio_bench.link.spec import LinkSpec
from emlio_bench.processes.child import Child
from emlio_bench.race.outcome import Contest, Run
from emlio_bench.race.records.order import Epoch, Finished, RaceOrder
from emlio_bench.race.run.failure import in_short
from emlio_bench.race.run.in_flight import in_flight
from emlio_bench.race.run.one_machine import OneMachine
from emlio_bench.race.run.sides import EnergyMeter, Serving, StorageSide, Traffic
from emlio_bench.race.servers.scratch import scratch_folder
from emlio_bench.race.systems.system import Setting, System

__all__ = ["Job", "run_once"]

_LOG: Final = logging.getLogger("emlio_bench.race")
_START_S: Final = 120.0
"""Time for imports and other work before the first epoch, in addition to the contest's limit."""
_END_S: Final = 45.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The description of one run.

    Attributes:
        contest: contest of the run.
        system: system to measure.
        setting: setting of the system.
        prepared: records in the system's own format, where the system reads them.
        spec: specification of the link.
        kind: implementation of the link.
        round: round of the run, for the result.
        place: position in the round, for the result.
        seed: seed of the order of records, different in each round.
    """

    contest: Contest
    system: System
    setting: Setting
    prepared: Path
    spec: LinkSpec
    kind: LinkKind
    round: int
    place: int
    seed: int

    @property
    def name(self) -> str:
        """Display name of the run."""
        return f"{self.system.name}, {self.setting.name}"


class _Heard:
    """The consumer's messages and the meters so far. A run that fails half-way keeps them."""

    def __init__(self) -> None:
        self.epochs: list[Epoch] = []
        self.steps: list[tuple[int, int]] = []
        self.finished: Finished | None = None
        self.storage_cpu_ns = 0
        self.traffic = Traffic()
        self.elapsed_ns = 0
        self.failure: str | None = None

    def take(self, line: bytes) -> None:
        """Handle a line of the consumer's output."""
        said = msgspec.json.decode(line)
        if "epoch" in said:
            self.steps += msgspec.convert(said.get("steps", []), list[tuple[int, int]])
            self.epochs.append(msgspec.convert(said, Epoch))
        else:
            self.finished = msgspec.convert(said, Finished)


def run_once(job: Job, joules: EnergyMeter | None, side: StorageSide | None = None) -> Run:
    """Carry out a run. A failure of the system is a part of the result.

    Args:
        job: description of the run.
        joules: meter of energy, or None.
        side: the storage host and the link to it; None for this machine and a link of its own.
    """
    heard = _Heard()
    side = side or OneMachine(job.kind)
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
            heard.failure = in_short(str(error))
    epochs = heard.epochs
    energy = (
        joules.used(
            epochs[0].begun_ns,
            epochs[-1].ended_ns,
            steps=heard.steps,
            compute_cpu_ns=None if heard.finished is None else heard.finished.cpu_ns,
            storage_cpu_ns=heard.storage_cpu_ns,
        )
        if joules is not None and epochs
        else None
    )
    return Run(
        contest=job.contest.name,
        subject=job.system.name,
        setting=job.setting.name,
        round=job.round,
        place=job.place,
        epochs=tuple(epochs),
        finished=heard.finished,
        storage_cpu_ns=heard.storage_cpu_ns,
        to_training_bytes=heard.traffic.to_training_bytes,
        to_storage_bytes=heard.traffic.to_storage_bytes,
        dropped_packets=heard.traffic.dropped_packets,
        elapsed_ns=heard.elapsed_ns,
        energy=energy,
        in_flight=in_flight(heard.traffic.held, epochs),
        failure=heard.failure,
    )


def _carry_out(job: Job, serving: Serving, folder: Path, heard: _Heard) -> None:
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


def _listen(job: Job, consumer: Child, heard: _Heard) -> None:
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
        heard.take(line)
