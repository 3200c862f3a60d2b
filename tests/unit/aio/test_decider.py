"""The choice of a handle's settings: DIAL's scores by hand, trials that are undone and banned, columns within bounds."""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emlio.aio.decider import EPSILON, Memory, Trial, decide, dial, dial_scores
from emlio.aio.interval import NAMES, SETTINGS, Interval, Setting, rows_of
from emlio.aio.tuner import shipped_models
from emlio.errors import ConfigError

START = Setting(block_bytes=64 << 10, depth=2)
GOOD = Setting(block_bytes=1 << 20, depth=32)
SMALLER = Setting(block_bytes=1 << 20, depth=8)
SECOND_NS = 1_000_000_000


def seen(rate: float, setting: Setting = START, at_s: float = 0.0, *, write: bool = True) -> Interval:
    return Interval(
        write=write,
        setting=setting,
        at_ns=round(at_s * 1e9),
        busy_ns=SECOND_NS,
        size_bytes=round(rate),
        requests=10,
        calls=10,
        call_ns=SECOND_NS,
        cpu_ns=1000,
    )


class Expects:
    """Stands for a model: what it expects of settings, in the order of the grid."""

    def __init__(
        self, chances: dict[Setting, float], gains: dict[Setting, float] | None = None, known: bool = True
    ) -> None:
        self.of = [np.array([each.get(one, 0.0) for one in SETTINGS]) for each in (chances, gains or {})]
        self.known = known

    def chances(self, _: Any) -> npt.NDArray[np.float64]:
        return self.of[0]

    def gains(self, _: Any) -> npt.NDArray[np.float64]:
        return self.of[1]

    def covers(self, rows: Any) -> npt.NDArray[np.bool_]:
        return np.full(len(rows), self.known)


def after(model: Any, memory: Memory, *rates: float, at_s: float = 0.0) -> Memory:
    for rate in rates:
        memory = decide(model, memory, seen(rate, memory.setting, at_s))
    return memory


def test_dials_scores_are_those_of_algorithm_1() -> None:
    chances = np.array([0.9, 0.8, 0.85])
    settings = np.array([[1.0, 10.0], [2.0, 10.0], [3.0, 30.0]])  # scaled (0, 0), (0.5, 0), (1, 1)
    assert dial_scores(chances, settings, write=True) == pytest.approx([0.9, 0.8 * 1.5, 0.85 * 3])
    assert dial_scores(chances, settings, write=False) == pytest.approx([0.9, 0.8 * 1.5, 0.85 * 2 + 1])
    for write in (False, True):
        assert dial_scores(chances[:1], settings[:1], write=write) == pytest.approx([0.9]), "one alone is scaled to 0"


def test_dial_takes_the_largest_score_above_tau_at_once_and_stays_without_one() -> None:
    model: Any = Expects({GOOD: 0.81, SMALLER: 0.9, Setting(block_bytes=8 << 20, depth=16): 0.8})
    first = dial(model, Memory(setting=START), seen(1e8))
    assert first.setting == START, "a history of two"
    found = dial(model, first, seen(1e8))
    assert (found.setting, found.trial) == (GOOD, None)
    none: Any = Expects({GOOD: 0.8})
    assert dial(none, first, seen(1e8)).setting == START


def test_a_trial_that_brings_3_percent_more_is_kept() -> None:
    model: Any = Expects({GOOD: 0.9}, {GOOD: 0.5})
    memory = after(model, Memory(setting=START, pause=(0, 10**10)), 100e6)
    assert memory.setting == START, "not after one look"
    memory = after(model, memory, 100e6)
    assert (memory.setting, memory.trial) == (GOOD, Trial(before=START, rate=100e6))
    memory = after(model, memory, 1e6, 103e6, 103e6)
    assert (memory.setting, memory.trial, memory.bans) == (GOOD, None, {}), "the first interval does not count"
    assert memory.pause == (0, 0), "the next failure begins with the shortest one"


def test_a_trial_that_brings_less_is_undone_and_banned_for_twice_as_long_each_time() -> None:
    model: Any = Expects({GOOD: 0.9}, {GOOD: 0.5})
    memory, at_s = Memory(setting=START), 0.0
    for banned_s in (30, 60, 120, 240, 480, 960, 960):
        memory = after(model, memory, 100e6, 100e6, at_s=at_s)
        assert memory.setting == GOOD
        memory = after(model, memory, 102e6, 102e6, 102e6, at_s=at_s)
        assert (memory.setting, memory.trial) == (START, None)
        memory = after(model, memory, *[100e6] * 5, at_s=at_s + banned_s - 1)
        assert memory.setting == START
        memory, at_s = replace(memory, steady=0), at_s + banned_s


def test_no_setting_is_tried_for_a_while_after_a_trial_that_failed_each_time_for_twice_as_long() -> None:
    model: Any = Expects(dict.fromkeys(SETTINGS, 0.9), dict.fromkeys(SETTINGS, 0.5))
    memory, looks, lost = Memory(setting=START), 2 * 60, 0
    for look in range(looks):
        at = 100e6 if memory.setting == START else 50e6
        lost += memory.setting != START
        memory = decide(model, memory, seen(at, memory.setting, look / 2))
    assert 0 < lost / looks <= 0.1
    assert memory.pause[1] == 40 * SECOND_NS


def test_a_chain_of_trials_that_lose_a_little_each_goes_nowhere() -> None:
    model: Any = Expects(dict.fromkeys(SETTINGS, 0.9), dict.fromkeys(SETTINGS, 0.5))
    memory = Memory(setting=START)
    for look in range(1000):
        worse = 0.96 ** SETTINGS.index(memory.setting)
        memory = decide(model, memory, seen(1e9 * worse, memory.setting, look / 2))
    assert SETTINGS.index(memory.setting) <= SETTINGS.index(START)


def test_nothing_changes_where_the_model_was_not_trained_or_expects_too_little() -> None:
    for model in (Expects({GOOD: 0.9}, {GOOD: 0.5}, known=False), Expects({GOOD: 0.79}, {GOOD: 0.5})):
        given: Any = model
        assert after(given, Memory(setting=START), *[100e6] * 9).setting == START


def test_of_settings_that_bring_as_much_the_one_with_fewer_bytes_at_the_disk_is_tried() -> None:
    model: Any = Expects({GOOD: 0.9, SMALLER: 0.9}, {GOOD: 0.5, SMALLER: 0.5})
    assert after(model, Memory(setting=START), 100e6, 100e6).setting == SMALLER


_COUNT = st.integers(0, 1 << 40)


@given(
    st.builds(
        Interval,
        write=st.booleans(),
        setting=st.sampled_from(SETTINGS),
        at_ns=_COUNT,
        busy_ns=st.integers(1, 1 << 40),
        size_bytes=_COUNT,
        requests=_COUNT,
        calls=st.integers(1, 1 << 40),
        call_ns=_COUNT,
        cpu_ns=st.just(0),
    ),
    st.lists(st.floats(0, 1e12), max_size=30),
)
def test_columns_are_ratios_within_bounds(now: Interval, rates: list[float]) -> None:
    rows = rows_of(now, now, rates)
    assert rows.shape == (len(SETTINGS), len(NAMES))
    assert (np.abs(rows) <= 16).all()
    assert ((rows[:, 0] >= 0) & (rows[:, 0] <= 1)).all()
    assert (rows[:, 1:3] == 0).all(), "nothing changed"
    unknown = rows_of(now, None, rates)
    assert np.isnan(unknown[:, 1:3]).all()
    assert not np.isnan(np.delete(unknown, (1, 2), axis=1)).any()


def test_columns_tell_the_step_to_each_setting_and_not_how_fast_the_disk_is() -> None:
    row = rows_of(seen(100e6), seen(50e6), [50e6, 100e6], [GOOD])[0]
    assert dict(zip(NAMES, row.tolist(), strict=True)) == pytest.approx(
        {
            "rate / recent maximum": 1.0,
            "rate change": 1.0,
            "latency change": 0.0,
            "request / block": np.log2(10e6 / 65536),
            "call / window": np.log2(10e6 / 131072),
            "block": 0.0,
            "depth": 1.0,
            "CPU share": 1e-6,
            "block step": 4.0,
            "depth step": 4.0,
        }
    )
    fast, slow = (
        rows_of(replace(seen(each), requests=1, calls=1, size_bytes=1 << 20, busy_ns=busy), None, [])
        for each, busy in ((1, 1000), (1, 10**9))
    )
    assert np.delete(fast, 7, axis=1) == pytest.approx(np.delete(slow, 7, axis=1), nan_ok=True)


def test_the_models_that_come_with_it_are_of_these_columns() -> None:
    for model in shipped_models().values():
        assert (model.names, model.epsilon) == (NAMES, EPSILON)
        assert model.chances(rows_of(seen(1e8), None, [])).shape == (len(SETTINGS),)


def test_settings_and_intervals_that_cannot_be_are_refused() -> None:
    for wrong in ({"block_bytes": 5000, "depth": 1}, {"block_bytes": 4096, "depth": 0}):
        with pytest.raises(ConfigError, match="a setting must have"):
            Setting(**wrong)
    with pytest.raises(ConfigError, match="an interval must have"):
        replace(seen(1e8), calls=0)
