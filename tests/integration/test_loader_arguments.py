"""A loader's states and NumPy's numbers as arguments.

Does not cover: arguments that are refused (tests/unit/receiver/setup/test_arguments).
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emlio import EmlioLoader
from emlio.errors import ConfigError
from emlio_testing.datasets import make_dataset
from emlio_testing.loader_arguments import loader_arguments

FLAGS = ("drop_last", "pad", "in_order", "raw", "ids", "seeds", "progress")


def _load(address: Any, tmp_path: Path, **arguments: Any) -> EmlioLoader:
    return EmlioLoader(
        address,
        **loader_arguments(**({"batch_size": 2, "to": "numpy", "timeout": "600ms", "keys": str(tmp_path)} | arguments)),
    )


@pytest.mark.parametrize("state", [None, [], "{}"])
def test_a_state_must_be_a_dictionary(state: Any, tmp_path: Path) -> None:
    make_dataset(tmp_path / "data", records=4, shards=1)
    with (
        _load(tmp_path / "data", tmp_path, raw=True) as loader,
        pytest.raises(ConfigError, match=r"a state must be a dictionary that state_dict\(\) returned, got "),
    ):
        loader.load_state_dict(state)


def test_numpys_numbers_are_taken_wherever_pythons_are(tmp_path: Path) -> None:
    make_dataset(tmp_path / "data", records=24, shards=2)
    numbers = {"seed": 7, "batch_size": 3, "epochs": 4, "threads": 2, "rank": 1, "world_size": 2}
    flags = dict.fromkeys(FLAGS, False) | {"raw": True, "ids": True, "in_order": True}
    seen: list[Any] = []
    for number, truth in ((int, bool), (np.int64, np.bool_)):
        arguments = {name: number(value) for name, value in numbers.items()}
        arguments |= {name: truth(value) for name, value in flags.items()} | {"shuffle": truth(True)}
        with _load(tmp_path / "data", tmp_path, **arguments) as loader:
            loader.set_epoch(number(2))
            batches = [batch["__id__"].tolist() for batch in loader]
            seen.append((len(loader), loader.batch_size, batches, json.dumps(loader.state_dict())))
    assert seen[0] == seen[1]
