"""`emlio.Mixture`: what it accepts, what it refuses and with which words, the plan and address that follow."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emlio import EmlioLoader, Mixture
from emlio.errors import ConfigError
from emlio.planner.sampling import parse_sampling
from emlio.receiver.addresses.address import Address
from emlio.receiver.setup.mixture import mixed_address
from emlio_testing.datasets import make_dataset

WEB, CODE = "emlio://a/web", "emlio://b:6000,c/code"
PAIRS = [(WEB, 0.7), (CODE, 0.3)]


@pytest.mark.parametrize(
    ("parts", "names"),
    [
        (["/data/text", "/data/x2/text"], ("data/text", "x2/text")),
        (["/a/x/text", "/b/x/text", "/c/text", "/c/code"], ("a/x/text", "b/x/text", "c/text", "code")),
        (["emlio://a/web", "emlio://b:6000/web@2", "emlio://b/web"], ("a:5555/web", "web@2", "b:5555/web")),
        (["s3://b/text?files=a", "s3://b/text?files=b"], ("s3://b/text#0", "s3://b/text#1")),
    ],
)
def test_datasets_of_one_name_are_told_apart(parts: list[str], names: tuple[str, ...]) -> None:
    assert mixed_address([Address.parse(part) for part in parts]).mixed_names == names


def test_records_of_datasets_of_one_name_are_counted_apart(tmp_path: Path) -> None:
    folders = tmp_path / "a" / "text", tmp_path / "b" / "text"
    for folder in folders:
        make_dataset(folder, records=40, shards=1)
    mixture = Mixture([(folders[0], 3), (folders[1], 1)], samples=40)
    with EmlioLoader(mixture, batch_size=8, raw=True, to="numpy", epochs=1) as loader:
        assert loader.sources == ("a/text", "b/text")
        list(loader)
        assert loader.stats().datasets == {"a/text": 30, "b/text": 10}


def test_all_ways_to_write_a_mixture_are_one_value() -> None:
    mixture = Mixture(PAIRS)
    assert Mixture([list(pair) for pair in PAIRS]) == mixture  # type: ignore[misc]  # lists, as JSON has them
    assert Mixture(dict(PAIRS)) == mixture
    assert Mixture.of(PAIRS) == Mixture.of(tuple(PAIRS)) == Mixture.of(dict(PAIRS)) == Mixture.of(mixture) == mixture
    assert pickle.loads(pickle.dumps(mixture)) == mixture  # our own bytes
    assert hash(mixture) == hash(Mixture(dict(PAIRS)))
    assert Mixture.of(WEB) is None
    assert Mixture.of([WEB, CODE]) is None  # several daemons written as a list, of which the address tells


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "mixture/1/first/0:7,3"),
        ({"until": "longest"}, "mixture/1/longest/0:7,3"),
        ({"samples": 10**6}, "mixture/1/1000000/0:7,3"),
        ({"schedule": [(500, (1, 1)), (900, [0, 1])]}, "mixture/1/first/0:7,3/500:1,1/900:0,1"),
        ({"schedule": [(0, (1, 1))]}, "mixture/1/first/0:1,1"),
    ],
    ids=["default", "longest", "samples", "schedule", "schedule from 0"],
)
def test_the_plan_has_what_was_given(options: dict[str, Any], text: str) -> None:
    sampling = Mixture(PAIRS, **options).sampling
    assert str(sampling) == text
    assert parse_sampling(text) == sampling


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: Mixture([]), "must have 1 to 256 datasets, got 0"),
        (lambda: Mixture([(WEB, 1)] * 257), "must have 1 to 256 datasets, got 257"),
        (lambda: Mixture(WEB), "datasets must be a list of pairs, got 'emlio://a/web'"),  # type: ignore[arg-type]
        (lambda: Mixture([WEB]), "pairs of an address and a weight, got 'emlio://a/web'"),  # type: ignore[list-item]
        (lambda: Mixture([(1, WEB)]), r"pairs of an address and a weight, got \(1,"),  # type: ignore[list-item]
        (lambda: Mixture([(WEB, "0.7")]), "weights must be numbers >= 0, got '0.7'"),  # type: ignore[list-item]
        (lambda: Mixture([(WEB, -1)]), "weights must be numbers >= 0, got -1"),
        (lambda: Mixture([(WEB, 0), (CODE, 0)]), r"weights must not all be 0, got \[0, 0\]"),
        (lambda: Mixture(PAIRS, samples=0), "samples must be a whole number of at least 1, or None, got 0"),
        (lambda: Mixture(PAIRS, samples=2**41), r"samples must be at most 2\*\*40"),
        (lambda: Mixture(PAIRS, until="last"), "until must be 'first' or 'longest', or None, got 'last'"),
        (lambda: Mixture(PAIRS, samples=5, until="first"), "give one, got samples=5 and until='first'"),
        (lambda: Mixture(PAIRS, schedule=[(5, (1,))]), "a weight for each of its 2 datasets, got 1 at sample 5"),
        (lambda: Mixture(PAIRS, schedule=[(-5, (1, 1))]), "pairs of a sample from 0 on and weights"),
        (lambda: Mixture(PAIRS, schedule=[(9, (1, 1)), (5, (1, 2))]), "must rise from 0"),
        (lambda: Mixture(PAIRS, schedule=[(9, (0, 0))]), "the weights of a schedule must not all be 0"),
        (lambda: Mixture(PAIRS, schedule={5: (1, 1)}), "schedule must be a list of pairs"),  # type: ignore[arg-type]
        (
            lambda: Mixture([(WEB, 1)] * 256, schedule=[(n, [10**8 + n] * 255 + [1]) for n in range(1, 60)]),
            "must take at most 65,536 characters",
        ),
    ],
    ids=[
        *("none", "too many", "an address", "no pairs", "turned round", "text", "negative", "all zero", "no samples"),
        *("large", "until", "both", "few weights", "before 0", "falling", "zero later", "mapping", "long"),
    ],
)
def test_what_is_no_mixture_is_refused_in_words(wrong: Callable[[], Mixture], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        wrong()


def test_the_address_of_a_mixture_has_the_daemons_of_all_datasets(tmp_path: Path) -> None:
    address = mixed_address(
        [Address.parse(WEB), Address.parse(CODE), Address.parse("emlio://a/code"), Address.parse(tmp_path)]
    )
    assert [(str(peer), peer.part) for peer in address.peers] == [
        *(("a:5555/web", 0), ("b:6000/code", 1), ("c:5555/code", 1), ("a:5555/code", 2)),
    ]
    assert address.names == ("web", "b:6000,c:5555/code", "a:5555/code", tmp_path.name)
    assert address.directories == ((3, tmp_path, {}),)
    assert str(address) == f"emlio://a:5555/web + emlio://b:6000,c:5555/code + emlio://a:5555/code + {tmp_path}"


def test_a_dataset_that_is_listed_twice_is_refused(tmp_path: Path) -> None:
    for parts in ([WEB, "emlio://d,a/web"], [str(tmp_path), str(tmp_path)]):
        with pytest.raises(ConfigError, match=r"must be listed once, got .* twice: add up their weights"):
            mixed_address([Address.parse(part) for part in parts])


def test_arguments_that_do_not_go_with_a_mixture_are_refused_before_anything_is_connected(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"local= cannot be used with a mixture: give the directory as the address of one"
    ):
        EmlioLoader(PAIRS, 5, local=tmp_path)
    for chosen in ({"repeat": 2}, {"weights": {0: 1.0}}, {"samples": 100}):
        with pytest.raises(
            ConfigError, match=r"are of one dataset and cannot be used with a mixture. Give weights, samples"
        ):
            EmlioLoader(PAIRS, 5, **chosen)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"address must be one text that names all daemons"):
        EmlioLoader([WEB, CODE], 5)  # type: ignore[list-item]
    with pytest.raises(ConfigError, match=r"an address must be emlio://HOST"):
        EmlioLoader([("nowhere", 1), (CODE, 1)], 5)
