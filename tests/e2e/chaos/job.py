"""The training job of a run: its ranks as processes, what they say they took, its restarts.

Covers: starting, killing, restarting ranks; going on as another number of ranks; reading their logs as they grow. Does not cover:
when any of that happens (tests.e2e.chaos.injection), whether what they took is right (tests.e2e.chaos.judge).
"""

import json
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from emlio_testing.processes import RankProcess
from tests.e2e.chaos.judge import Batch, Life, progress_of
from tests.e2e.chaos.known import RECORDS
from tests.e2e.chaos.names import HostNames

__all__ = ["BATCH_SIZE", "EPOCHS", "Job", "Seat"]

EPOCHS = 2
BATCH_SIZE = 32
_PACE_S = 0.004
_SOURCE = Path(__file__).with_name("rank.py").read_text(encoding="utf-8")
_END_S = 10.0
_DOUBT = "must be those of the plan"


class Seat:
    """A rank of one life: the processes that held it one after the other, and all they took.

    Attributes:
        process: the one that holds it now, or None between two.
        done: whether it has taken everything and ended well.
        begun_ns: when each process began to make its loader.
        errors: what its processes ended with that they must not end with.
        closed_ns: when each loader was closed after which the process went on.
        closing: whether its latest process was asked to close its loader and did not yet.
        holds: whether its latest process was asked to take nothing more, and does so with its loader open.
        interrupts: how many its latest process took.
        doubts: how many of them took a daemon for one that breaks the plan; without a flipped bit none does.
    """

    def __init__(self, rank: int, life: Life, folder: Path) -> None:
        self.rank = rank
        self.label = f"{folder.name}, rank {rank} of {life.world_size}"
        self.process: RankProcess | None = None
        self.done = False
        self.begun_ns: list[int] = []
        self.closed_ns: list[int] = []
        self.closing = self.holds = False
        self.errors: list[str] = []
        self.interrupts = 0
        self.doubts = 0
        self._life = life
        self._folder = folder
        self._processes = 0
        self._log = folder / "none"
        self._read_bytes = 0

    @property
    def taken(self) -> list[Batch]:
        """What it took."""
        return self._life.taken[self.rank]

    @property
    def state(self) -> Mapping[str, Any] | None:
        """The last one it saved."""
        return self.taken[-1].state if self.taken else self._life.state

    @property
    def progress(self) -> int:
        """How far it is, in places of the whole job."""
        return progress_of(self.state, RECORDS)

    @property
    def is_under_way(self) -> bool:
        """Return whether its latest loader has given a batch and goes on, or all was taken."""
        if self.done:
            return True
        if len(self.begun_ns) != self._processes or not self.taken or self.closing:
            return False
        return self.taken[-1].at_ns > max(self.begun_ns[-1:] + self.closed_ns[-1:])

    def words(self, told: Mapping[str, Any]) -> dict[str, Any]:
        """What its next process is told."""
        return {
            **told,
            "tunes": (told.get("options", {}).get("seed", 0) + self.rank) % 2 == 1,
            "rank": self.rank,
            "world_size": self._life.world_size,
            "state": self.state,
            "epochs": EPOCHS,
            "pace_s": _PACE_S,
        }

    def start(self, told: Mapping[str, Any], environment: Mapping[str, str], python: Path | None = None) -> None:
        """Put a process there, which goes on from the last state."""
        self._log = self._folder / f"rank-{self.rank}-{self._processes}.log"
        self._processes += 1
        self.closing = self.holds = False
        self._read_bytes = 0
        words = json.dumps({**self.words(told), "log": str(self._log)})
        self.process = RankProcess(_SOURCE, words, environment=environment, python=python)

    def read(self) -> None:
        """Take note of what was written since the last look; of a line without an end nothing is known."""
        if not self._log.exists():
            return
        with self._log.open("rb") as file:
            file.seek(self._read_bytes)
            whole, end, _ = file.read().rpartition(b"\n")
        self._read_bytes += len(whole) + len(end)
        for line in whole.splitlines():
            self._note(json.loads(line))

    def _note(self, said: dict[str, Any]) -> None:
        match said["what"]:
            case "began":
                self.begun_ns.append(said["at"])
            case "batch":
                self.holds = False
                self.interrupts = said["interrupts"]
                self.taken.append(
                    Batch(
                        epoch=said["epoch"],
                        ids=said["ids"],
                        checksums=said["checksums"],
                        progress=progress_of(said["state"], RECORDS),
                        at_ns=said["at"],
                        waited_ns=said["waited"],
                        state=said["state"],
                    )
                )
            case "closed":
                self.closed_ns.append(said["at"])
                self.closing = False
            case "holds":
                self.holds = True
            case "done" if said["left"]:
                self.errors.append(f"{self.label} has threads left after close: {said['left']}")
            case _:
                pass

    def ask_to_close(self) -> None:
        """Have its process close its loader and make another."""
        if self.process is not None:
            self.closing = True
            self.process.send_signal(signal.SIGUSR1)

    def look_after(self) -> None:
        """Read on, and notice its end."""
        process = self.process
        ended = process is not None and not process.running
        self.read()
        if process is None or not ended:
            return
        self.process = None
        self._note_end(process)

    def kill(self) -> None:
        """SIGKILL, and read what it had written. One that had ended by itself is noticed, whatever comes in its place."""
        process = self.process
        if process is not None:
            self.process = None
            process.kill()
            self.read()
            self._note_end(process, -signal.SIGKILL)

    def _note_end(self, process: RankProcess, expected: int | None = None) -> None:
        status = process.finish(_END_S)
        self._keep(process)
        if status == 0:
            self.done = True
        elif status != expected:
            last = process.log.strip().splitlines()[-1:] or ["it wrote nothing"]
            self.errors.append(f"{self.label} ended with status {status}: {last[0]}")

    def _keep(self, process: RankProcess) -> None:
        self.doubts += _DOUBT in process.log
        self._log.with_suffix(".err").write_text(process.log + "\n", encoding="utf-8")


class Job:
    """All ranks. `lives` is what the judge looks at.

    Attributes:
        seats: the ranks of the life under way; none between two.
    """

    def __init__(self, folder: Path, told: Mapping[str, Any], environment: Mapping[str, str]) -> None:
        self.lives: list[Life] = []
        self.seats: list[Seat] = []
        self.all_seats: list[Seat] = []
        self._folder = folder
        self._told = told
        self._environment = environment

    @property
    def done(self) -> bool:
        """Whether every rank of the life under way has taken everything."""
        return bool(self.seats) and all(seat.done for seat in self.seats)

    @property
    def errors(self) -> list[str]:
        """What ranks ended with that they must not end with."""
        return [error for seat in self.all_seats for error in seat.errors]

    def progress(self, rank: int) -> float:
        """The share of the whole job that a rank has taken; of more ranks than there are the last counts."""
        if not self.seats:
            return 0.0
        return self.seats[rank % len(self.seats)].progress / (EPOCHS * RECORDS)

    def begin(self, world_size: int, state: Mapping[str, Any] | None = None) -> None:
        """Start all ranks from a state."""
        life = Life(world_size=world_size, state=state, taken=[[] for _ in range(world_size)])
        folder = self._folder / f"life-{len(self.lives)}"
        folder.mkdir(parents=True)
        self.lives.append(life)
        self.seats = [Seat(rank, life, folder) for rank in range(world_size)]
        self.all_seats += self.seats
        for seat in self.seats:
            self.start(seat)

    def start(self, seat: Seat) -> None:
        """Put a process on a seat."""
        seat.start(self._told, self._environment)

    def try_unlike(self, seat: Seat, differs: str) -> RankProcess:
        """Start a process with the seat's rank and another value of an option; it must be refused. The caller ends it."""
        options = {**self._told["options"], differs: self._told["options"][differs] + 1}
        words = {**seat.words(self._told), "options": options, "state": None, "log": os.devnull}
        return RankProcess(_SOURCE, json.dumps(words), environment=self._environment)

    def start_with_names(self, seat: Seat, names: HostNames) -> None:
        """Put a process on a seat that knows its daemons by names."""
        seat.start({**self._told, "address": names.named(self._told["address"])}, self._environment, names.python)

    def end_life(self) -> Mapping[str, Any] | None:
        """Kill all ranks; returns the state of the last step that all had done, which the next life begins from."""
        for seat in self.seats:
            seat.kill()
        slowest = min(self.seats, key=lambda seat: seat.progress)
        self.lives[-1].cut = slowest.progress
        self.seats = []
        return slowest.state

    def look_after(self) -> None:
        """Read what ranks wrote, notice ends."""
        for seat in self.seats:
            seat.look_after()

    def close(self) -> None:
        """End what still runs."""
        for seat in self.seats:
            seat.kill()
            if not seat.done:
                self.lives[-1].unfinished.add(seat.rank)
        self.seats = []

    def describe(self) -> str:
        """Where each rank is, in words."""
        now_ns = time.monotonic_ns()
        parts = []
        for seat in self.seats:
            how = "done" if seat.done else "running" if seat.process is not None else "not running"
            last = f", its last batch {(now_ns - seat.taken[-1].at_ns) / 1e9:.1f} s ago" if seat.taken else ""
            parts.append(f"rank {seat.rank} {how} at {seat.progress / (EPOCHS * RECORDS):.1%}{last}")
        return "; ".join(parts)
