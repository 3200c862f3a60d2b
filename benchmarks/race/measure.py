"""One run: a server at the storage's end of a fresh link, a consumer in a fresh process at the training's, everything metered.

Covers: starting and ending both, what they say, the time limit; a run that fails is a result too. Does not cover: which runs
there are (emlio.benchmarks.race.race), what the figures mean (emlio.benchmarks.race.standing).
"""

import logging
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from emlio.benchmarks.link.choice import open_link
from emlio.benchmarks.link.contract import Link, LinkKind
from emlio.benchmarks.link.held import Held
from emlio.benchmarks.link.spec import LinkSpec
from emlio.benchmarks.processes import Child
from emlio.benchmarks.race.failure import in_short
from emlio.benchmarks.race.halves import Halves, in_halves
from emlio.benchmarks.race.host_time import children, trees_cpu_ns
from emlio.benchmarks.race.in_flight import in_flight
from emlio.benchmarks.race.joules import Joules
from emlio.benchmarks.race.mounts import unmount_below
from emlio.benchmarks.race.order import Epoch, Finished, RaceOrder
from emlio.benchmarks.race.outcome import Contest, Run
from emlio.benchmarks.race.rival import Rival, Setting
from emlio.errors import TransportError

__all__ = ["Job", "run_once", "warm"]

_LOG: Final = logging.getLogger("emlio.benchmarks.race")
_START_S: Final = 120.0
"""For imports and whatever a system does before its first epoch begins, on top of the contest's limit."""
_END_S: Final = 45.0
_READ_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is to be run.

    Attributes:
        contest: what has to be done.
        rival: by whom.
        setting: how.
        prepared: the rival's own form of the records.
        spec: of the link.
        kind: of the link.
        round: for the result.
        place: likewise.
        seed: draws the order of records, another one in each round.
    """

    contest: Contest
    rival: Rival
    setting: Setting
    prepared: Path
    spec: LinkSpec
    kind: LinkKind
    round: int
    place: int
    seed: int

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.rival.name}, {self.setting.name}"


class _Heard:
    """What a consumer said and what was metered meanwhile, as it comes in: a run that fails half-way keeps it."""

    def __init__(self) -> None:
        self.epochs: list[Epoch] = []
        self.steps: list[tuple[int, int]] = []
        self.finished: Finished | None = None
        self.storage_cpu_ns = 0
        self.to_training_bytes = 0
        self.to_storage_bytes = 0
        self.dropped_packets = 0
        self.elapsed_ns = 0
        self.held = Held()
        self.failure: str | None = None

    def take(self, line: bytes) -> None:
        """A line of the consumer's."""
        said = msgspec.json.decode(line)
        if "epoch" in said:
            self.steps += msgspec.convert(said.get("steps", []), list[tuple[int, int]])
            self.epochs.append(msgspec.convert(said, Epoch))
        else:
            self.finished = msgspec.convert(said, Finished)


def run_once(job: Job, joules: Joules | None) -> Run:
    """Carry it out. Whatever the systems do wrong is told in the result.

    Args:
        job: what.
        joules: what tells the machine's energy, if anything does.
    """
    warm(job.prepared)
    heard = _Heard()
    with tempfile.TemporaryDirectory(prefix="emlio-race-client-", ignore_cleanup_errors=True) as folder:
        try:
            with open_link(job.spec, job.kind) as link:
                _carry_out(job, link, Path(folder), heard)
        except TransportError as error:
            _LOG.warning("%s: %s", job.name, error)
            heard.failure = in_short(str(error))
        finally:
            unmount_below(Path(folder))
    epochs = heard.epochs
    energy = (
        joules.used(epochs[0].begun_ns, epochs[-1].ended_ns, steps=heard.steps)
        if joules is not None and epochs
        else None
    )
    return Run(
        contest=job.contest.name,
        subject=job.rival.name,
        setting=job.setting.name,
        round=job.round,
        place=job.place,
        epochs=tuple(epochs),
        finished=heard.finished,
        storage_cpu_ns=heard.storage_cpu_ns,
        to_training_bytes=heard.to_training_bytes,
        to_storage_bytes=heard.to_storage_bytes,
        dropped_packets=heard.dropped_packets,
        elapsed_ns=heard.elapsed_ns,
        energy=energy,
        in_flight=in_flight(heard.held.to_training, epochs),
        failure=heard.failure,
    )


def warm(prepared: Path) -> None:
    """Have the kernel read all files below: what is measured is the link, not the storage's disks."""
    files = [prepared] if prepared.is_file() else [path for path in prepared.rglob("*") if path.is_file()]
    into = bytearray(_READ_BYTES)
    for path in files:
        with path.open("rb", buffering=0) as file:
            while file.readinto(into):
                pass


def _carry_out(job: Job, link: Link, folder: Path, heard: _Heard) -> None:
    others = children()
    client = folder / "client"
    client.mkdir()
    halves = in_halves(job.prepared) if job.contest.halves else None
    with job.rival.serve(job.prepared if halves is None else halves.storage, link) as url:
        servers = children() - others - set(link.pids)
        command = link.training.command(job.rival.command(_order(job, url, client, halves)))
        link.held()  # from here on it is gauged
        counts, cpu_ns, begun_ns = link.counts(), trees_cpu_ns(servers), time.monotonic_ns()
        try:
            with Child(job.name, command) as consumer:
                _listen(job, consumer, heard)
                heard.storage_cpu_ns = trees_cpu_ns(servers) - cpu_ns
                with suppress(TransportError):  # all is said; some hang at their end
                    consumer.rest(_END_S)
        finally:
            heard.elapsed_ns = time.monotonic_ns() - begun_ns
            after, heard.held = link.counts(), link.held()
            heard.to_training_bytes = after.to_training.wire_bytes - counts.to_training.wire_bytes
            heard.to_storage_bytes = after.to_storage.wire_bytes - counts.to_storage.wire_bytes
            heard.dropped_packets = sum(
                now.dropped_packets - before.dropped_packets
                for now, before in (
                    (after.to_training, counts.to_training),
                    (after.to_storage, counts.to_storage),
                )
            )


def _order(job: Job, url: str, client: Path, halves: Halves | None) -> RaceOrder:
    contest = job.contest
    return RaceOrder(
        url=url,
        corpus=contest.corpus,
        batch=contest.batch,
        epochs=contest.epochs,
        seed=job.seed,
        step_ns=contest.step_ns,
        limit_ns=contest.limit_ns,
        decode=contest.decode,
        here=str(halves.training) if halves is not None else "",
        folder=str(client),
        options=dict(job.setting.options),
    )


def _listen(job: Job, consumer: Child, heard: _Heard) -> None:
    """Until it has finished. Each epoch may take the contest's limit, the first its imports besides."""
    while heard.finished is None:
        limit_s = job.contest.limit_ns / 1e9 + _START_S
        line = consumer.line(limit_s)
        if line is None:
            raise TransportError(
                f"{job.name} must end an epoch or come to its limit, it said nothing for {limit_s:g} s"
            )
        heard.take(line)
