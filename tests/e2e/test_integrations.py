"""The examples with Lightning, Accelerate, transformers and torch.distributed.checkpoint.

With --fresh-starts each is started as a user starts it. Otherwise the ranks of Lightning and Accelerate are forked.

Covers: which records come on which rank and step, against a plan computed from the files alone; checkpoints that the frameworks
write in the middle and at the end of an epoch, and going on from them. Does not cover: what the models learn.
"""

import importlib.util
import json
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest

from emlio.cli import main as emlio
from emlio.index.opening import open_dataset
from emlio.planner.catalog import Catalog
from emlio.planner.order import Shuffle
from emlio.planner.plan import Plan, PlanSpec
from emlio_testing.fork_server.client import ForkServer
from emlio_testing.processes import DaemonProcess, run_python
from emlio_testing.rank_groups import TORCH_ENVIRONMENT, run_script

RECORDS = 101  # divides by no number of ranks or batches used here
BATCH = 8
EPOCHS = 2
SEED = 42  # the examples'
TWO = 2
STEPS = 7  # of an epoch on two ranks
STOPS = [
    pytest.param(3, 3 * BATCH * TWO, id="in the middle of an epoch"),
    pytest.param(STEPS, RECORDS, id="at its end"),
]
END_S = 120.0
EXAMPLES = Path(__file__).parents[2] / "examples"
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node")
IMPORTED = ("accelerate", "lightning.pytorch")

pytestmark = pytest.mark.usefixtures("torch_starts", "frameworks")

Seen = dict[tuple[int, int], list[list[int]]]
"""Rank and epoch to the ids of each batch."""


def needs(*packages: str) -> pytest.MarkDecorator:
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("integrations") / "pictures"
    made = ["synth", str(folder), "--records", str(RECORDS), "--image-size", "64x48", "--shard-size", "100kB"]
    assert emlio(made) == 0
    return folder


@pytest.fixture(scope="module")
def frameworks(torch_server: ForkServer | None) -> None:
    """The processes of this module are forked with the frameworks imported, too."""
    if torch_server is not None:
        torch_server.load(*(name for name in IMPORTED if importlib.util.find_spec(name.partition(".")[0])))


@pytest.fixture(scope="module")
def address(pictures: Path) -> Iterator[str]:
    with DaemonProcess({"pictures": pictures}, folder=pictures.parent) as daemon:
        yield daemon.address("pictures")


def python(*words: object) -> None:
    """Run a Python to its end."""
    run_python(*words, timeout_s=END_S, environment=TORCH_ENVIRONMENT)


def on_two_ranks(script: Path, *words: object, launcher: tuple[object, ...] = ()) -> None:
    """Run a script on two ranks to their end; `launcher` starts them for users."""
    run_script(script, *words, ranks=TWO, launcher=launcher, timeout_s=END_S, environment=TORCH_ENVIRONMENT)


def seen(lines: Path) -> Seen:
    """What an example wrote down."""
    found: Seen = {}
    for line in lines.read_text(encoding="utf-8").splitlines():
        batch = json.loads(line)
        found.setdefault((batch["rank"], batch["epoch"]), []).append(batch["ids"])
    return found


def planned(pictures: Path, ranks: int, consumed: int = 0) -> Seen:
    """What has to come in the two epochs, or in what is left of them once so much of the first is consumed."""
    with open_dataset("pictures", pictures) as dataset:
        catalog = Catalog(shards=tuple(dataset.entries))
    plan = Plan(catalog, PlanSpec(seed=SEED, shuffle=Shuffle.parse(True), batch_size=BATCH, world_size=ranks))
    found: Seen = {}
    for epoch in range(EPOCHS):
        part = plan.epoch(epoch, consumed if epoch == 0 else 0)
        for rank in range(ranks):
            batches = [part.ids(rank, *part.batch_slots(rank, step)).tolist() for step in range(part.steps)]
            if batches:
                found[rank, epoch] = batches
    return found


def assert_whole_epochs(found: Seen) -> None:
    """Each record once per epoch over both ranks, as many steps on each, another order each time."""
    assert sorted(found) == [(rank, epoch) for rank in range(TWO) for epoch in range(EPOCHS)]
    for epoch in range(EPOCHS):
        parts = [found[rank, epoch] for rank in range(TWO)]
        assert [len(part) for part in parts] == [STEPS] * TWO
        assert sorted(chain.from_iterable(chain.from_iterable(parts))) == list(range(RECORDS))
    assert found[0, 0] != found[0, 1]


@pytest.fixture(scope="module")
def lightning(address: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a job that was never stopped left its checkpoints, and what it saw."""
    folder: Path = tmp_path_factory.mktemp("lightning")
    kept = ["--folder", folder, "--save-every", 1, "--ids", folder / "seen"]
    on_two_ranks(EXAMPLES / "with_lightning.py", *with_lightning(address), *kept)  # it starts its ranks itself
    return folder


def with_lightning(address: str) -> list[object]:
    return [address, "--batch-size", BATCH, "--devices", TWO, "--epochs", EPOCHS]


@pytest.mark.slow  # that of Accelerate is tested each time
@needs("lightning", "PIL")
def test_lightning_gives_two_ranks_each_record_once(lightning: Path, pictures: Path) -> None:
    assert_whole_epochs(seen(lightning / "seen"))
    assert seen(lightning / "seen") == planned(pictures, TWO)


@pytest.mark.slow  # that of Accelerate is tested each time
@needs("lightning", "PIL")
@pytest.mark.parametrize(("step", "consumed"), STOPS)
def test_lightning_goes_on_where_its_checkpoint_was_written(
    lightning: Path, address: str, pictures: Path, tmp_path: Path, step: int, consumed: int
) -> None:
    resume = ["--folder", tmp_path, "--resume", lightning / f"step={step}.ckpt", "--ids", tmp_path / "seen"]
    on_two_ranks(EXAMPLES / "with_lightning.py", *with_lightning(address), *resume)
    assert seen(tmp_path / "seen") == planned(pictures, TWO, consumed)


@pytest.fixture(scope="module")
def transformers(address: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `lightning`."""
    folder: Path = tmp_path_factory.mktemp("transformers")
    python(*with_transformers(address), "--folder", folder, "--save-every", 1, "--ids", folder / "seen")
    return folder


def with_transformers(address: str) -> list[object]:
    script = EXAMPLES / "with_transformers.py"
    return [*TORCHRUN, TWO, script, address, "--batch-size", BATCH, "--epochs", EPOCHS]


@pytest.mark.slow  # that of Accelerate is tested each time
@needs("transformers", "accelerate", "PIL")
def test_transformers_gives_two_ranks_each_record_once(transformers: Path, pictures: Path) -> None:
    assert_whole_epochs(seen(transformers / "seen"))
    assert seen(transformers / "seen") == planned(pictures, TWO)


@pytest.mark.slow
@needs("transformers", "accelerate", "PIL")
@pytest.mark.parametrize(("step", "consumed"), STOPS)
def test_transformers_goes_on_where_its_checkpoint_was_written(
    transformers: Path, address: str, pictures: Path, tmp_path: Path, step: int, consumed: int
) -> None:
    resume = ["--folder", tmp_path, "--resume", transformers / f"checkpoint-{step}", "--ids", tmp_path / "seen"]
    python(*with_transformers(address), *resume)
    assert seen(tmp_path / "seen") == planned(pictures, TWO, consumed)


@needs("accelerate", "PIL")
def test_accelerate_gives_two_ranks_each_record_once_and_goes_on_with_one(
    address: str, pictures: Path, tmp_path: Path
) -> None:
    script, words = EXAMPLES / "with_accelerate.py", [address, "--batch-size", BATCH, "--epochs", EPOCHS]
    kept = ["--folder", tmp_path / "run", "--save-every", 3, "--ids", tmp_path / "whole"]
    on_two_ranks(script, *words, *kept, launcher=(*TORCHRUN, TWO))
    assert_whole_epochs(seen(tmp_path / "whole"))
    assert seen(tmp_path / "whole") == planned(pictures, TWO)
    consumed = 3 * BATCH * TWO
    resume = ["--resume", tmp_path / "run" / f"epoch-0-at-{consumed}", "--ids", tmp_path / "rest"]
    resume += ["--folder", tmp_path / "again"]
    run_script(script, *words, *resume, timeout_s=END_S, environment=TORCH_ENVIRONMENT)
    assert seen(tmp_path / "rest") == planned(pictures, 1, consumed)


@pytest.mark.slow
@needs("torch", "PIL")
def test_a_distributed_checkpoint_of_one_rank_goes_on_with_two_and_of_two_with_one(
    address: str, pictures: Path, tmp_path: Path
) -> None:
    script = [EXAMPLES / "with_checkpoint.py", address, "--batch-size", BATCH, "--epochs", EPOCHS, "--save-every", 3]
    first, second = tmp_path / "first", tmp_path / "second"
    python(*script, "--folder", first, "--ids", tmp_path / "whole")
    assert seen(tmp_path / "whole") == planned(pictures, 1)
    consumed = 3 * BATCH
    resume = ["--resume", first / f"epoch-0-at-{consumed}", "--ids", tmp_path / "two"]
    python(*TORCHRUN, TWO, *script, "--folder", second, *resume)
    assert seen(tmp_path / "two") == planned(pictures, TWO, consumed)
    consumed += 3 * BATCH * TWO
    resume = ["--resume", second / f"epoch-0-at-{consumed}", "--ids", tmp_path / "one"]
    python(*script, "--folder", tmp_path / "third", *resume)
    assert seen(tmp_path / "one") == planned(pictures, 1, consumed)
