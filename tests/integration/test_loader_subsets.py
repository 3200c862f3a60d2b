"""Subsets and repeats through real daemons: what comes, to whom, and what does not travel.

Covers: fractions, given ids and several passes, at two daemons that hold a part each; ranks that agree; a job that goes on
with fewer ranks. Does not cover: the choices themselves (tests/unit/planner/test_choice).
"""

import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest

from emlio import EmlioLoader, Fraction, Ids, TokenBatches, train_test_split
from emlio.daemon.config import DaemonConfig, DatasetSource, Endpoint
from emlio.daemon.service import Daemon
from emlio.errors import ConfigError, PlanError, RefusedError
from emlio_testing.datasets import make_dataset
from emlio_testing.loader_arguments import loader_arguments
from emlio_testing.ports import free_ports
from emlio_testing.serving import daemon_of, peer_of, raw_loader

RECORDS, SHARDS, SIZE = 640, 8, 1000
IDS = sorted(np.random.default_rng(0).choice(RECORDS, 200, replace=False).tolist())

Make = Callable[..., EmlioLoader]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("whole") / "numbers"
    make_dataset(directory, records=RECORDS, shards=SHARDS, payload=SIZE, mapped=False)
    return directory


@pytest.fixture
def daemons(whole: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Daemon]]:
    """Two daemons with a part each, which overlap."""
    names = sorted(path.name for path in whole.iterdir())
    with ExitStack() as stack:
        started: list[Daemon] = []
        for held in (names[:5], names[4:]):
            folder = tmp_path_factory.mktemp("part") / "numbers"
            folder.mkdir()
            for name in held:
                shutil.copy2(whole / name, folder)
            started.append(stack.enter_context(daemon_of({"numbers": folder})))
        yield started


@pytest.fixture
def make(daemons: list[Daemon], monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """A loader of one job, closed at the end."""
    monkeypatch.setenv("EMLIO_JOB", uuid4().hex)
    with ExitStack() as stack:

        def make_one(rank: int = 0, **options: Any) -> EmlioLoader:
            usual: dict[str, Any] = {
                "world_size": 1,
                "batch_size": 8,
                "seed": 1,
                "epochs": 1,
                "address": f"{peer_of(*daemons)}/numbers",
            }
            return stack.enter_context(raw_loader(rank=rank, **(usual | options)))

        yield make_one


def _ids(batches: Sequence[Any]) -> list[int]:
    return [number for batch in batches for number in batch["__id__"].tolist()]


def _check_content(batches: Sequence[Any]) -> None:
    for batch in batches:
        for number, record in zip(batch["__id__"].tolist(), batch["record"], strict=True):
            assert int.from_bytes(bytes(record[:8]), "little") == number


@pytest.mark.parametrize("repeat", [1, 3])
@pytest.mark.parametrize("shuffle", [True, "shard", False])
def test_all_ranks_together_get_the_given_records(make: Make, shuffle: bool | str, repeat: int) -> None:
    loaders = [make(rank, world_size=4, subset=IDS, repeat=repeat, shuffle=shuffle) for rank in range(4)]
    batches = [list(loader) for loader in loaders]
    for loader, got in zip(loaders, batches, strict=True):
        assert len(got) == len(loader)
        assert (loader.records, loader.samples) == (RECORDS, len(IDS) * repeat)
        _check_content(got)
    assert sorted(number for got in batches for number in _ids(got)) == sorted(IDS * repeat)
    # Nothing else was sent to anyone.
    received = sum(loader.stats().received_bytes for loader in loaders)
    assert received < len(IDS) * repeat * (SIZE + 40)


def test_a_split_has_no_record_twice_and_leaves_none_out(make: Make) -> None:
    parts = train_test_split([0.7, 0.2, 0.1], seed=3)
    got = [_ids(list(make(subset=part))) for part in parts]
    assert sorted(number for part in got for number in part) == list(range(RECORDS))
    assert [len(part) for part in got] == pytest.approx([448, 128, 64], abs=8)


def test_a_directory_gives_the_same_as_daemons(make: Make, whole: Path) -> None:
    for subset in (IDS, Fraction(0.2, 0.5, seed=4)):
        near, far = make(subset=subset, repeat=2, address=whole), make(subset=subset, repeat=2)
        assert _ids(list(near)) == _ids(list(far))
        assert near.fingerprint == far.fingerprint


def test_a_job_stopped_with_four_ranks_goes_on_with_three(make: Make) -> None:
    said: dict[str, Any] = {"subset": Ids(IDS), "repeat": 2}
    whole = _ids(list(make(**said)))
    four = [make(rank, world_size=4, **said) for rank in range(4)]
    walks = [iter(loader) for loader in four]
    first = [next(walk) for _ in range(5) for walk in walks]
    state = four[0].state_dict()
    assert {str(loader.state_dict()) for loader in four} == {str(state)}
    for loader in four:
        loader.close()
    rest: list[int] = []
    for rank in range(3):
        loader = make(rank, world_size=3, **said)
        loader.load_state_dict(state)
        rest += _ids(list(loader))
        loader.close()
    assert _ids(first) == whole[: 5 * 4 * 8]
    assert sorted(rest) == sorted(whole[5 * 4 * 8 :])


def test_a_state_of_another_subset_is_refused(make: Make) -> None:
    state = make(subset=IDS).state_dict()
    with pytest.raises(PlanError, match="another choice of records"):
        make(subset=IDS[1:]).load_state_dict(state)


def test_ranks_with_other_subsets_are_told_so(make: Make) -> None:
    next(iter(make(0, world_size=2, subset=IDS)))
    with pytest.raises(RefusedError, match="must give the same options"):
        next(iter(make(1, world_size=2, subset=IDS[:-1])))


def test_a_record_that_comes_again_has_another_seed(make: Make) -> None:
    seeds: dict[int, list[int]] = {}
    for batch in make(subset=IDS[:50], repeat=3, seeds=True):
        for number, seed in zip(batch["__id__"].tolist(), batch["__seed__"].tolist(), strict=True):
            seeds.setdefault(number, []).append(seed)
    assert all(len(set(drawn)) == 3 for drawn in seeds.values())
    once = {
        number: seed
        for batch in make(subset=IDS[:50], seeds=True)
        for number, seed in zip(batch["__id__"].tolist(), batch["__seed__"].tolist(), strict=True)
    }
    assert once == {number: drawn[0] for number, drawn in seeds.items()}


@pytest.mark.parametrize("form", ["list", "array", "text", "npy", "path"])
def test_ids_may_be_given_in_many_forms(make: Make, tmp_path: Path, form: str) -> None:
    path = tmp_path / ("ids.npy" if form == "npy" else "ids.txt")
    if form == "npy":
        np.save(path, np.array(IDS[:9], np.uint16))
    else:
        path.write_text("\n".join(map(str, reversed(IDS[:9]))) + "\n\n")
    given = {"list": IDS[:9], "array": np.array(IDS[:9]), "text": str(path), "npy": str(path), "path": path}[form]
    assert sorted(_ids(list(make(subset=given)))) == IDS[:9]


def test_wrong_ids_are_named(make: Make, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"in \[0, 640\), as the dataset has 640 records, got 640"):
        make(subset=[0, 641, 640])
    with pytest.raises(ConfigError, match="got 7 again at position 2"):
        make(subset=[7, 8, 7])
    path = tmp_path / "ids.txt"
    path.write_text("1\n2\nthree\n")
    with pytest.raises(ConfigError, match=r"line 3 of .*ids.txt is 'three'"):
        make(subset=path)
    with pytest.raises(ConfigError, match="repeat must be a whole number"):
        make(repeat=0)
    with pytest.raises(ConfigError, match="with drop_last batch_size x world_size must be at most the 3 records"):
        make(subset=[1, 2, 3], drop_last=True)


def test_a_daemon_that_was_started_again_gets_the_ids_again(whole: Path) -> None:
    source = DatasetSource(name="numbers", directory=whole)

    # Not one that the system gives to connections: another test may have it before the daemon is back.
    port = free_ports(2, "127.0.0.1")[0]
    config = DaemonConfig(data=(source,), bind=Endpoint(host="127.0.0.1", port=port), drain_timeout=0)

    with ExitStack() as stack:
        first = stack.enter_context(Daemon(config))
        url = f"emlio://{first.endpoint.removeprefix('tcp://')}/numbers"
        said: dict[str, Any] = {"batch_size": 4, "to": "numpy", "raw": True, "ids": True, "epochs": 1, "rank": 0}
        arguments = loader_arguments(world_size=1, timeout="20s", heartbeat="1s", prefetch="1MiB", **said)
        loader = stack.enter_context(EmlioLoader(url, subset=IDS, repeat=30, **arguments))
        walk = iter(loader)
        got = [next(walk) for _ in range(3)]
        first.close()
        stack.enter_context(Daemon(config))
        got += list(walk)
        assert loader.stats().lost_daemons == 1
    assert sorted(_ids(got)) == sorted(30 * IDS)


@pytest.mark.parametrize("repeat", [1, 2])
def test_batches_of_tokens_are_made_of_the_chosen_records(tmp_path: Path, repeat: int) -> None:
    def tokens(number: int) -> bytes:
        return np.full(3 + number % 5, number, np.int32).tobytes()

    make_dataset(tmp_path / "tokens", records=200, shards=4, payload=tokens, mapped=False)
    chosen = list(range(10, 60))
    said = loader_arguments(rank=0, world_size=1, epochs=1, to="numpy")
    batching = TokenBatches(dtype="int32", max_tokens=64, pool=32, pad_id=-1)
    with EmlioLoader(tmp_path / "tokens", subset=chosen, repeat=repeat, tokens=batching, **said) as loader:
        found = Counter(token for batch in loader for token in batch["tokens"].ravel().tolist() if token >= 0)
    assert found == {number: repeat * (3 + number % 5) for number in chosen}
