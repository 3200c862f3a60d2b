"""One run: a seed, its faults, two daemons, three ranks, two epochs, and the judgement.

Covers: the order of things in a run, its deadline, what must not be left behind. Does not cover: many runs (tests.e2e.chaos.cli).
"""

import dataclasses
import json
import os
import shutil
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from emlio.planner.plan import Plan, PlanSpec
from emlio_testing.processes import settles
from tests.e2e.chaos.agenda import Agenda
from tests.e2e.chaos.faults import Fault, Kind, Kinds, draw_schedule
from tests.e2e.chaos.host import Host
from tests.e2e.chaos.injected import Injected
from tests.e2e.chaos.injection import Injection
from tests.e2e.chaos.job import BATCH_SIZE, EPOCHS, Job
from tests.e2e.chaos.judge import judge
from tests.e2e.chaos.known import Known
from tests.e2e.chaos.names import HostNames
from tests.e2e.chaos.recovery import Recovery, measure_recovery
from tests.e2e.chaos.stage import Stage

__all__ = ["RunResult", "run_seed"]

_WORLD_SIZE = 3
_HANG_S = 45.0
"""Without a batch of any rank for so long; more than loaders wait before they give up, and a start beside it."""

_DEADLINE_S = 300.0
_LOOK_EVERY_S = 0.004
_REST_S = 8.0
_OPTIONS = {"heartbeat": "500ms", "timeout": "20s", "prefetch": "1MiB", "batch_size": BATCH_SIZE}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """What came of a run.

    Attributes:
        seed: drew its faults and its order.
        seconds: how long it took.
        schedule: the faults, in words; those that did not take place say so.
        recoveries: of those that did.
        delivered, lost, repeated, disordered, changed: records.
        hangs: 1 where it had to be ended.
        troubles: everything that was not as it must be.
    """

    seed: int
    seconds: float
    schedule: tuple[str, ...]
    recoveries: tuple[Recovery, ...]
    delivered: int
    lost: int
    repeated: int
    disordered: int
    changed: int
    hangs: int
    troubles: tuple[str, ...]

    @property
    def is_good(self) -> bool:
        """Whether all was as it must be."""
        return not self.troubles


def _own() -> tuple[int, int, int]:
    """Threads, descriptors and children of this process."""
    return threading.active_count(), len(os.listdir("/proc/self/fd")), len(psutil.Process().children())


def run_seed(seed: int, known: Known, kinds: Kinds, folder: Path, stage: Stage | None = None) -> RunResult:
    """Do one run.

    Args:
        seed: draws its faults and its order.
        known: the dataset.
        kinds: which faults may be drawn, and which of them cannot be done here.
        folder: where its logs lie afterwards, instead of those of an earlier one; it is removed if all was well.
        stage: one whose daemons live on; by default the run has its own.
    """
    begun = time.monotonic()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    before = _own()
    run = _Run(seed, known, draw_schedule(seed, kinds.asked, kinds.missing), folder)
    try:
        if stage is not None:
            stage.prepare()
            run.carry_out(stage)
        else:
            with Stage.for_schedule(known, folder / "stage", run.schedule) as own:
                run.carry_out(own)
    except (OSError, RuntimeError) as error:  # a TimeoutError of a daemon that did not start is an OSError, too
        run.troubles.append(f"the run broke off: {error}")
    if stage is None:
        shutil.rmtree(folder / "stage", ignore_errors=True)
        run.look_for_rest(before)
    result = run.result(time.monotonic() - begun)
    if result.is_good:
        shutil.rmtree(folder)
    else:
        run.keep_logs(result)
    return result


class _Run:
    def __init__(self, seed: int, known: Known, schedule: Sequence[Fault], folder: Path) -> None:
        self._seed = seed
        self._known = known
        self.schedule = schedule
        self._folder = folder
        self.troubles: list[str] = []
        self._hosts: list[Host] = []
        self._events: list[Injected] = []
        self._job: Job | None = None
        self._hangs = 0

    # ---- the course of it ---------------------------------------------------------------------------------------------

    def carry_out(self, stage: Stage) -> None:
        """From the first rank's start to the last one's end."""
        self._hosts = stage.hosts
        address = f"emlio://{','.join(host.peer for host in stage.hosts)}/data"
        environment = {"EMLIO_JOB": f"chaos-{self._seed}", **(stage.clocks[-1].environment if stage.clocks else {})}
        job = self._job = Job(
            self._folder, {"address": address, "options": {**_OPTIONS, "seed": self._seed}}, environment
        )
        agenda = Agenda()
        injection = Injection(
            hosts=stage.hosts,
            job=job,
            agenda=agenda,
            known=self._known,
            clocks=stage.clocks,
            disks=stage.disks,
            reads=stage.reads,
            names=HostNames(self._folder, [host.proxy.host for host in stage.hosts]),
        )
        self._events = injection.all
        try:
            job.begin(_WORLD_SIZE)
            self._watch(job, agenda, injection)
        finally:
            agenda.close()
            job.close()
            for host in stage.hosts:
                host.end_run()
        self.troubles += injection.troubles
        if not self.troubles and not job.errors:
            self._check_rest()

    def _watch(self, job: Job, agenda: Agenda, injection: Injection) -> None:
        due = list(self.schedule)
        begun = moved = time.monotonic()
        seen = 0
        while not job.done:
            job.look_after()
            if (taken := sum(len(seat.taken) for seat in job.all_seats)) > seen:
                seen, moved = taken, time.monotonic()
            for host in self._hosts:
                host.look_after()
            for fault in [fault for fault in due if job.progress(fault.rank) >= fault.at]:
                waits = fault.kind.of_shard and len(due) > 1
                if not waits and injection.is_possible(fault):
                    due.remove(fault)
                    injection.inject(fault)
            agenda.turn()
            if job.errors or injection.troubles or any(host.troubles for host in self._hosts):
                return
            now = time.monotonic()
            if now - moved > _HANG_S or now - begun > _DEADLINE_S:
                self._hangs = 1
                self.troubles.append(
                    f"it hangs: begun {now - begun:.0f} s ago, no batch for {now - moved:.0f} s: {job.describe()}"
                )
                return
            time.sleep(_LOOK_EVERY_S)

    def _check_rest(self) -> None:
        """Ranks are gone; what daemons held for them must go, too, at the latest when their heartbeats are missed."""
        for host in self._hosts:
            if host.process is not None and not settles(host.is_at_rest, _REST_S):
                self.troubles.append(
                    f"daemon {host.number} must have 2 ports and no connection when all ranks are gone, "
                    f"has {host.connections()}"
                )

    # ---- what came of it ------------------------------------------------------------------------------------------------

    def look_for_rest(self, before: tuple[int, int, int]) -> None:
        """Nothing of this process may be left: no thread, no descriptor, no child."""
        if not settles(lambda: all(now <= then for now, then in zip(_own(), before, strict=True)), _REST_S):
            self.troubles.append(
                f"(threads, descriptors, children) were {before} before the run, are {_own()} after it"
            )

    def result(self, seconds: float) -> RunResult:
        """The judgement."""
        job = self._job
        plan = Plan(self._known.catalog, PlanSpec(seed=self._seed, batch_size=BATCH_SIZE, world_size=_WORLD_SIZE))
        lives = job.lives if job is not None else []
        verdict = judge(lives, plan, self._known.checksums, EPOCHS)
        troubles = [*self.troubles, *(job.errors if job is not None else ()), *verdict.told]
        for host in self._hosts:
            troubles += host.troubles
        flipped = any(fault.kind in (Kind.NET_FLIP_DATA, Kind.NET_FLIP_CONTROL) for fault in self.schedule)
        if job is not None and not flipped and (doubts := sum(seat.doubts for seat in job.all_seats)):
            troubles.append(f"{doubts} ranks took a daemon for one that breaks the plan, and no bit was flipped")
        taken = [seat.taken for seat in job.all_seats] if job is not None else []
        return RunResult(
            seed=self._seed,
            seconds=seconds,
            schedule=self._words(),
            recoveries=tuple(measure_recovery(self._events, taken, [host.outages for host in self._hosts])),
            delivered=verdict.delivered,
            lost=verdict.lost,
            repeated=verdict.repeated,
            disordered=verdict.disordered,
            changed=verdict.changed,
            hangs=self._hangs,
            troubles=tuple(troubles),
        )

    def _words(self) -> tuple[str, ...]:
        happened = {id(event.fault): event for event in self._events}
        words: list[str] = []
        for fault in self.schedule:
            event = happened.get(id(fault))
            took_place = event is not None and event.begun_ns is not None
            notes = f" ({', '.join(event.notes)})" if event is not None and event.notes else ""
            words.append(f"{fault}{notes}" if took_place else f"{fault} (did not take place)")
        return tuple(words)

    def keep_logs(self, result: RunResult) -> None:
        for host in self._hosts:
            logs = [*host.logs, *([host.process.log] if host.process is not None else [])]
            text = "\n---- the next process ----\n".join(logs)
            (self._folder / f"daemon-{host.number}.log").write_text(text + "\n", encoding="utf-8")
        document = json.dumps(dataclasses.asdict(result), indent=1)
        (self._folder / "result.json").write_text(document + "\n", encoding="utf-8")
