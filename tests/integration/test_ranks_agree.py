"""docs/guide/loader.md says of each argument whether ranks must agree on it; here one rank gives another value for each."""

import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest

from emlio import EmlioLoader, Fraction, Recovery, Security, TokenBatches
from emlio.daemon.service import Daemon
from emlio.errors import RefusedError
from emlio_testing.datasets import make_dataset
from emlio_testing.serving import daemon_of, peer_of
from emlio_testing.token_records import make_token_dataset

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "guide" / "loader.md").read_text(encoding="utf-8")
TABLE = dict(re.findall(r"^\| `(\w+)` \| (yes|no) \| [^|]*\|$", TEXT, re.MULTILINE))
NO_VALUE = {"address", "rank", "dali"}  # another address leads to other data or the same; DALI needs its libraries

BASE: dict[str, Any] = {"batch_size": 4, "seed": 1, "raw": True, "to": "numpy", "world_size": 2}
TOKENS = {"tokens": TokenBatches(pack=16, pool=16), "raw": False}

OTHER: dict[str, list[dict[str, Any]]] = {
    "batch_size": [{"batch_size": 8}, TOKENS | {"batch_size": 8}],
    "shuffle": [{"shuffle": "shard"}, {"shuffle": "block:16:4"}],
    "seed": [{"seed": 2}],
    "drop_last": [{"drop_last": True}],
    "pad": [{"pad": True}],
    "subset": [{"subset": Fraction(0.0, 0.5)}],
    "repeat": [{"repeat": 2}],
    "weights": [{"weights": np.ones(64)}],
    "samples": [{"weights": np.ones(64), "samples": 32}],
    "world_size": [{"world_size": 4}],
    "local": [{"local": "."}],
    "fields": [{"fields": ["x"], "raw": False}],
    "raw": [{"raw": "rows"}],
    "ids": [{"ids": True}],
    "seeds": [{"seeds": True}],
    "transform": [{"transform": lambda sample: sample}],
    "collate_fn": [{"collate_fn": len}],
    "threads": [{"threads": 2, "transform": lambda sample: sample}],
    "tokens": [
        TOKENS | {"tokens": TokenBatches(**({"pack": 16, "pool": 16} | options))}
        for options in (
            {"pack": 32}, {"pool": 32}, {"pad_id": 9}, {"dtype": "int64", "stored": "int32"},
            {"recipe": "causal", "stored": "int32"},
            {"pack": None, "max_tokens": 64}, {"pack": None, "max_tokens": 64, "truncate": True},
        )
    ],
    "to": [{"to": "torch"}],
    "device": [{"device": "cpu"}],
    "in_order": [{"in_order": False}],
    "prefetch": [{"prefetch": "2MiB"}],
    "tune": [{"tune": "off"}],
    "epochs": [{"epochs": 2}],
    "replay": [{"replay": 2}],
    "recovery": [{"recovery": Recovery(timeout="9s", on_error="skip")}],
    "security": [{"security": Security()}],
    "energy": [{"energy": False}],
    "trace": [{"trace": "run.json"}],
    "progress": [{"progress": True}],
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("datasets")
    make_dataset(folder / "plain", records=64, shards=2)
    make_token_dataset(folder / "tokens", [1 + number % 16 for number in range(64)], shards=2)
    return folder


@pytest.fixture
def daemon(folder: Path) -> Iterator[Daemon]:
    data = {name: folder / name for name in ("plain", "tokens")}
    with daemon_of(data, heartbeat_timeout=2_000_000_000) as daemon:
        yield daemon


def test_the_table_names_every_argument() -> None:
    arguments = [name for name in inspect.signature(EmlioLoader.__init__).parameters if name != "self"]
    assert list(TABLE) == arguments
    assert set(OTHER) | NO_VALUE == set(arguments)


@pytest.mark.parametrize(
    ("name", "options"),
    [(name, options) for name, many in OTHER.items() for options in many],
    ids=[f"{name}-{number}" for name, many in OTHER.items() for number in range(len(many))],
)
def test_a_rank_with_another_value_is_refused_where_the_table_says_so(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch, name: str, options: dict[str, Any], folder: Path
) -> None:
    monkeypatch.setenv("EMLIO_JOB", uuid4().hex)
    monkeypatch.chdir(folder / "plain")
    base = {**BASE, **TOKENS} if "tokens" in options else BASE
    if name == "samples":
        base = {**base, "weights": options["weights"]}
    if name == "fields":
        base = {**base, "raw": False}
    changed = {**base, **options}
    if "tokens" in options and options["tokens"].pack is None:
        changed.pop("batch_size")
    address = f"{peer_of(daemon)}/{'tokens' if 'tokens' in options else 'plain'}"
    with ExitStack() as stack:
        first = stack.enter_context(EmlioLoader(address, rank=0, **base))
        take: Callable[[], object] = lambda: next(iter(first))  # noqa: E731  # the batch does not matter
        if name != "fields":
            take()
        second = stack.enter_context(EmlioLoader(address, rank=1, **changed))
        held = second._shell.engine.gate._limit is not None
        assert held is (TABLE[name] == "yes")
        if held and name in ("epochs", "seed", "tokens"):
            with pytest.raises(RefusedError, match="all ranks of a job must give the same options"):
                next(iter(second))
