"""The training example as a job: torchrun, ranks that train together, kill -9, SIGTERM, checkpoints.

Covers: which records each rank trained on, what a resumed job repeats, that it learns the same.
Does not cover: how well it learns.
"""

import io
import json
import random
import re
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import pytest

from emlio.example import encode_example
from emlio_testing.datasets import make_dataset
from emlio_testing.ports import free_ports
from emlio_testing.processes import DaemonProcess, RankProcess, settles
from emlio_testing.rank_groups import RUN_SCRIPT, TORCH_ENVIRONMENT, TORCHRUN, end_all, finish_all, rank_variables

torch = pytest.importorskip("torch", reason="the training example needs PyTorch")
Image = pytest.importorskip("PIL.Image", reason="the training example decodes with Pillow")

TRAIN = Path(__file__).parents[2] / "examples" / "train.py"
RECORDS = 203
OTHERS = 33
STEP_TIME = "80ms"
DETERMINISTIC = ("--epochs", "2", "--batch-size", "8", "--deterministic", "--learning-rate", "2.0")
START_S = 120.0  # five processes that import torch, on two busy cores
END_S = 120.0

pytestmark = pytest.mark.usefixtures("torch_starts")


def picture(record: int) -> bytes:
    """A record with a small JPEG of its own."""
    pixels = np.random.default_rng(record).integers(0, 256, (4, 4, 3), np.uint8)
    written = io.BytesIO()
    Image.fromarray(pixels).resize((32, 32)).save(written, "JPEG")
    return encode_example({"image/encoded": written.getvalue(), "image/class/label": record % 10})


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    """A daemon with "pictures", 203 in 3 shards, and "others", 33."""
    folder = tmp_path_factory.mktemp("training")
    make_dataset(folder / "pictures", records=RECORDS, shards=3, payload=picture)
    make_dataset(folder / "others", records=OTHERS, shards=1, payload=picture)
    data = {name: folder / name for name in ("pictures", "others")}
    with DaemonProcess(data, "--heartbeat-timeout", "2s", folder=folder) as daemon:
        yield daemon


class Job:
    """The example as one process, as several ranks, or by torchrun; ended at the end of the `with`, whatever happens."""

    def __init__(self, folder: Path, address: str, *options: str, ranks: int = 0, torchrun: bool = False) -> None:
        """Start it.

        Args:
            folder: where its steps are logged.
            address: the dataset.
            options: more options of the example.
            ranks: number of ranks; 0 for one process outside a process group.
            torchrun: whether torchrun starts the ranks; else each is started as torchrun would.
        """
        self.steps = folder / f"steps-{len(list(folder.glob('steps-*')))}.jsonl"
        self.steps.touch()
        usual = ["--model", "tiny", "--classes", "10", "--image-size", "32", "--device", "cpu", "--prefetch", "16MiB"]
        words = [str(TRAIN), address, *usual, "--step-log", str(self.steps), *options]
        environment = {**TORCH_ENVIRONMENT, "GLOO_SOCKET_IFNAME": "lo"}
        if torchrun:
            launcher = ["--standalone", "--nproc-per-node", str(ranks)]
            self._processes = [RankProcess(TORCHRUN, *launcher, *words, environment=environment)]
            return
        (port,) = free_ports(1, "127.0.0.1")
        self._processes = [
            RankProcess(
                RUN_SCRIPT,
                *words,
                environment={**environment, **(rank_variables(rank, ranks, port) if ranks else {})},
            )
            for rank in range(ranks or 1)
        ]

    @property
    def log(self) -> str:
        """The standard error output of its processes."""
        return "".join(f"{process.log}\n" for process in self._processes if process.log)

    @property
    def lines(self) -> list[str]:
        """The lines of its standard output."""
        return [line for process in self._processes for line in process.output]

    def seen(self) -> list[dict[str, Any]]:
        """The steps logged so far."""
        text = self.steps.read_text(encoding="utf-8")
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]

    def reaches(self, step: int) -> None:
        """Wait until some rank has done this step."""
        reached = settles(lambda: any(line["step"] >= step for line in self.seen()) or not self.running, START_S)
        assert reached, f"step {step} was not reached within {START_S} s: {self.log}"
        assert self.running, f"the job ended before step {step}: {self.log}"

    @property
    def running(self) -> bool:
        """True if none of its processes has ended."""
        return all(process.running for process in self._processes)

    def terminate(self) -> None:
        """Send SIGTERM to each process that was started."""
        for process in self._processes:
            process.send_signal(signal.SIGTERM)

    def finish(self) -> int:
        """Return its exit status: 0, or one that is not 0 of its processes."""
        return max(finish_all(self._processes, END_S), key=abs)

    def kill(self) -> None:
        """kill -9 to all of its processes, each by its number."""
        end_all(self._processes)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()


def run(folder: Path, address: str, *options: str, ranks: int = 0) -> Job:
    """A job from its start to its good end."""
    with Job(folder, address, *options, ranks=ranks) as job:
        assert job.finish() == 0, job.log
    return job


def ids_of(steps: list[dict[str, Any]], epoch: int) -> Counter[int]:
    return Counter(record for line in steps if line["epoch"] == epoch for record in line["ids"])


def once_each(count: int = RECORDS) -> Counter[int]:
    return Counter(range(count))


def checkpoint(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = torch.load(path, weights_only=True)
    return content


@pytest.mark.parametrize(
    ("ranks", "epoch_steps", "last"), [(2, 13, 6), pytest.param(4, 7, 3, marks=pytest.mark.slow)], ids=["two", "four"]
)
def test_ranks_train_on_each_picture_once_an_epoch_in_equal_numbers_of_steps(
    served: DaemonProcess, tmp_path: Path, ranks: int, epoch_steps: int, last: int
) -> None:
    evaluated = ["--eval", served.address("others")]
    job = run(tmp_path, served.address("pictures"), "--epochs", "2", "--batch-size", "8", *evaluated, ranks=ranks)
    steps = job.seen()
    for epoch in range(2):
        assert ids_of(steps, epoch) == once_each()
        wanted = list(range(epoch_steps * epoch, epoch_steps * (epoch + 1)))
        for rank in range(ranks):
            assert sorted(s["step"] for s in steps if (s["rank"], s["epoch"]) == (rank, epoch)) == wanted, rank
    for step in range(2 * epoch_steps):
        sizes = [len(line["ids"]) for line in steps if line["step"] == step]
        assert max(sizes) - min(sizes) <= 1
        assert max(sizes) == (last if step % epoch_steps == epoch_steps - 1 else 8)
    # One line an epoch. 33 pictures leave one for the last step of two ranks or four: the repeated ones do not count.
    *epochs, last = job.lines
    assert [line.split("  ")[0] for line in epochs] == ["epoch 0", "epoch 1"]
    assert all(re.search(r"evaluation top-1 [0-9.]+% of 33$", line) for line in epochs), epochs
    assert re.match(r"trained \d+ steps to the end of epoch 1; checkpoint: ", last)


@pytest.mark.parametrize("seed", [11, pytest.param(12, marks=pytest.mark.slow)])
def test_after_kill_9_fewer_ranks_go_on_from_the_checkpoint_and_no_picture_is_lost_or_doubled(
    served: DaemonProcess, tmp_path: Path, seed: int
) -> None:
    killed_at = random.Random(seed).randrange(4, 20)
    told = f"seed {seed}, killed at step {killed_at}"
    kept = tmp_path / "run.pt"
    options = ["--epochs", "2", "--batch-size", "4", "--simulate-compute", STEP_TIME, "--checkpoint", str(kept)]
    with Job(tmp_path, served.address("pictures"), *options, "--checkpoint-every", "3", ranks=3) as first:
        first.reaches(killed_at)
        first.kill()
    saved = checkpoint(kept)
    second = run(tmp_path, served.address("pictures"), *options, "--resume", ranks=2)

    before = [line for line in first.seen() if line["step"] < saved["steps"]]
    after = [line for line in first.seen() if line["step"] >= saved["steps"]]
    resumed = second.seen()
    for epoch in range(2):
        assert ids_of(before, epoch) + ids_of(resumed, epoch) == once_each(), told
        # What came after the checkpoint is trained on again, once.
        assert all(ids_of(resumed, epoch)[record] == 1 for record in ids_of(after, epoch)), told
    assert saved["loader"]["consumed"] == ids_of(before, saved["loader"]["epoch"]).total(), told
    assert {line["rank"] for line in resumed} == {0, 1}, told
    assert min(line["step"] for line in resumed) == saved["steps"], told


@pytest.fixture(scope="module")
def whole(served: DaemonProcess, tmp_path_factory: pytest.TempPathFactory) -> tuple[Job, Path]:
    """A run of two epochs without an interruption, and its checkpoint."""
    folder = tmp_path_factory.mktemp("whole")
    kept = folder / "whole.pt"
    return run(folder, served.address("pictures"), *DETERMINISTIC, "--checkpoint", str(kept)), kept


def test_a_run_that_was_interrupted_learns_bit_for_bit_what_an_uninterrupted_one_does(
    served: DaemonProcess, whole: tuple[Job, Path], tmp_path: Path
) -> None:
    uninterrupted, kept = whole
    options = [*DETERMINISTIC, "--checkpoint", str(tmp_path / "parts.pt")]
    parts = [
        run(tmp_path, served.address("pictures"), *options, "--max-steps", "31").seen(),
        run(tmp_path, served.address("pictures"), *options, "--resume").seen(),
    ]
    assert [len(part) for part in parts] == [31, 21]
    assert parts[0] + parts[1] == uninterrupted.seen()
    ends = [checkpoint(path) for path in (kept, tmp_path / "parts.pt")]
    networks = [end["learner"]["network"] for end in ends]
    momenta = [end["learner"]["optimiser"]["state"] for end in ends]
    assert all(torch.equal(networks[0][name], networks[1][name]) for name in networks[0])
    assert all(torch.equal(momenta[0][n]["momentum_buffer"], momenta[1][n]["momentum_buffer"]) for n in momenta[0])
    assert not torch.equal(networks[0]["0.weight"], torch.zeros_like(networks[0]["0.weight"]))
    assert torch.equal(ends[0]["random"][0]["cpu"], ends[1]["random"][0]["cpu"])


@pytest.mark.parametrize("ranks", [2, pytest.param(0, marks=pytest.mark.slow)])
def test_sigterm_saves_where_all_ranks_stopped_and_the_next_run_goes_on_there(
    served: DaemonProcess, tmp_path: Path, ranks: int
) -> None:
    kept = tmp_path / "run.pt"
    options = ["--epochs", "1", "--batch-size", "4", "--checkpoint", str(kept), "--resume"]
    # --resume without a file begins anew.
    with Job(
        tmp_path, served.address("pictures"), *options, "--simulate-compute", STEP_TIME, ranks=ranks, torchrun=ranks > 0
    ) as stopped:
        stopped.reaches(3)
        assert not kept.exists()
        stopped.terminate()
        status = stopped.finish()
    # What torchrun makes of a signal is its own affair.
    assert status == 143 if not ranks else status != 0, stopped.log
    assert min(line["step"] for line in stopped.seen()) == 0
    seen = ids_of(stopped.seen(), 0)
    assert {line["step"] for line in stopped.seen()} == set(range(checkpoint(kept)["steps"]))
    assert checkpoint(kept)["loader"]["consumed"] == seen.total() < RECORDS
    rest = run(tmp_path, served.address("pictures"), *options)
    assert seen + ids_of(rest.seen(), 0) == once_each()


def test_a_checkpoint_of_another_dataset_is_refused_with_the_reason(
    served: DaemonProcess, whole: tuple[Job, Path], tmp_path: Path
) -> None:
    options = ["--epochs", "1", "--batch-size", "8", "--checkpoint", str(whole[1])]
    with Job(tmp_path, served.address("others"), *options, "--resume") as refused:
        assert refused.finish() == 1
    assert refused.seen() == []
    # Triton, which PyTorch imports, may write lines of its own when the interpreter ends.
    said, *others = refused.log.splitlines()
    assert re.fullmatch(r"train.py: rank 0: .*whole.pt does not fit this run: .*state of another dataset.*", said)
    assert not any("Traceback" in line or "train.py" in line for line in others)
