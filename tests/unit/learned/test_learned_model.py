"""Trees without scikit-learn give what scikit-learn gives; a model's file gives the model back, or is refused."""

import os
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from emlio.errors import ConfigError
from emlio.learned.forest import Forest
from emlio.learned.model import Model
from emlio_bench.tuning.train import forest_of, train

NAMES = ("window", "lanes", "trip")


def _rows(seed: int, count: int = 300, *, missing: float = 0.2) -> np.ndarray[Any, np.dtype[np.float64]]:
    draws = np.random.default_rng(seed)
    rows = draws.choice([draws.normal(size=(count, 3)), draws.integers(-2, 3, (count, 3)).astype(float)])
    rows[draws.random(rows.shape) < missing] = np.nan
    return rows


@pytest.fixture(scope="module")
def model() -> Model:
    rows = _rows(1, 600, missing=0.0)
    gains = np.exp(np.where(rows[:, 0] > 0, 0.5, -0.1) + 0.02 * rows[:, 1])
    groups = [f"place {number % 5}" for number in range(len(rows))]
    return train(rows, gains, groups, NAMES, sorted(set(groups))).model


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), missing=st.sampled_from([0.0, 0.3]))
def test_trees_give_what_scikit_learn_gives(seed: int, missing: float) -> None:
    rows, others = _rows(seed, missing=missing), _rows(seed + 1, 50)
    aim = np.nan_to_num(rows[:, 0]) * np.nan_to_num(rows[:, 1], nan=3.0)
    regressor = HistGradientBoostingRegressor(max_iter=5, min_samples_leaf=5).fit(rows, aim)
    classifier = HistGradientBoostingClassifier(max_iter=5, min_samples_leaf=5).fit(rows, aim > np.median(aim))
    assert forest_of(regressor).raw(others) == pytest.approx(regressor.predict(others), rel=1e-12, abs=1e-12)
    assert forest_of(classifier).raw(others) == pytest.approx(
        classifier.decision_function(others), rel=1e-12, abs=1e-12
    )


def test_a_model_knows_what_brings_more_and_where_it_was_trained(model: Model) -> None:
    rows = np.array([[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0], [9.0, 0.0, 0.0], [np.nan, 0.0, 0.0]])
    chances = model.chances(rows)
    assert chances[0] > 0.9 > 0.1 > chances[1] >= 0
    assert model.gains(rows)[:2] == pytest.approx([0.5, -0.1], abs=0.1)
    assert model.covers(rows).tolist() == [True, True, False, True]


def test_a_file_gives_the_model_back_and_is_the_same_each_time(model: Model, tmp_path: Path) -> None:
    model.save(tmp_path / "one.npz")
    again = Model.load(tmp_path / "one.npz")
    again.save(tmp_path / "two.npz")
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()
    assert again.digest == model.digest
    assert (again.names, again.environments, again.epsilon) == (model.names, model.environments, model.epsilon)
    rows = _rows(3, 40)
    assert np.array_equal(again.chances(rows), model.chances(rows))
    assert np.array_equal(again.gains(rows), model.gains(rows))
    assert replace(model, epsilon=0.1).digest != model.digest


def test_a_file_that_is_no_model_is_refused(model: Model, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"must be readable: .*none\.npz: No such file"):
        Model.load(tmp_path / "none.npz")
    with pytest.raises(ConfigError, match=r"must be readable: .*null"):
        Model.load(Path("a\0b"))
    unusable: list[Any] = ["none", "/x/read.npz", "a\0b", "a" * 5000, None, 3]
    for one in unusable:
        with pytest.raises(ConfigError, match="the Path of a file, or the name of one that comes with EMLIO"):
            Model.load(one)
    with pytest.raises(ConfigError, match="must be writable"):
        model.save(tmp_path)
    path = tmp_path / "model.npz"
    np.savez(path, about=np.zeros(3, np.uint8))
    with pytest.raises(ConfigError, match="must be of this release"):
        Model.load(path)
    np.savez(path, about=np.array([{}], dtype=object))
    with pytest.raises(ConfigError, match="allow_pickle=False"):
        Model.load(path)


def test_a_large_file_is_not_read_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    path.touch()
    os.truncate(path, 1 << 40)  # more than memory
    with pytest.raises(ConfigError, match="must be a model"):
        Model.load(path)


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<f8', 'fortran_order': False, 'shape': (100000000000000,), }",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (3, ",
        "{'descr': (), 'fortran_order': False, 'shape': (3,), }",
        "{'descr': [('a',)], 'fortran_order': False, 'shape': (3,), }",
        "{[]: 1}",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (), }",
    ],
)
@pytest.mark.parametrize("part", ["about", "low", "gain value"])
def test_an_array_with_a_damaged_header_is_refused(model: Model, tmp_path: Path, header: str, part: str) -> None:
    path = tmp_path / "model.npz"
    model.save(path)
    with zipfile.ZipFile(path) as archive:
        held = {name: archive.read(name) for name in archive.namelist()}
    text = header.encode().ljust(117) + b"\n"
    held[f"{part}.npy"] = b"\x93NUMPY\1\0" + len(text).to_bytes(2, "little") + text + bytes(8)
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in held.items():
            archive.writestr(name, data)
    with pytest.raises(ConfigError, match="must be a model"):
        Model.load(path)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_file_gives_the_model_or_is_refused(model: Model, tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "model.npz"
    model.save(path)
    held = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(held) - 1))
    if data.draw(st.booleans()):
        held[place] ^= data.draw(st.integers(1, 255))
    else:
        del held[place:]
    path.write_bytes(held)
    try:
        assert Model.load(path).digest == model.digest
    except ConfigError as error:
        assert "must be a model" in str(error)  # noqa: PT017  # both ends are right


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"names": ("a", "a", "b")}, "different names"),
        ({"names": ("a", "b")}, "2 finite numbers"),
        ({"low": np.array([0.0, np.nan, 0.0])}, "low of a model must be 3 finite"),
        ({"low": np.full(3, 99.0)}, "must not be above high"),
        ({"calibration": np.zeros((1, 3))}, "two rows"),
        ({"calibration": np.array([[0.0, 1.0], [0.5, 0.2]])}, "must rise"),
        ({"calibration": np.array([[0.0, 1.0], [0.5, 1.2]])}, "must rise"),
        ({"epsilon": 0.0}, "epsilon of a model"),
    ],
)
def test_a_model_is_valid_at_birth(model: Model, change: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        replace(model, **change)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"roots": np.array([99_999], np.int32)}, "roots of a forest must be in"),
        ({"left": np.zeros(1, np.int32)}, "left of a forest must have"),
        ({"threshold": np.zeros(3, np.float32)}, "must be a row of <f8"),
        ({"baseline": np.array([np.inf])}, "must be finite"),
    ],
)
def test_a_forest_is_valid_at_birth(model: Model, change: dict[str, Any], told: str) -> None:
    arrays = {name: getattr(model.gain, name) for name in Forest.__dataclass_fields__ if not name.startswith("_")}
    with pytest.raises(ConfigError, match=told):
        Forest(**{**arrays, **change})
    with pytest.raises(ConfigError, match="two nodes behind them"):
        Forest(**{**arrays, "left": np.zeros_like(model.gain.left)})
    with pytest.raises(ConfigError, match="rows must have"):
        model.gain.raw(np.zeros((2, 0)))


@pytest.mark.parametrize(("trees", "depth", "fits"), [(1000, 64, True), (1001, 64, False), (1, 65, False)])
def test_a_forest_is_so_small_that_a_decision_is_quick(trees: int, depth: int, fits: bool) -> None:
    nodes = np.arange(depth + 1, dtype=np.int32)
    following = np.minimum(nodes + 1, depth).astype(np.int32)  # a chain
    given: dict[str, Any] = {
        "roots": np.zeros(trees, np.int32),
        "column": np.zeros_like(nodes),
        "threshold": np.zeros(depth + 1),
        "missing_left": np.zeros(depth + 1, np.bool_),
        "left": following,
        "right": following,
        "value": np.ones(depth + 1),
        "baseline": np.zeros(1),
    }
    if fits:
        assert Forest(**given).raw(np.zeros((1, 1))).tolist() == [trees]
    else:
        with pytest.raises(ConfigError, match="1000 trees at most, of a depth of at most 64"):
            Forest(**given)


def test_training_needs_environments_and_both_kinds_of_changes() -> None:
    rows = _rows(4, 30)
    for groups, gains in ((["a"] * 30, np.arange(1.0, 31)), (["a", "b"] * 15, np.ones(30))):
        with pytest.raises(ConfigError, match="training needs two environments"):
            train(rows, gains, groups, NAMES, ["a"])
