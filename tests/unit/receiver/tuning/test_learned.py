"""The learned rule: what a model sees, the changes it chooses, and where the rule's own offers stand in for it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emlio.errors import ConfigError
from emlio.learned.model import Model
from emlio.receiver.tuning import choice
from emlio.receiver.tuning.choice import TuneChoice
from emlio.receiver.tuning.learned import COLUMNS, Learned, neighbours, rows_of
from emlio.receiver.tuning.log import TuningLog, read_log, replayed
from emlio.receiver.tuning.offers import gaining
from emlio.receiver.tuning.rule import decide
from emlio.receiver.tuning.snapshot import Interval, Snapshot
from emlio.receiver.tuning.state import Limits, RuleState
from emlio.receiver.tuning.tuner import Tuner
from emlio.receiver.tuning.tuning import BOUNDS, Tuning
from emlio_testing.models import tree_model

MIB = 1 << 20
S = 1_000_000_000
LIMITS = Limits(least_window_bytes=128 * MIB, most_window_bytes=256 * MIB, lanes=0.4)
INTERVAL = Interval(elapsed_ns=S // 2, rate=1e8, wait=0.5, window=0.5)
STATE = RuleState(
    tuning=Tuning(window_bytes=128 * MIB),
    last=Snapshot(at_ns=S, lanes=12),
    recent=(INTERVAL, INTERVAL),
    rates=(1e8, 1e8),
    trips=((0, 30_000_000),),
)


def test_likely_changes_come_first_the_one_that_costs_least_before_all_and_then_those_of_the_rule() -> None:
    offers = Learned(model=tree_model()).gains(STATE, LIMITS)
    usual = gaining(STATE, LIMITS)
    assert offers[-len(usual) :] == usual
    chosen = offers[: -len(usual)]
    assert {each.tuning.message_bytes for each in chosen} == {4 * MIB, 8 * MIB}, "2 MiB are what several lanes have"
    assert {each.kind for each in chosen} == {"a model's choice"}, "a wrong one bans all"
    assert chosen[0].name == "messages of 4 MiB"
    assert chosen[-1].name == usual[0].name, "the rule's own change takes twice the window and the lanes"


def test_another_score_orders_otherwise() -> None:
    dear = Learned(model=tree_model(), score=lambda chances, gains, costs: costs)
    assert dear.gains(STATE, LIMITS)[0].name == gaining(STATE, LIMITS)[0].name


@pytest.mark.parametrize(
    "model",
    [
        tree_model(chance=0.8),
        replace(tree_model(), low=np.full(len(COLUMNS), 2.0)),
        replace(tree_model(), high=np.where([name == "round trip" for name in COLUMNS], 1.0, 50.0)),
    ],
    ids=["none is likely", "below the range", "a round trip above the range"],
)
def test_the_rules_own_offers_stand_in_for_a_model_that_does_not_know(model: Model) -> None:
    assert Learned(model=model).gains(STATE, LIMITS) == gaining(STATE, LIMITS)


def test_a_model_of_other_columns_is_refused() -> None:
    other = replace(tree_model(), names=("a", *COLUMNS[1:]))
    with pytest.raises(ConfigError, match="columns of this release"):
        Learned(model=other)


_TUNINGS = st.builds(
    Tuning,
    **{name: st.integers(low, min(high, 1 << 32)) for name, (low, high) in BOUNDS.items()},  # type: ignore[arg-type]
)
_COUNTS = st.integers(-(2**40), 2**62)
_INTERVALS = st.builds(
    lambda before, now: Interval.between(before, now),
    *(st.builds(Snapshot, **{name: _COUNTS for name in Snapshot.__struct_fields__ if name != "round_trip_ns"}),) * 2,
)
_LIMITS = st.builds(
    Limits,
    least_window_bytes=st.integers(MIB, 256 * MIB),
    most_window_bytes=st.just(256 * MIB),
    lanes=st.sampled_from([0.0, 1e-9, 0.4, 100.0]),
)
_STATES = st.builds(
    RuleState,
    tuning=_TUNINGS,
    last=st.none() | st.builds(Snapshot, at_ns=_COUNTS, lanes=st.integers(0, 4096), held_bytes=st.integers(0, 2**40)),
    recent=st.lists(_INTERVALS, max_size=3).map(tuple),
    rates=st.lists(st.floats(0, 1e12), max_size=4).map(tuple),
    trips=st.lists(st.tuples(_COUNTS, st.integers(0, 10**12)), max_size=3).map(tuple),
)


@settings(deadline=None)
@given(state=_STATES, limits=_LIMITS)
def test_what_a_model_sees_is_finite_and_its_changes_are_few_and_within_bounds(
    state: RuleState, limits: Limits
) -> None:
    offers = neighbours(state, limits)
    assert len(offers) + 2 <= 30
    assert len({each.tuning for each in offers}) == len(offers)
    rows = rows_of(state, limits, [each.tuning for each in offers])
    assert rows.shape == (len(offers), len(COLUMNS))
    assert np.isfinite(rows).all()
    assert state.tuning not in [each.tuning for each in offers]
    for each in offers:
        if each.tuning.window_bytes != state.tuning.window_bytes:
            assert limits.least_window_bytes <= each.tuning.window_bytes <= limits.most_window_bytes
        if not limits.lanes:
            assert each.tuning.lanes == state.tuning.lanes
    found = Learned(model=tree_model()).gains(state, limits)
    usual = gaining(state, limits)
    assert found[len(found) - len(usual) :] == usual


class _Path:
    """A path that carries more with messages of 4 MiB or more; its user waits."""

    def __init__(self) -> None:
        self.now = Snapshot(at_ns=0, round_trip_ns=30_000_000, lanes=12)
        self.rate = 1e8

    def __call__(self) -> Snapshot:
        seen = self.now
        self.now = msgspec.structs.replace(
            seen,
            at_ns=seen.at_ns + S // 2,
            received_bytes=seen.received_bytes + round(self.rate / 2),
            batches=seen.batches + 1,
            wait_ns=seen.wait_ns + S // 4,
            credit_ns=seen.credit_ns + S // 4,
        )
        return seen


@pytest.mark.parametrize("gains", [True, False])
def test_what_the_model_chooses_is_tried_and_stays_only_if_it_brings_more(gains: bool) -> None:
    path, rule = _Path(), Learned(model=tree_model())
    tuner = Tuner(Tuning(window_bytes=128 * MIB), path, rule=rule)
    found: list[Tuning] = []
    for number in range(10 if gains else 13):
        tuning = tuner.turn(number * S // 2, LIMITS)
        if tuning is not None:
            found.append(tuning)
            path.rate = 1.5e8 if tuning.message_bytes and gains else 1e8
    assert found[0].message_bytes == 4 * MIB
    assert [each.message_bytes for each in found[1:2]] == ([] if gains else [0])


def _shipping(model: Model) -> Any:
    return lambda: Learned(model=model)


def test_a_log_is_decided_again_with_the_model_that_decided_and_shown_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, model = tmp_path / "log", tree_model()
    rule = Learned(model=model)
    tuner = Tuner(Tuning(window_bytes=128 * MIB), _Path(), TuningLog(path, model=rule.words), rule)
    decided = [tuner.turn(number * S // 2, LIMITS) for number in range(20)]
    tuner.close()
    assert any(decided)
    line = next(read_log(path))
    assert (line.model, line.own) == (f"read {model.digest}", False)
    asked: list[Any] = []

    def counted(*arguments: Any) -> Any:
        asked.append(arguments)
        return decide(*arguments)

    monkeypatch.setattr("emlio.receiver.tuning.learned.decide", counted)
    for ships, times in ((model, 20), (tree_model(gain=0.4), 0)):
        monkeypatch.setattr("emlio.receiver.tuning.log.shipped", _shipping(ships))
        asked.clear()
        again = [decision for _, decision, _ in replayed(read_log(path))]
        assert [each.tuning if each is not None else None for each in again] == decided
        assert len(asked) == times


def test_the_word_means_the_model_that_comes_with_emlio() -> None:
    found = TuneChoice.parse("learned")
    assert (found.way, found.is_on) == ("learned", True)
    assert isinstance(found.rule, Learned)
    assert found.rule.model.digest == choice.shipped().model.digest
    assert found.rule.model.environments
