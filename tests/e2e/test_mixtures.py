"""Loaders that mix datasets: three at two daemons, with other numbers of ranks, and with a daemon that dies."""

import dataclasses
import json
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emlio import EmlioLoader, Mixture, Recovery, TokenBatches, Writer
from emlio.errors import ConfigError, CorruptRecordError, PlanError, RefusedError
from emlio.example import encode_example
from emlio.index.opening import open_dataset
from emlio.planner.catalog import Catalog
from emlio.planner.mixture.merged import prefix_of
from emlio.planner.plan import Plan, PlanSpec
from emlio_testing.datasets import make_dataset
from emlio_testing.ports import free_ports
from emlio_testing.processes import DaemonProcess, settles
from emlio_testing.token_records import make_token_dataset

SIZES = {"web": 400, "code": 90, "math": 30}
NAMES = tuple(SIZES)
WEIGHTS = (0.6, 0.3, 0.1)
SAMPLES = 500
BATCH = 7


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("datasets")
    for name, records in SIZES.items():
        make_dataset(root / name, records=records, shards=3, payload=6000)
    return {name: root / name for name in SIZES}


@pytest.fixture
def daemons(folders: dict[str, Path], tmp_path: Path) -> Iterator[list[DaemonProcess]]:
    """One that holds two of the datasets, and another one with the third."""
    held = ({name: folders[name] for name in ("web", "math")}, {"code": folders["code"]})
    with DaemonProcess(held[0], folder=tmp_path) as first, DaemonProcess(held[1], folder=tmp_path) as second:
        yield [first, second]


def catalog_of(folders: dict[str, Path]) -> Catalog:
    entries: list[Any] = []
    for number, name in enumerate(NAMES):
        with open_dataset(name, folders[name]) as dataset:
            entries += [dataclasses.replace(entry, name=prefix_of(number) + entry.name) for entry in dataset.entries]
    return Catalog(shards=tuple(entries))


def planned(folders: dict[str, Path], mixture: Mixture, epochs: int) -> list[int]:
    plan = Plan(catalog_of(folders), PlanSpec(batch_size=1, sampling=mixture.sampling))
    places = np.arange(plan.places, dtype=np.int64)
    return [record for epoch in range(epochs) for record in plan.epoch(epoch).ids_at(places).tolist()]


def mixture_at(daemons: Sequence[DaemonProcess], **options: Any) -> Mixture:
    holders = {"web": daemons[0], "code": daemons[1], "math": daemons[0]}
    addresses = [holders[name].address(name) for name in NAMES]
    return Mixture(list(zip(addresses, WEIGHTS, strict=True)), **({"samples": SAMPLES} | options))


class Job:
    """The ranks of a job, all in this process."""

    def __init__(self, stack: ExitStack, mixture: Mixture, world_size: int, **options: Any) -> None:
        given: dict[str, Any] = {
            "raw": True,
            "ids": True,
            "to": "numpy",
            "recovery": Recovery(timeout="30s"),
            "prefetch": "1MiB",
            **options,
        }
        self.ranks = [
            stack.enter_context(EmlioLoader(mixture, BATCH, rank=rank, world_size=world_size, **given))
            for rank in range(world_size)
        ]
        self.iterations: list[Iterator[Any]] = []

    def begin(self, state: dict[str, Any] | None = None) -> None:
        for rank in self.ranks:
            if state is not None:
                rank.load_state_dict(state)
        self.iterations = [iter(rank) for rank in self.ranks]

    def take(self, steps: int | None = None) -> list[int]:
        """Return the ids of so many steps, or of the epoch's rest; each record must be the one that its id says."""
        firsts = np.cumsum([0, *SIZES.values()])
        found: list[int] = []
        for _ in range(self.ranks[0].remaining if steps is None else steps):
            for iteration in self.iterations:
                batch = next(iteration)
                ids, sources = batch["__id__"], batch["__source__"]
                numbers = [int.from_bytes(bytes(record)[:8], "little") for record in batch["record"]]
                assert (firsts[sources] + numbers == ids).all()
                found += ids.tolist()
        return found


def test_four_ranks_become_three_at_any_step_and_get_what_was_planned(
    daemons: list[DaemonProcess], folders: dict[str, Path]
) -> None:
    mixture = mixture_at(daemons)
    order = planned(folders, mixture, epochs=2)
    stopped_after = random.randrange(1, SAMPLES // (4 * BATCH))
    with ExitStack() as stack:
        four = Job(stack, mixture, 4)
        four.begin()
        taken = four.take(stopped_after)
        states = [rank.state_dict() for rank in four.ranks]
    assert all(state == states[0] for state in states)
    assert len(str(states[0])) < 400
    with ExitStack() as stack:
        three = Job(stack, mixture, 3)
        three.begin(states[0])
        taken += three.take()
        # The last step may have fewer records than ranks: then the order begins again.
        assert taken[:SAMPLES] == order[:SAMPLES], f"stopped after {stopped_after} steps"
        three.begin()
        assert three.take()[:SAMPLES] == order[SAMPLES:], f"stopped after {stopped_after} steps"
        counted = [rank.stats().datasets for rank in three.ranks]
    bounds = mixture.sampling.most_deviation()
    firsts = np.cumsum([0, *SIZES.values()])
    for number, weight in enumerate(WEIGHTS):
        here = (np.array(taken[:SAMPLES]) >= firsts[number]) & (np.array(taken[:SAMPLES]) < firsts[number + 1])
        assert here.sum() == mixture.sampling.counts(SAMPLES)[number]
        run = np.convolve(here, np.ones(100), "valid")
        assert np.abs(run - 100 * weight).max() <= bounds[number]
    assert sum(sum(counts.values()) for counts in counted) == sum(rank.stats().records for rank in three.ranks)


def test_a_daemon_that_is_killed_and_started_again_changes_nothing(
    daemons: list[DaemonProcess], folders: dict[str, Path], tmp_path: Path
) -> None:
    mixture = mixture_at(daemons)
    with ExitStack() as stack:
        job = Job(stack, mixture, 2)
        job.begin()
        taken = job.take(4)
        peer = daemons[0].endpoint
        daemons[0].kill()
        data_port = str(free_ports(1, "127.0.0.1")[0])  # another process may have the one beside the control port
        held = {name: folders[name] for name in ("web", "math")}
        again = DaemonProcess(held, "--data-port", data_port, folder=tmp_path, bind=peer)
        stack.enter_context(again)
        taken += job.take()
        assert taken[:SAMPLES] == planned(folders, mixture, epochs=1)
        # The sessions of two datasets, whose loss may be noticed only after all samples were read ahead.
        assert settles(lambda: sum(rank.stats().lost_daemons for rank in job.ranks) >= 2, 20.0)
        said = repr(job.ranks[0])
    assert all(f"/{name}" in said for name in NAMES)


def test_a_loader_says_what_it_mixes_and_refuses_a_state_of_other_weights(daemons: list[DaemonProcess]) -> None:
    mixture = mixture_at(daemons)
    with EmlioLoader(list(zip(mixture.addresses, WEIGHTS, strict=True)), BATCH, raw=True) as loader:
        assert loader.sources == NAMES
        assert loader.records == sum(SIZES.values())
        assert len(loader) == -(-300 // BATCH)  # until the last of math's 30 records, a tenth of the samples
        next(iter(loader))
        stats = loader.stats()
        assert sum(stats.datasets.values()) == stats.records == BATCH
        assert f"7 records (web {stats.datasets['web']}, " in str(stats)
        with pytest.raises(ConfigError, match=r"the daemons of a mixture cannot be changed"):
            loader.use_daemons(str(mixture.addresses[0]))
        state = loader.state_dict()
    other = Mixture(list(zip(mixture.addresses, (1, 1, 1), strict=True)))
    with (
        EmlioLoader(other, BATCH, raw=True) as loader,
        pytest.raises(
            PlanError, match=r"saved with a mixture with weights 0\.6, 0\.3, 0\.1 and until='first', this loader has"
        ),
    ):
        loader.load_state_dict(state)


def test_records_are_looked_at_by_their_ids(daemons: list[DaemonProcess], folders: dict[str, Path]) -> None:
    mixture = mixture_at(daemons)
    part = Mixture([(folders["web"], 0.6), *list(zip(mixture.addresses, WEIGHTS, strict=True))[1:]])
    wanted = [0, 410, 495, 3, 519]  # of web, code, math, web and math
    for each in (mixture, part):
        with EmlioLoader(each, BATCH, raw=True, ids=True) as loader:
            found = loader.get(wanted)
            assert found["__source__"].tolist() == [0, 1, 2, 0, 2]
            numbers = [int.from_bytes(bytes(record)[:8], "little") for record in found["record"]]
            assert numbers == [0, 10, 5, 3, 29]


def test_one_rank_with_other_weights_is_refused(daemons: list[DaemonProcess], monkeypatch: pytest.MonkeyPatch) -> None:
    mixture = mixture_at(daemons)
    other = Mixture(list(zip(mixture.addresses, (1, 1, 1), strict=True)), samples=SAMPLES)
    both: dict[str, Any] = {"world_size": 2, "raw": True}
    monkeypatch.setenv("EMLIO_JOB", "unlike")
    with (
        EmlioLoader(mixture, BATCH, rank=0, **both) as first,
        EmlioLoader(other, BATCH, rank=1, **both) as second,
        pytest.raises(RefusedError, match=r"all ranks of a job must give the same options .*sampling="),
    ):
        for _ in zip(first, second, strict=False):
            pass


# ---- formats ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Datasets with columns in common: records of TFRecord, lines of JSON, and one with a column of another type."""
    root = tmp_path_factory.mktemp("written")
    with Writer(root / "plain") as writer:
        for number in range(40):
            writer.write({"x": number, "text": f"plain-{number}"})
    with Writer(root / "more") as writer:
        for number in range(20):
            writer.write({"x": number, "text": f"more-{number}", "url": "there"})
    with Writer(root / "floats") as writer:
        for number in range(20):
            writer.write({"x": number / 2, "text": f"floats-{number}"})
    (root / "lines").mkdir()
    lines = "".join(f'{{"x": {number}, "text": "lines-{number}"}}\n' for number in range(20))
    (root / "lines" / "part.jsonl").write_text(lines, encoding="utf-8")
    return root


def text_of(value: Any) -> str:
    return value if isinstance(value, str) else bytes(value).decode()


def test_directories_are_mixed_and_columns_that_all_have_are_joined(written: Path) -> None:
    mixture = Mixture({str(written / "plain"): 3, str(written / "more"): 1}, until="longest")
    with EmlioLoader(mixture, 8, ids=True, fields=["x", "text"], to="numpy", epochs=1) as loader:
        for batch in loader:
            names = [("plain", "more")[number] for number in batch["__source__"]]
            assert list(map(text_of, batch["text"])) == [
                f"{name}-{x}" for name, x in zip(names, batch["x"].ravel().tolist(), strict=True)
            ]
    assert loader.stats().datasets == {"plain": 58, "more": 20}


def test_a_dataset_that_comes_in_by_schedule_after_some_epochs_is_sent_unshuffled(written: Path) -> None:
    # A daemon that took the first epochs' order for that of all epochs would send nothing of it, ever.
    mixture = Mixture([(written / "plain", 1), (written / "more", 0)], samples=20, schedule=[(40, (1, 1))])
    with EmlioLoader(mixture, 4, ids=True, fields=["x"], to="numpy", epochs=4, shuffle=False) as loader:
        epochs = [[int(number) for batch in loader for number in batch["__source__"]] for _ in range(4)]
    assert [epoch.count(1) for epoch in epochs] == [0, 0, 10, 10]
    assert [len(epoch) for epoch in epochs] == [20] * 4


def test_columns_that_not_all_have_are_an_error_and_samples_for_a_transform(written: Path) -> None:
    mixture = Mixture([(written / "plain", 1), (written / "more", 1)])
    with (
        EmlioLoader(mixture, 8, to="numpy") as loader,
        pytest.raises(ConfigError, match=r"'more' has 'url', 'plain' has only 'text', 'x'. Name with fields="),
    ):
        next(iter(loader))
    with EmlioLoader(mixture, 8, to="numpy", transform=lambda sample: {"columns": len(sample)}, ids=True) as loader:
        batch = next(iter(loader))
    assert set(batch["columns"].tolist()) == {4, 5}  # with __id__ and __source__
    mixture = Mixture([(written / "plain", 1), (written / "floats", 1)])
    with (
        EmlioLoader(mixture, 8, to="numpy") as loader,
        pytest.raises(ConfigError, match=r"'x' holds .*int64 in '\w+' and .*float32 in '\w+'|'x' holds .*float32 in"),
    ):
        next(iter(loader))


def test_a_key_of_single_records_of_one_dataset_is_absent_in_the_others(tmp_path: Path) -> None:
    for name in ("some", "none"):  # the key is beyond the lines that tell the columns
        lines = [{"x": number} | ({"note": "here"} if (name, number) == ("some", 150) else {}) for number in range(160)]
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    mixture = Mixture([(tmp_path / "some", 1), (tmp_path / "none", 1)], until="longest")
    with EmlioLoader(mixture, 8, to="numpy", epochs=1) as loader:
        batches = list(loader)
    assert sum(len(batch["x"]) for batch in batches) == 320
    assert [batch["note"].count("here") for batch in batches if "note" in batch] == [1]


def test_datasets_of_two_formats_are_mixed(written: Path) -> None:
    mixture = Mixture([(written / "plain", 1), (written / "lines", 1)])
    with EmlioLoader(
        mixture, 8, ids=True, to="numpy", transform=lambda sample: {"text": text_of(sample["text"])}
    ) as loader:
        texts = [text for batch in loader for text in batch["text"]]
    assert sorted(text for text in texts if text.startswith("lines")) == sorted(
        f"lines-{number}" for number in range(20)
    )
    with pytest.raises(
        ConfigError, match=r"tokens= needs datasets of one format .*'plain' is tfrecord, 'lines' is jsonl"
    ):
        EmlioLoader(mixture, 8, tokens=TokenBatches(pack=16))


@pytest.mark.parametrize("tokens", [{"pack": 16}, {"max_tokens": 64}], ids=["packed", "padded"])
def test_records_of_token_batches_are_counted_by_dataset(tmp_path: Path, tokens: dict[str, Any]) -> None:
    sizes = {"web": 60, "code": 20}
    for name, records in sizes.items():
        make_token_dataset(tmp_path / name, [5 + number % 9 for number in range(records)], shards=2)
    mixture = Mixture([(tmp_path / name, count) for name, count in sizes.items()], until="longest")
    options: dict[str, Any] = {"batch_size": 4} if "pack" in tokens else {}
    with EmlioLoader(mixture, tokens=TokenBatches(pool=16, **tokens), to="numpy", epochs=1, **options) as loader:
        for _ in loader:
            counts = loader.stats().datasets
            assert sum(counts.values()) == loader.stats().records
    assert loader.stats().datasets == sizes
    assert "80 records (web 60, code 20)" in str(loader.stats())


@pytest.mark.parametrize("tokens", [{"pack": 16}, {"max_tokens": 64}], ids=["packed", "padded"])
def test_token_batches_tell_the_dataset_of_each_id(tmp_path: Path, tokens: dict[str, Any]) -> None:
    for name, records in (("web", 12), ("code", 8)):
        make_token_dataset(tmp_path / name, [5 + number % 3 for number in range(records)], shards=1)
    mixture = Mixture([(tmp_path / "web", 3), (tmp_path / "code", 2)], until="longest")
    options: dict[str, Any] = {"batch_size": 2} if "pack" in tokens else {}
    with EmlioLoader(
        mixture, ids=True, tokens=TokenBatches(pool=16, **tokens), to="numpy", epochs=1, **options
    ) as loader:
        batches = list(loader)
    assert all(batch["__source__"].tolist() == [int(number >= 12) for number in batch["__id__"]] for batch in batches)
    assert {int(number) for batch in batches for number in batch["__source__"]} == {0, 1}


@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_bad_records_are_named_by_their_dataset_and_left_out(tmp_path: Path, on_error: str) -> None:
    make_dataset(tmp_path / "good", records=20, shards=2, payload=lambda number: encode_example({"x": number}))
    broken = (3, 11)
    make_dataset(
        tmp_path / "some",
        records=20,
        shards=2,
        payload=lambda number: b"broken" if number in broken else encode_example({"x": 100 + number}),
    )
    mixture = Mixture([(tmp_path / "good", 1), (tmp_path / "some", 1)])
    options: dict[str, Any] = {"to": "numpy", "ids": True, "epochs": 1}
    with EmlioLoader(mixture, 8, recovery=Recovery(on_error=on_error), **options) as loader:  # type: ignore[arg-type]
        batches = list(loader)
    seen = np.concatenate([batch["x"].ravel() for batch in batches])
    ids = np.concatenate([batch["__id__"] for batch in batches])
    assert (np.where(ids < 20, ids, ids + 80) == seen).all()
    assert set(seen.tolist()) == {*range(20), *(100 + number for number in range(20) if number not in broken)}
    assert len(seen) == (38 if on_error == "skip" else 40)
    with (
        EmlioLoader(mixture, 8, **options) as loader,
        pytest.raises(
            CorruptRecordError, match=r"record [13] of shard train-0000[01]-of-00002.tfrecord of dataset some at byte"
        ),
    ):
        list(loader)


def repeated(token: int) -> Callable[[int], bytes]:
    return lambda _: np.full(10, token, "<i4").tobytes()


def test_datasets_of_tokens_are_mixed(tmp_path: Path) -> None:
    for name, token in (("a", 1), ("b", 2)):
        make_dataset(tmp_path / name, records=30, shards=2, payload=repeated(token))
    mixture = Mixture([(tmp_path / "a", 0.75), (tmp_path / "b", 0.25)], samples=60)
    with EmlioLoader(mixture, 2, tokens=TokenBatches(pack=20), to="numpy", epochs=1) as loader:
        tokens = np.concatenate([batch["tokens"].ravel() for batch in loader])
    assert (tokens == 1).sum() == 450
    assert (tokens == 2).sum() == 150
