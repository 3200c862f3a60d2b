"""A loader's arguments are checked in the constructor, each by its name.

Covers: types, NumPy's numbers, before anything is connected. Does not cover: arguments against each other
(tests/unit/test_receiver_workshop), what they do.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emlio import EmlioLoader
from emlio.errors import ConfigError
from emlio_testing.datasets import make_dataset

NOBODY = "emlio://127.0.0.1:1/x"
"""No daemon: an argument that is checked too late ends in another error, after the whole timeout."""

FLAGS = ("drop_last", "pad", "in_order", "raw", "ids", "seeds", "progress")


def _load(address: Any, tmp_path: Path, **arguments: Any) -> EmlioLoader:
    return EmlioLoader(
        address, **({"batch_size": 2, "to": "numpy", "timeout": "600ms", "keys": str(tmp_path)} | arguments)
    )


@pytest.mark.parametrize("value", [None, 0, 1, "yes"])
@pytest.mark.parametrize("name", FLAGS)
def test_a_flag_must_be_true_or_false(name: str, value: object, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"^{name} must be True or False, got {value!r}$"):
        _load(NOBODY, tmp_path, **{name: value})


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"seed": None}, r"seed must be a whole number in \[0, 2\*\*63\), got None"),
        ({"seed": "x"}, "seed must be a whole number .*, got 'x'"),
        ({"seed": 1.5}, "seed must be a whole number .*, got 1.5"),
        ({"seed": True}, "seed must be a whole number .*, got True"),
        ({"seed": -1}, r"seed must be in \[0, 2\*\*63\), got -1"),
        ({"drop_last": True, "pad": True}, "drop_last and pad must not both be True"),
        ({"shuffle": None}, "shuffle must be True, False, .*, got None"),
        ({"shuffle": 1}, "shuffle must be True, False, .*, got 1"),
        ({"threads": np.float64(2)}, "threads must be a whole number of at least 1, got "),
        ({"epochs": np.int64(0)}, "epochs must be a whole number of at least 1, or None, got "),
        ({"prefetch": "much"}, "^prefetch must be a size .*, got 'much'"),
        ({"prefetch": None}, "^prefetch must be a size"),
        ({"timeout": "soon"}, "^timeout must be a duration .*, got 'soon'"),
        ({"heartbeat": []}, "^heartbeat must be a duration"),
        ({"rank": 0, "world_size": 0}, "world_size must be at least 1, got 0"),
        ({"fields": 5}, "fields must be a list of names, or None for all, got 5"),
        ({"transform": 0}, "transform must be a function, got 0"),
        ({"keys": 5}, "keys must be the path of a key folder, got 5"),
        ({"daemon_key": 5}, "daemon_key must be a public key as str, got int"),
        ({"local": 5}, "an address or a directory must be text .*, got 5"),
    ],
    ids=str,
)
def test_an_argument_that_cannot_be_is_refused_by_its_name(
    arguments: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=said):
        _load(NOBODY, tmp_path, **arguments)


@pytest.mark.parametrize("address", [None, 5, b"emlio://a/x"])
def test_an_address_must_be_text(address: object, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"an address or a directory must be text .*, got "):
        _load(address, tmp_path)


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
