import hashlib

import numpy as np
import pytest

from emlio.errors import ConfigError
from emlio.planner.sample_seeds import sample_seeds, uniforms

_IDS = np.arange(65536, dtype=np.int64)
_SEEDS = ["bc5a892f1c8c06f2", "cf2d649148826936", "0f46a12310fb25c2", "4ef85913f0d88487", "f745217e3036f3e4"]
_SEEDS_DIGEST = "5460a7e98c553c6e220882c4d8c105fba3104c0c0f911911814237c93ebcf738"
_UNIFORMS = [
    [0.9552226662635803, 0.47312378883361816, 0.5341694951057434, 0.216960608959198, 0.12765032052993774],
    [0.21570295095443726, 0.0253143310546875, 0.12961840629577637, 0.18238234519958496, 0.24285101890563965],
]
_UNIFORMS_DIGEST = "0b3752c9a08d1b39b9bc7271f2ed674a27a596cf472f73c97edbb20d071403aa"


def _chi_square(values: np.ndarray, bins: int) -> float:
    """How uneven values in [0, bins) are: about bins - 1 for even ones, give or take sqrt(2 * bins)."""
    counts = np.bincount(values, minlength=bins)
    expected = len(values) / bins
    return float(((counts - expected) ** 2 / expected).sum())


def _is_even(values: np.ndarray, bins: int) -> bool:
    return abs(_chi_square(values, bins) - (bins - 1)) < 5 * (2 * bins) ** 0.5


def _bins(column: np.ndarray, bins: int) -> np.ndarray:
    return (column * np.float32(bins)).astype(np.int64)


def test_seeds_are_those_they_have_always_been() -> None:
    ids = np.array([0, 1, 2, 1_281_166, 2**40], np.int64)
    seeds = sample_seeds(42, 3, ids)
    assert seeds.dtype == np.uint64
    assert [f"{seed:016x}" for seed in seeds.tolist()] == _SEEDS
    digest = hashlib.sha256()
    for seed, epoch in ((0, 0), (42, 3), (2**63, 1000)):
        digest.update(sample_seeds(seed, epoch, _IDS).astype("<u8").tobytes())
    assert digest.hexdigest() == _SEEDS_DIGEST


def test_uniforms_are_those_they_have_always_been() -> None:
    values = uniforms(sample_seeds(42, 3, _IDS), 5)
    assert values[:2].tolist() == _UNIFORMS
    assert hashlib.sha256(values.astype("<f4").tobytes()).hexdigest() == _UNIFORMS_DIGEST


def test_a_records_seed_does_not_depend_on_what_else_is_asked_for() -> None:
    order = np.random.default_rng(0).permutation(_IDS)[:1000]
    assert np.array_equal(sample_seeds(7, 2, order), sample_seeds(7, 2, _IDS)[order])
    assert sample_seeds(7, 2, order[:1])[0] == sample_seeds(7, 2, _IDS)[order[0]]
    assert sample_seeds(7, 2, order[:0]).shape == (0,)


def test_no_two_records_share_a_seed_and_other_epochs_and_seeds_share_none() -> None:
    pairs = [(seed, epoch) for seed in (0, 1, 2, 12, 2**63) for epoch in (0, 1, 2, 12)]
    every = np.concatenate([sample_seeds(seed, epoch, _IDS) for seed, epoch in pairs])
    assert len(np.unique(every)) == len(pairs) * len(_IDS)


@pytest.mark.parametrize("shift", [0, 8, 20, 32, 40, 56])
def test_every_part_of_a_seed_is_even(shift: int) -> None:
    seeds = sample_seeds(5, 0, _IDS) >> np.uint64(shift)
    assert _is_even((seeds & np.uint64(255)).astype(np.int64), 256)


@pytest.mark.parametrize(("seed", "epoch"), [(0, 1), (1, 0)])
def test_a_record_is_independent_of_itself_in_another_epoch_and_under_another_seed(seed: int, epoch: int) -> None:
    ours, other = sample_seeds(0, 0, _IDS), sample_seeds(seed, epoch, _IDS)
    flipped = np.unpackbits((ours ^ other).view(np.uint8)).sum() / len(_IDS)  # of 64 bits, give or take 4
    assert abs(flipped - 32) < 5 * 4 / len(_IDS) ** 0.5
    high = np.uint64(60)
    assert _is_even(((ours >> high) * np.uint64(16) + (other >> high)).astype(np.int64), 256)


def test_uniforms_are_even_in_every_column_and_reach_both_ends() -> None:
    values = uniforms(sample_seeds(3, 0, np.arange(1 << 18, dtype=np.int64)), 4)
    assert values.shape == (1 << 18, 4)
    assert values.dtype == np.float32
    assert 0 <= values.min() < 1e-4
    assert 0.9999 < values.max() < 1
    assert all(_is_even(_bins(column, 1000), 1000) for column in values.T)


def test_columns_are_independent_of_each_other_and_of_the_neighbouring_record() -> None:
    values = uniforms(sample_seeds(3, 0, _IDS), 3)
    pairs = [(values[:, 0], values[:, 1]), (values[:, 1], values[:, 2]), (values[:, 0], values[:, 2])]
    pairs += [(values[:-1, 0], values[1:, 0]), (values[:-1, 1], values[1:, 0])]
    for first, second in pairs:
        assert _is_even(_bins(first, 16) * 16 + _bins(second, 16), 256)


def test_neighbouring_seeds_do_not_meet_in_another_column() -> None:
    words = uniforms(np.arange(1000, dtype=np.uint64), 8)
    # 8,000 draws of 24 bits: about two pairs are equal by chance, hundreds if rows were shifted copies.
    assert len(np.unique(words)) > 7980


def test_the_largest_number_a_word_can_give_is_below_one() -> None:
    # Found by trying all: the first record whose word begins with 24 ones.
    ids = np.array([16276743], np.int64)
    assert uniforms(sample_seeds(0, 0, ids), 1).tolist() == [[1 - 2**-24]]


def test_more_draws_change_none_of_those_before() -> None:
    seeds = sample_seeds(3, 0, _IDS[:100])
    assert np.array_equal(uniforms(seeds, 9)[:, :4], uniforms(seeds, 4))
    assert np.array_equal(uniforms(seeds[40:50], 4), uniforms(seeds, 4)[40:50])


def test_arguments_are_left_as_they_were() -> None:
    ids = _IDS[:10].copy()
    seeds = sample_seeds(1, 1, ids)
    kept = seeds.copy()
    uniforms(seeds, 3)
    assert np.array_equal(ids, _IDS[:10])
    assert np.array_equal(seeds, kept)


def test_what_cannot_be_is_refused() -> None:
    seeds = sample_seeds(0, 0, _IDS[:4])
    with pytest.raises(ConfigError, match="epoch must be at least 0, got -1"):
        sample_seeds(0, -1, _IDS)
    with pytest.raises(ConfigError, match="ids must be int64, got int32"):
        sample_seeds(0, 0, np.arange(3, dtype=np.int32))  # type: ignore[arg-type]  # the mistake meant
    with pytest.raises(ConfigError, match="seeds must be uint64 and one-dimensional, got int64"):
        uniforms(seeds.view(np.int64), 1)  # type: ignore[arg-type]  # the mistake meant
    with pytest.raises(ConfigError, match=r"one-dimensional, got uint64 \(2, 2\)"):
        uniforms(seeds.reshape(2, 2), 1)
    with pytest.raises(ConfigError, match="count must be at least 1, got 0"):
        uniforms(seeds, 0)
