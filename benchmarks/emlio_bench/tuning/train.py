"""Training of a model of changes with scikit-learn, which nothing else imports, and a report on environments left out.

Probabilities are calibrated, and everything in the report is predicted, by models that saw nothing of the environment. Rows of
one run resemble each other: left out one by one they would be known already.
"""

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from emlio.errors import ConfigError
from emlio.extras import how_to_install
from emlio.learned.forest import Floats, Forest
from emlio.learned.model import Model

__all__ = ["GroupScore", "Trained", "check_model_place", "forest_of", "train"]

_FOLDS: Final = 10
_TREES: Final[dict[str, Any]] = {
    "max_iter": 100,
    "max_leaf_nodes": 31,
    "max_depth": 8,
    "min_samples_leaf": 20,
    "l2_regularization": 1.0,
    "early_stopping": False,
    "random_state": 0,
}


_COLUMNS: Final = """\
rows: changes. gained: those that brought {gain:.0%} more. chosen: those that the model finds likely enough to try; precision: of
these, those that brought it. AUC: 1 puts all that brought it before the others, 0.5 is chance. Brier: the mean squared error of
the probability, 0 at best. All are of environments that the model had not seen.{without}"""
_NONE_CHOSEN: Final = """
No change was chosen: with this model tune="learned" will do the same as tune="auto". Collect data in more environments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupScore:
    """The quality of predictions for an environment that was left out.

    Attributes:
        group: its name.
        rows: changes in it.
        gained: the share of them that brought more than epsilon.
        chosen, precision: those with a probability above tau, and the share of these that brought it; NaN without any.
        auc: the probability that one that did scores above one that did not; NaN if all are of a kind.
        brier: the mean squared error of the probability.
    """

    group: str
    rows: int
    gained: float
    chosen: int
    precision: float
    auc: float
    brier: float

    @classmethod
    def of(cls, group: str, chances: Floats, gained: npt.NDArray[np.bool_], tau: float) -> "GroupScore":
        """Return the quality of these predictions."""
        above = chances > tau
        mixed = gained.any() and not gained.all()
        return cls(
            group=group,
            rows=len(gained),
            gained=float(gained.mean()),
            chosen=int(above.sum()),
            precision=float(gained[above].mean()) if above.any() else float("nan"),
            auc=float(_sklearn("metrics").roc_auc_score(gained, chances)) if mixed else float("nan"),
            brier=float(np.mean((chances - gained) ** 2)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """A model, and the quality of what models like it predict for environments that they have not seen."""

    model: Model
    scores: tuple[GroupScore, ...]

    def table(self) -> str:
        """Return the scores as text: all rows, and each environment."""
        without = "" if self.scores[0].chosen else _NONE_CHOSEN
        words = _COLUMNS.format(gain=self.model.epsilon, without=without)
        return "\n".join(
            ["  rows  gained chosen precision   AUC  Brier  environment, left out", *map(_line, self.scores), words]
        )


def _line(one: GroupScore) -> str:
    precision = f"{one.precision:.1%}" if one.chosen else "-"
    auc = "-" if one.auc != one.auc else f"{one.auc:.2f}"
    return f"{one.rows:6} {one.gained:7.1%} {one.chosen:6} {precision:>9} {auc:>5} {one.brier:6.3f}  {one.group}"


def train(
    rows: Floats,
    gains: Floats,
    groups: Sequence[str],
    names: Sequence[str],
    environments: Sequence[str],
    epsilon: float = 0.15,
    tau: float = 0.8,
) -> Trained:
    """Train a model.

    Args:
        rows: a change in each, with the circumstances in which it was made.
        gains: the rate after each change over the rate before it.
        groups: the environment of each row.
        names: the columns.
        environments: all environments in words, which the model keeps.
        epsilon: the gain whose probability is learned.
        tau: the probability from which on the report counts a change as chosen.
    """
    places = np.asarray(groups)
    gained = np.asarray(gains > 1 + epsilon)
    folds = min(_FOLDS, len(set(groups)))
    if (
        folds < 2
        or gained.all()
        or not gained.any()
        or any(np.isnan(rows[rest]).all(axis=0).any() for _, rest in _parts(places, folds))
    ):
        raise ConfigError(
            "training needs two environments or more, with changes that bring more and changes that do not, and values in "
            "all columns whatever environment is left out: collect more"
        )
    ensemble = _sklearn("ensemble")
    raw = _left_out(rows, gained, places, folds)
    # Each environment is calibrated by the others, too.
    chances = np.empty(len(rows))
    for held, rest in _parts(places, folds):
        chances[held] = _isotonic(raw[rest], gained[rest]).predict(raw[held])
    isotonic = _isotonic(raw, gained)
    low, high = np.nanquantile(rows, (0.01, 0.99), axis=0)
    model = Model(
        names=tuple(names),
        low=low,
        high=high,
        gain=forest_of(ensemble.HistGradientBoostingRegressor(**_TREES).fit(rows, np.log(gains))),
        chance=forest_of(ensemble.HistGradientBoostingClassifier(**_TREES).fit(rows, gained)),
        calibration=np.stack((isotonic.X_thresholds_, isotonic.y_thresholds_)).astype(np.float64),
        epsilon=epsilon,
        environments=tuple(environments),
    )
    scores = [GroupScore.of("all", chances, gained, tau)]
    for group in sorted(set(groups)):
        here = places == group
        scores.append(GroupScore.of(group, chances[here], gained[here], tau))
    return Trained(model=model, scores=tuple(scores))


def check_model_place(path: Path) -> None:
    """Look whether a model may be written to a path, before it is trained.

    Raises:
        ConfigError: another file is there.
    """
    if path.exists():
        try:
            Model.load(path)
        except ConfigError as error:
            raise ConfigError(f"a model must not replace a file that is none: {error}") from error


def _parts(places: npt.NDArray[Any], folds: int) -> list[tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]]:
    """Return pairs of rows: those of some environments, and those of all others."""
    return [(held, rest) for rest, held in _sklearn("model_selection").GroupKFold(folds).split(places, groups=places)]


def _left_out(rows: Floats, gained: npt.NDArray[np.bool_], places: npt.NDArray[Any], folds: int) -> Floats:
    """Return raw scores, each from trees that saw nothing of the row's environment."""
    raw = np.zeros(len(rows))
    for held, rest in _parts(places, folds):
        if gained[rest].any() and not gained[rest].all():
            trees = _sklearn("ensemble").HistGradientBoostingClassifier(**_TREES).fit(rows[rest], gained[rest])
            raw[held] = trees.decision_function(rows[held])
    return raw


def _isotonic(raw: Floats, gained: npt.NDArray[np.bool_]) -> Any:
    rising = _sklearn("isotonic").IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip")
    return rising.fit(raw, gained.astype(np.float64))


def forest_of(trees: Any) -> Forest:
    """Return the trees of a fitted model of scikit-learn with one output."""
    nodes = [predictor.nodes for (predictor,) in trees._predictors]
    begins = np.cumsum([0, *map(len, nodes)])
    at = np.concatenate([begin + np.arange(len(tree)) for begin, tree in zip(begins[:-1], nodes, strict=True)])
    offset = np.concatenate([np.full(len(tree), begin) for begin, tree in zip(begins[:-1], nodes, strict=True)])
    every = np.concatenate(nodes)
    leaf = every["is_leaf"].astype(bool)
    return Forest(
        roots=begins[:-1].astype(np.int32),
        column=np.where(leaf, 0, every["feature_idx"]).astype(np.int32),
        threshold=np.where(leaf, 0.0, every["num_threshold"]),
        missing_left=every["missing_go_to_left"].astype(bool),
        left=np.where(leaf, at, offset + every["left"]).astype(np.int32),
        right=np.where(leaf, at, offset + every["right"]).astype(np.int32),
        value=every["value"].astype(np.float64),
        baseline=np.asarray(trees._baseline_prediction, np.float64).reshape(1),
    )


def _sklearn(part: str) -> Any:
    """Return a part of scikit-learn, which is slow to load and untyped."""
    try:
        return importlib.import_module(f"sklearn.{part}")
    except ImportError as error:
        raise ConfigError(f"training requires scikit-learn: {how_to_install('tune')}") from error
