"""Histories of ranks as in property/test_rank_histories, with a daemon and processes for ranks; 200 with `--slow`.

A daemon that forgets is restarted, a rank that dies is killed. A batch that does not come within a second has to wait.
"""

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from emlio_testing.datasets import make_dataset
from emlio_testing.processes import DaemonProcess, RankProcess
from emlio_testing.rank_histories import RECORDS, Stage, run

HEARTBEAT_S = 1.0

RANK = """
import json, sys, threading, queue
from emlio import EmlioLoader, Recovery

address, rank, world = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
loaders, asked = {}, {}

def say(what):
    print(json.dumps(what), flush=True)

def take(number):
    loader, passes = loaders[number]
    try:
        if passes is None:
            passes = iter(loader)
            loaders[number] = loader, passes
        next(passes)
        asked[number].put("took")
    except Exception as error:
        asked[number].put(f"{type(error).__name__}: {error}")

for line in sys.stdin:
    what, number, *rest = json.loads(line)
    if what == "make":
        seed, batch, at = rest
        loader = EmlioLoader(address, rank=rank, world_size=world, batch_size=batch, seed=seed, raw=True, to="numpy",
                             recovery=Recovery(timeout="40s", heartbeat="1s"), prefetch="1MiB")
        if at:
            loader.load_state_dict({**loader.state_dict(), "consumed": at * batch * world})
        loaders[number], asked[number] = (loader, None), None
        say("made")
    elif what == "take":
        if asked[number] is None:
            asked[number] = queue.SimpleQueue()
            threading.Thread(target=take, args=(number,), daemon=True).start()
        try:
            answer = asked[number].get(timeout=rest[0])
            asked[number] = None
            say(answer)
        except queue.Empty:
            say("waits")
    else:
        loaders.pop(number)[0].close()
        say("closed")
"""


class RealJob:
    """A job of real processes; see `emlio_testing.rank_histories.Job`."""

    def __init__(self, world: int, numbers: Path, folder: Path, stack: ExitStack, name: str) -> None:
        self._world, self._numbers, self._folder, self._stack, self._name = world, numbers, folder, stack, name
        self._daemon = self._serve()
        self._ranks: dict[int, tuple[RankProcess, int]] = {}
        self._refused: dict[int, str] = {}
        self._count = 0

    def _serve(self, *words: str) -> DaemonProcess:
        words = ("--heartbeat-timeout", f"{HEARTBEAT_S}s", *words)
        return self._stack.enter_context(DaemonProcess({"numbers": self._numbers}, *words, folder=self._folder))

    def _ask(self, rank: int, *what: Any) -> Any:
        if rank not in self._ranks:
            self._ranks[rank] = self._begin(rank), 0
        process, said = self._ranks[rank]
        process.tell(what)
        self._ranks[rank] = process, said + 1
        return process.line(said, 60.0)

    def _begin(self, rank: int) -> RankProcess:
        words = (self._daemon.address("numbers"), str(rank), str(self._world))
        return self._stack.enter_context(RankProcess(RANK, *words, environment={"EMLIO_JOB": self._name}, told=True))

    def make(self, rank: int, stage: Stage, *, at: int = 0) -> int:
        self._count += 1
        assert self._ask(rank, "make", self._count, stage.seed, stage.batch, at) == "made"
        return self._count

    def take(self, rank: int, loader: object) -> bool:
        answer = self._ask(rank, "take", loader, 1.0)
        if "RefusedError" in answer:
            self._refused[rank] = answer
        else:
            assert answer in ("took", "waits"), answer
        return bool(answer == "took")

    def close(self, rank: int, loader: object) -> None:
        self._ask(rank, "close", loader)

    def kill(self, rank: int) -> None:
        if rank in self._ranks:
            self._ranks.pop(rank)[0].kill()

    def start(self, rank: int) -> None:
        threading.Event().wait(2 * HEARTBEAT_S)

    def forget(self) -> None:
        peer = self._daemon.peer
        self._daemon.kill()
        self._daemon = self._serve("--bind", f"tcp://{peer}")
        threading.Event().wait(3 * HEARTBEAT_S)

    def wait(self) -> None:
        threading.Event().wait(3 * HEARTBEAT_S)

    def refused(self, rank: int) -> str | None:
        return self._refused.get(rank)


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("datasets") / "numbers"
    make_dataset(directory, records=RECORDS, shards=2)
    return directory


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def check(seed: int, numbers: Path, folder: Path, stack: ExitStack, *, agree: bool) -> None:
    ended = run(lambda world: RealJob(world, numbers, folder, stack, f"job-{seed}"), seed, agree=agree)
    refused = [ended.job.refused(number) for number in range(ended.world)]
    assert not agree or refused == [None] * ended.world, (seed, ended.told, refused)
    wrong = ended.oracle.wrong(ended.ranks, refused=any(refused))
    assert not wrong or (ended.unnoticed and not agree), (seed, wrong, ended.told, refused)
    assert all(rank.done or refused[number] for number, rank in enumerate(ended.ranks)), (seed, ended.told)


@pytest.mark.parametrize("agree", [True, False])
@pytest.mark.parametrize("seed", range(2))
def test_no_history_ends_badly(seed: int, agree: bool, numbers: Path, tmp_path: Path, stack: ExitStack) -> None:
    check(seed, numbers, tmp_path, stack, agree=agree)


@pytest.mark.slow
@pytest.mark.parametrize("agree", [True, False])
@pytest.mark.parametrize("seed", range(2, 100))
def test_no_history_of_two_hundred_ends_badly(
    seed: int, agree: bool, numbers: Path, tmp_path: Path, stack: ExitStack
) -> None:
    check(seed, numbers, tmp_path, stack, agree=agree)
