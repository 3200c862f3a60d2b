"""A job whose number of ranks changes in the middle of an epoch, and one that torchrun starts again when a rank dies.

Covers: which records are handed out over all its lives, at the epoch's end too. Does not cover: what a state says
(unit/planner/test_state), kill -9 of a whole job and what its checkpoint holds (test_training).
"""

import io
import json
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from emlio.example import encode_example
from emlio.index.opening import open_dataset
from emlio.planner.catalog import Catalog
from emlio.planner.plan import Plan, PlanSpec
from emlio_testing.datasets import make_dataset
from emlio_testing.processes import DaemonProcess, RankProcess, settles
from emlio_testing.rank_groups import TORCH_ENVIRONMENT, TORCHRUN, end_all, finish_all

# ---- another number of ranks --------------------------------------------------------------------------------------------

RECORDS = 1000
EIGHT = {"world_size": 8, "batch_size": 7}
SIX = {"world_size": 6, "batch_size": 9}
BEFORE = 4 * 8 * 7 + 5 * 6 * 9  # records: four steps of eight ranks, five of six

# Some ranks of a job, each a loader. They go on from the state given, take so many batches, or the epoch's rest, and say what
# they had and where they are.
RANKS = """
import json, sys
from contextlib import ExitStack
from emlio import EmlioLoader, Recovery

address, ranks, state, steps, options = sys.argv[1], *map(json.loads, sys.argv[2:])
with ExitStack() as stack:
    loaders = [stack.enter_context(EmlioLoader(address, rank=rank, ids=True, raw=True, to="numpy",
                                               recovery=Recovery(timeout="30s"),
                                               prefetch="1MiB", **options)) for rank in ranks]
    if state is not None:
        for loader in loaders:
            loader.load_state_dict(state)
    said = [{"remaining": loader.remaining, "batches": []} for loader in loaders]
    iterations = [iter(loader) for loader in loaders]
    for step in range(said[0]["remaining"] if steps is None else steps):
        for saying, iteration in zip(said, iterations):
            batch = next(iteration)
            ids = batch["__id__"].tolist()
            assert [int.from_bytes(record[:8], "little") for record in batch["record"]] == ids
            saying["batches"].append(ids)
    for saying, iteration, loader in zip(said, iterations, loaders):
        assert steps is not None or next(iteration, None) is None
        saying["state"] = loader.state_dict()
    print(json.dumps(said))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """What a job's ranks saw from one start to one end: the records in their order, how many batches each, the state of all."""

    records: list[int]
    steps: int
    state: dict[str, Any]


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("datasets") / "numbers"
    make_dataset(directory, records=RECORDS, shards=5, payload=2000)
    return directory


@pytest.fixture(scope="module")
def order(numbers: Path) -> list[int]:
    """The first epoch's, as the plan has it."""
    with open_dataset("numbers", numbers) as dataset:
        epoch = Plan(Catalog(shards=tuple(dataset.entries)), PlanSpec(batch_size=1)).epoch(0)
    return epoch.ids_at(np.arange(RECORDS)).tolist()


@pytest.fixture(scope="module")
def served(numbers: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    with DaemonProcess({"numbers": numbers}, folder=tmp_path_factory.mktemp("daemon")) as daemon:
        yield daemon


def live(
    daemon: DaemonProcess, state: dict[str, Any] | None, steps: int | None, *, world_size: int, **options: Any
) -> Life:
    """One life of the job, its ranks in two processes, the even ones and the odd ones."""
    with ExitStack() as stack:
        processes: list[RankProcess] = []
        for first in range(2):
            orders = (list(range(first, world_size, 2)), state, steps, {"world_size": world_size, **options})
            process = RankProcess(RANKS, daemon.address("numbers"), *map(json.dumps, orders))
            processes.append(stack.enter_context(process))
        said = [process.line(0, 60.0) for process in processes]
        assert [process.finish() for process in processes] == [0, 0], "\n".join(process.log for process in processes)
    ranks = [said[rank % 2][rank // 2] for rank in range(world_size)]
    assert all(rank["state"] == ranks[0]["state"] for rank in ranks), "the state must be the same on all ranks"
    assert len({rank["remaining"] for rank in ranks}) == 1
    by_step = zip(*(rank["batches"] for rank in ranks), strict=True)
    records = list(chain.from_iterable(chain.from_iterable(by_step)))
    return Life(records=records, steps=ranks[0]["remaining"], state=ranks[0]["state"])


@pytest.fixture(scope="module")
def two_lives(served: DaemonProcess) -> Life:
    """Eight ranks, and six that went on from there."""
    eight = live(served, None, 4, **EIGHT)
    six = live(served, json.loads(json.dumps(eight.state)), 5, **SIX)
    return Life(records=eight.records + six.records, steps=0, state=six.state)


@pytest.mark.parametrize(
    ("batch", "rest"), [(10, 26), (14, 2)], ids=["a last step that is not full", "fewer records than ranks at the end"]
)
@pytest.mark.parametrize("ending", ["shared out", "pad", "drop_last"])
def test_eight_ranks_become_six_and_then_twelve_and_the_epoch_is_the_one_that_was_planned(
    served: DaemonProcess, two_lives: Life, order: list[int], batch: int, rest: int, ending: str
) -> None:
    assert two_lives.state["consumed"] == BEFORE
    assert (RECORDS - BEFORE) % (12 * batch) == rest
    options = {} if ending == "shared out" else {ending: True}
    twelve = live(served, two_lives.state, None, world_size=12, batch_size=batch, **options)
    handed_out = two_lives.records + twelve.records
    if ending == "drop_last":
        assert handed_out == order[: RECORDS - rest]
    else:
        # Each record once; where the last step has too few, the order begins again.
        wanted = 12 * batch if ending == "pad" else 12
        assert handed_out == order + order[: max(wanted - rest, 0)]
    assert twelve.steps == (RECORDS - BEFORE) // (12 * batch) + (ending != "drop_last")
    assert (twelve.state["epoch"], twelve.state["consumed"]) == (1, 0)


def test_after_such_an_epoch_any_number_of_ranks_has_the_next_one_whole(served: DaemonProcess, two_lives: Life) -> None:
    twelve = live(served, two_lives.state, None, world_size=12, batch_size=10)
    five = live(served, twelve.state, None, world_size=5, batch_size=12)
    assert sorted(five.records) == list(range(RECORDS))
    assert (five.state["epoch"], five.state["consumed"]) == (2, 0)


# ---- started again by torchrun ------------------------------------------------------------------------------------------

TRAIN = Path(__file__).parents[2] / "examples" / "train.py"
PICTURES = 150
START_S = 120.0  # three processes that import torch, on two busy cores


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    image = pytest.importorskip("PIL.Image", reason="the training example decodes with Pillow")

    def picture(record: int) -> bytes:
        written = io.BytesIO()
        image.new("RGB", (32, 32), (record, record, record)).save(written, "JPEG")
        return encode_example({"image/encoded": written.getvalue(), "image/class/label": record % 10})

    make_dataset(tmp_path / "pictures", records=PICTURES, shards=3, payload=picture)
    return tmp_path / "pictures"


def seen(steps: Path) -> list[dict[str, Any]]:
    """The whole lines of a step log, in the order they were written."""
    text = steps.read_text(encoding="utf-8") if steps.exists() else ""
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def rank_process(torchrun: RankProcess, rank: int) -> psutil.Process:
    for process in psutil.Process(torchrun.pid).children():
        if process.environ().get("RANK") == str(rank):
            return process
    raise AssertionError(f"torchrun must have a process of rank {rank}")


@pytest.mark.slow  # test_training kills a job and lets it go on from its checkpoint each time
@pytest.mark.usefixtures("torch_starts")
def test_when_a_rank_dies_torchrun_starts_all_again_and_each_picture_counts_once(
    pictures: Path, tmp_path: Path
) -> None:
    pytest.importorskip("torch", reason="the training example needs PyTorch")
    steps, checkpoint = tmp_path / "steps.jsonl", tmp_path / "run.pt"
    elastic = ["--standalone", "--nnodes=1", "--max-restarts=1", "--nproc-per-node=2", str(TRAIN)]
    usual = ["--model", "tiny", "--classes", "10", "--image-size", "32", "--device", "cpu", "--prefetch", "16MiB"]
    run = ["--epochs", "2", "--batch-size", "8", "--simulate-compute", "60ms", "--step-log", str(steps)]
    resume = ["--checkpoint", str(checkpoint), "--checkpoint-every", "3", "--resume"]
    # PyTorch 2.15 would else give the ranks of the second start the store of the first, with the addresses of dead processes.
    own_store = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    environment = {**TORCH_ENVIRONMENT, "GLOO_SOCKET_IFNAME": "lo", **own_store}
    with ExitStack() as stack:
        daemon = stack.enter_context(DaemonProcess({"pictures": pictures}, folder=tmp_path))
        words = (*elastic, daemon.address("pictures"), *usual, *run, *resume)
        job = stack.enter_context(RankProcess(TORCHRUN, *words, environment=environment))
        stack.callback(end_all, [job])
        reached = settles(lambda: not job.running or any(line["step"] >= 7 for line in seen(steps)), START_S)
        assert reached, job.log
        assert job.running, job.log
        rank_process(job, 1).send_signal(signal.SIGKILL)
        assert finish_all([job], START_S) == [0], job.log

    lines = seen(steps)
    owns = [[line for line in lines if line["rank"] == rank] for rank in range(2)]
    # A rank that died right after a checkpoint repeats no step.
    agains = [
        next((at for at in range(1, len(own)) if own[at]["step"] <= own[at - 1]["step"]), len(own)) for own in owns
    ]
    begins = {own[at]["step"] for own, at in zip(owns, agains, strict=True) if at < len(own)}
    assert len(begins) <= 1
    begun_again = min(begins, default=1 + max(line["step"] for line in lines))
    lives: dict[int, list[list[dict[str, Any]]]] = {}
    for rank, (own, at) in enumerate(zip(owns, agains, strict=True)):
        whole = at == len(own)
        second = [line for line in own if line["step"] >= begun_again] if whole else own[at:]
        lives[rank] = [[line for line in own[:at] if not whole or line["step"] < begun_again], second]
    assert begun_again >= 6, "the checkpoint is of every third step"
    assert all(first[-1]["step"] >= begun_again - 1 for first, _ in lives.values())
    for epoch in range(2):
        counted = Counter(
            record
            for first, second in lives.values()
            for line in [*(line for line in first if line["step"] < begun_again), *second]
            if line["epoch"] == epoch
            for record in line["ids"]
        )
        assert counted == Counter(range(PICTURES))
