"""A wrong type or value of any argument is an error that names it, before anything is started."""

import copy
import inspect
import operator
import pickle
import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

from emlio import (
    DaliPipeline,
    EmlioDataset,
    EmlioLoader,
    Mixture,
    Recovery,
    Security,
    TokenBatches,
    Writer,
    train_test_split,
)
from emlio.dali import Iterator
from emlio.errors import ConfigError
from emlio.receiver.engine.engine import Engine
from emlio.receiver.setup.foreign_arguments import HINTS

_FLAG = [None, 0, 1, "yes", np.int64(1)]
_DURATION = [None, "soon", "999999ns", -1, True, [], float("nan"), Path("60s")]
_WRONG: dict[str, list[Any]] = {
    "address": [None, 5, b"emlio://a/x", "nothing", "emlio://a", "a\0b", ["emlio://a/x", "emlio://b/x"]],
    "batch_size": ["x", None, 0, 2.5, True],
    "shuffle": [None, 1, "some", []],
    "seed": [None, "x", 1.5, True, -1, 2**63],
    "drop_last": _FLAG,
    "pad": _FLAG,
    "subset": [5, 0.5, True, b"ids", {"label": 1}, "missing.txt", Path("missing.npy")],
    "weights": [5, True, b"x", "missing.npy"],
    "samples": ["x", 0, 1.5, True, 2**31 + 1],
    "repeat": ["x", None, 0, 1.5, True, 2**20 + 1],
    "rank": ["x", None, 1.5, True, -1, 2],
    "world_size": ["x", None, 1.5, True, 0],
    "local": [5, b"x", "a\0b", "", "/nonexistent"],
    "fields": [5, "label", [5], [""], b"label"],
    "raw": _FLAG,
    "ids": _FLAG,
    "seeds": _FLAG,
    "transform": [0, False, "f"],
    "collate_fn": [0, False, "f"],
    "threads": ["x", 0, np.float64(2), True],
    "dali": ["image-train", False, DaliPipeline],
    "tokens": [2048, False, TokenBatches],
    "to": [5, "tensorflow", False],
    "device": [0, "tpu", "gpu", "gpu:0", "cuda:", "cuda:-1", Path("cpu")],
    "in_order": _FLAG,
    "tune": [None, "much", "", 1, True, [], "/nonexistent/tuning.json"],
    "prefetch": [None, "much", "128MBs", -1, "1KiB", 1000, [], True],
    "epochs": ["x", np.int64(0), 1.5],
    "replay": ["x", 0, -1, 1.5],
    "trace": [5, "", "/nonexistent/run.json", b""],
    "recovery": [None, "raise", {"timeout": "60s"}, Recovery],
    "security": [None, "off", {"encryption": "off"}, Security],
    "energy": [5, "", b"folder"],
    "progress": _FLAG,
}
_BESIDE: dict[str, dict[str, Any]] = {"rank": {"world_size": 2}, "world_size": {"rank": 0}}

_WRONG_FIELDS: dict[type[Any], dict[str, list[Any]]] = {
    Recovery: {
        "timeout": _DURATION,
        "heartbeat": _DURATION,
        "on_error": [None, "ignore", []],
        "verify": [None, "some", True],
    },
    Security: {"keys": [5, "", b"folder"], "encryption": [None, "yes", "curve", []]},
    DaliPipeline: {
        "pipeline": [None, 3, "image-best", []],
        "args": [None, [1], "size", {1: 2}, {"batch_size": 4}, {"device_id": 0}],
        "outputs": ["image", 5, b"image", {"x"}, [1], ["x", ""], ["x", "x"], ["__id__"]],
    },
    TokenBatches: {
        "dtype": ["int8", 4, []],
        "max_tokens": ["x", 0, 1.5],
        "pack": ["x", 0, True],
        "pool": [None, "x", 0],
        "pad_id": [None, "x", 2**31, True],
        "truncate": _FLAG,
        "stored": ["float32", 2, []],
        "recipe": ["bert", 1, []],
    },
}
_BESIDE_FIELDS: dict[type[Any], dict[str, dict[str, Any]]] = {
    DaliPipeline: {name: {"pipeline": "image-train"} for name in ("args", "outputs")},
    TokenBatches: {name: {"max_tokens": 64} for name in ("dtype", "pool", "pad_id", "truncate", "stored", "recipe")},
}
_NOT_SHOWN = {(Security, "daemon_key")}
"""A wrong key may be a secret key in the wrong place; see the last test."""


@pytest.fixture(autouse=True)
def nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_late(*_: object, **__: object) -> None:
        raise AssertionError("the argument must be checked before this")

    monkeypatch.setattr(Thread, "start", too_late)
    monkeypatch.setattr(Engine, "__init__", too_late)


def _cases(wrong: dict[str, list[Any]]) -> list[Any]:
    return [pytest.param(name, value, id=f"{name}={value!r}") for name, values in wrong.items() for value in values]


@pytest.mark.parametrize(("name", "value"), _cases(_WRONG))
def test_a_wrong_argument_is_named_with_the_value_that_was_given(name: str, value: Any, tmp_path: Path) -> None:
    usual = {"address": "emlio://127.0.0.1:1/x", "batch_size": 2, "to": "numpy", "security": Security(keys=tmp_path)}
    with pytest.raises(ConfigError) as refused:
        EmlioLoader(**(usual | _BESIDE.get(name, {}) | {name: value}))
    said = str(refused.value)
    assert name in said
    assert repr(value) in said or (name == "subset" and repr(str(value)) in said)  # a path is shown as its text
    assert "must" in said


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        pytest.param(kind, name, value, id=f"{kind.__name__}.{name}={value!r}")
        for kind, wrong in _WRONG_FIELDS.items()
        for name, values in wrong.items()
        for value in values
    ],
)
def test_a_wrong_field_is_named_with_the_value_that_was_given(kind: type[Any], name: str, value: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        kind(**(_BESIDE_FIELDS.get(kind, {}).get(name, {}) | {name: value}))
    said = str(refused.value)
    assert name in said
    assert repr(value) in said
    assert "must" in said


def test_no_argument_and_no_field_is_left_out() -> None:
    assert set(_WRONG) == set(inspect.signature(EmlioLoader).parameters)
    for kind, wrong in _WRONG_FIELDS.items():
        hidden = {name for owner, name in _NOT_SHOWN if owner is kind}
        assert set(wrong) | hidden == {field.name for field in fields(kind) if field.init}


@pytest.mark.parametrize("value", [5, b"emliosecret1aaaa", "", "emlio1", "emliosecret1aaaa"])
def test_a_wrong_key_of_daemons_is_named_and_not_shown(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"^daemon_key") as refused:
        Security(daemon_key=value)
    assert "secret1aaaa" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("num_workers", "threads="),
        ("timeout", "Recovery"),
        ("encryption", "Security"),
        ("sampler", "seed="),
        ("pin_memory", 'device="cuda"'),
        ("pipeline_args", "args="),
        ("max_tokens", "TokenBatches"),
        ("remote", "the first argument"),
        ("predownload", "prefetch="),
        ("shuffle_seed", "seed="),
        ("streams", "Mixture"),
        ("split", "?split="),
        ("resampled", "once in an epoch"),
        ("epoch_size", "samples="),
        ("local_dir", "nothing is cached"),
        ("handler", "on_error"),
        ("input_dir", "the first argument"),
        ("max_cache_size", "nothing is cached"),
        ("max_pre_download", "prefetch="),
        ("item_loader", "TokenBatches"),
        ("block_size", "pack="),
        ("subsample", "Fraction("),
        ("shuffle_buffer", "shuffle=True"),
        ("format", "?format="),
    ],
)
def test_an_argument_of_another_place_is_an_error_that_says_what_to_do(name: str, instead: str) -> None:
    foreign: dict[str, Any] = {name: 4}
    with pytest.raises(TypeError, match=name) as refused:
        EmlioLoader("emlio://127.0.0.1:1/x", batch_size=2, **foreign)
    assert instead in str(refused.value)


def test_an_argument_that_is_like_no_other_is_pythons_own_error() -> None:
    unknown: dict[str, Any] = {"colour": 5}
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'colour'$"):
        EmlioLoader("emlio://127.0.0.1:1/x", **unknown)


@pytest.mark.parametrize(
    ("name", "meant"),
    [("batchsize", "batch_size"), ("bach", "batch_size"), ("prefech", "prefetch"), ("colate_fn", "collate_fn")],
)
def test_a_misspelled_argument_is_an_error_with_the_one_that_was_meant(name: str, meant: str) -> None:
    unknown: dict[str, Any] = {name: 5}
    with pytest.raises(TypeError, match=rf"unexpected keyword argument '{name}'; did you mean '{meant}'\?$"):
        EmlioLoader("emlio://127.0.0.1:1/x", **unknown)


@pytest.mark.parametrize(
    ("kind", "name", "meant"),
    [
        (Writer, "shardsize", "'shard_size'"),
        (Mixture, "sample", "'samples'"),
        (TokenBatches, "maxtokens", "'max_tokens'"),
        (TokenBatches, "block_size", "'pack'"),
        (train_test_split, "splits", "'test'"),
        (train_test_split, "test_size", "'test'"),
        (EmlioDataset, "field", "'fields'"),
        (Iterator, "autoreset", "'auto_reset'"),
    ],
)
def test_each_class_and_function_says_which_argument_was_meant(kind: Callable[..., Any], name: str, meant: str) -> None:
    said = f"{kind.__name__} got an unexpected keyword argument '{name}'; did you mean {meant}"
    with pytest.raises(TypeError, match=said):
        kind(**{name: 1})
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'qqq'$"):
        kind(qqq=1)


def test_the_batch_size_may_come_second_as_in_a_data_loader_of_torch() -> None:
    with pytest.raises(ConfigError, match=r"^batch_size must be a whole number .*, got 'x'$"):
        EmlioLoader("emlio://127.0.0.1:1/x", "x")  # type: ignore[arg-type]  # checked below
    with pytest.raises(AssertionError, match="must be checked before"):
        EmlioLoader("emlio://127.0.0.1:1/x", 32, to="numpy")


def test_more_arguments_by_position_are_an_error_that_says_to_name_them() -> None:
    given: list[Any] = ["emlio://127.0.0.1:1/x", 32, True, 5]
    with pytest.raises(TypeError, match=r"takes address and batch_size by position, got 4 values. Name the other"):
        EmlioLoader(*given)


def test_a_loader_that_is_not_connected_yet_can_be_printed() -> None:
    assert repr(object.__new__(EmlioLoader)) == "<EmlioLoader, not connected>"


@pytest.mark.parametrize(
    ("name", "instead"),
    [("dataset", "loader.samples"), ("sampler", "set_epoch"), ("map", "transform="), ("colour", "attribute 'colour'$")],
)
def test_an_attribute_of_another_loader_is_an_error_that_says_what_to_use(name: str, instead: str) -> None:
    loader = object.__new__(EmlioLoader)
    with pytest.raises(AttributeError, match=rf"^EmlioLoader has no attribute '{name}'|{instead}") as refused:
        getattr(loader, name)
    assert re.search(instead, str(refused.value))
    assert not hasattr(loader, name)


def test_no_argument_of_the_loader_has_a_hint_for_another_place() -> None:
    assert set(HINTS) & set(inspect.signature(EmlioLoader).parameters) == set()


@pytest.mark.parametrize("size", ["64 parsecs", "1", "2TiB", -5])
def test_a_window_is_refused_by_one_rule_with_all_units(size: str | int) -> None:
    with pytest.raises(ConfigError, match=r'"auto".* from 1 MiB to 1 TiB in B, kB, .*TiB'):
        EmlioLoader("emlio://127.0.0.1:1/x", batch_size=2, prefetch=size)


@pytest.mark.parametrize("value", ["5 fortnights", "0s", "soon"])
def test_a_timeout_is_refused_by_one_rule_with_all_units(value: str) -> None:
    with pytest.raises(ConfigError, match="at least 1 ms in ns, us, ms, s, min or h"):
        Recovery(timeout=value)


def test_a_wrong_key_is_refused_with_its_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"the address's key of the daemon on store1: "):
        EmlioLoader("emlio://emlio1abc@store1/x", batch_size=2)
    with pytest.raises(ConfigError, match=r"Security\(keys=.*/none"):
        EmlioLoader("emlio://store1/x", batch_size=2, security=Security(keys=tmp_path / "none"))
    monkeypatch.setenv("EMLIO_DAEMON_KEY", "emlio1abc")
    with pytest.raises(ConfigError, match=r"^EMLIO_DAEMON_KEY: "):
        EmlioLoader("emlio://store1/x", batch_size=2)


def test_cuda_without_torch_is_an_error_that_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("emlio.receiver.batch_kinds.options.torch_is_installed", lambda: False)
    with pytest.raises(ConfigError, match="device 'cuda' needs PyTorch, which is not installed: pip install"):
        EmlioLoader("emlio://127.0.0.1:1/x", batch_size=2, device="cuda")


@pytest.mark.parametrize(
    ("use", "instead"),
    [(pickle.dumps, "in each process"), (copy.copy, "in each process"), (operator.itemgetter(0), "iterate over it")],
)
def test_a_use_as_a_data_set_of_torch_is_an_error_that_says_what_to_do(use: Any, instead: str) -> None:
    loader = object.__new__(EmlioLoader)
    with pytest.raises(TypeError, match=instead):
        use(loader)


def test_tensors_without_torch_are_an_error_that_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("emlio.receiver.torch_adapter.torch_is_installed", lambda: False)
    with pytest.raises(
        ConfigError, match=r"^to must be 'numpy' where PyTorch is not installed, got 'torch'; pip install"
    ):
        EmlioLoader("emlio://127.0.0.1:1/x", batch_size=2, to="torch")


def test_the_objects_are_values(tmp_path: Path) -> None:
    assert Recovery(timeout="5s", heartbeat="9s") == Recovery(timeout="5s", heartbeat="9s")
    assert (Recovery(timeout="5s", heartbeat="9s").timeout_ns, Recovery(timeout=5, heartbeat=9).heartbeat_ns) == (
        5_000_000_000,
        5_000_000_000,
    )
    assert len({Security(keys=tmp_path), Security(keys=tmp_path), Security()}) == 2
    given = {"size": 8}
    dali = DaliPipeline("image-train", args=given, outputs=["image", "label"])
    given["size"] = 9
    assert (dali.args, dali.outputs) == ({"size": 8}, ("image", "label"))
    assert len({dali, DaliPipeline("image-train", args={"size": 8}, outputs=("image", "label"))}) == 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Recovery("5s"), r"Recovery must get its arguments by name \(timeout=, heartbeat=, .*\), got '5s'"),  # type: ignore[call-arg,misc]
        (lambda: Recovery(timeut="5s"), "Recovery has no argument 'timeut'; did you mean 'timeout'?"),  # type: ignore[call-arg]
        (lambda: Recovery(retries=3), "Recovery has no argument 'retries'. It has 'timeout', 'heartbeat', 'on_error'"),  # type: ignore[call-arg]
        (lambda: Security("secret"), r"Security must get its arguments by name \(keys=, .*\), got '...'"),  # type: ignore[call-arg,misc]
        (lambda: Security(encrypt="aead"), "Security has no argument 'encrypt'; did you mean 'encryption'"),  # type: ignore[call-arg]
    ],
    ids=["position", "misspelled", "unknown", "secret", "security"],
)
def test_the_settings_say_how_their_arguments_are_given(make: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


def test_the_settings_can_be_copied() -> None:
    for settings in (Recovery(timeout="5s", on_error="skip"), Security(encryption="off")):
        assert pickle.loads(pickle.dumps(settings)) == copy.deepcopy(settings) == settings
