import hashlib
import itertools
from math import isqrt

import numpy as np
import numpy.typing as npt
import pytest

from emlio.errors import ConfigError
from emlio.planner.permutation import LARGEST, Permutation

_WORD = 2**64 - 1


def _too_uneven(counts: npt.NDArray[np.int64], expected: float) -> bool:
    """Chi-square as a distance in standard deviations; 4.5 happens to one random table in 300,000."""
    freedom = counts.size - 1
    statistic = float(((counts - expected) ** 2 / expected).sum())
    return abs(statistic - freedom) / (2 * freedom) ** 0.5 > 4.5


def _spread_by_hand(tweak: int) -> int:
    word = ((tweak + 1) * 0x9E3779B97F4A7C15) & _WORD
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _WORD
    return word ^ (word >> 31)


def _forward_by_hand(n: int, key: bytes, place: int, tweak: int | None = None) -> int:
    """The same network, one number at a time, in Python's unbounded integers."""
    rows = isqrt(n - 1) + 1
    columns = -(-n // rows)
    spread = 0 if tweak is None else _spread_by_hand(tweak)
    number = place
    while True:
        halves = list(divmod(number, columns))
        for at in range(12 if n >= 4096 else 24):
            digest = hashlib.sha256(f"emlio.permutation/{n}/{at}/".encode() + key).digest()
            factor = int.from_bytes(digest[:8], "little") | 1
            hashed = ((halves[1 - at % 2] + spread) * factor + int.from_bytes(digest[8:16], "little")) & _WORD
            hashed = ((hashed ^ (hashed >> 32)) * 0xD6E8FEB86659FD93) & _WORD
            size = columns if at % 2 else rows
            halves[at % 2] = (halves[at % 2] + (((hashed >> 32) * size) >> 32)) % size
        number = halves[0] * columns + halves[1]
        if number < n:
            return number


def test_every_size_up_to_300_is_permuted_without_loss_and_back() -> None:
    for n in range(1, 301):
        permutation = Permutation(n, b"key %d" % n)
        places = np.arange(n)
        numbers = permutation.forward(places)
        assert sorted(numbers.tolist()) == places.tolist()
        assert np.array_equal(permutation.inverse(numbers), places)
        assert len(permutation) == n


@pytest.mark.parametrize("n", [4095, 4096, 4097, 99_991, 2**17])
def test_larger_sizes_are_permuted_without_loss_and_back(n: int) -> None:
    permutation = Permutation(n, b"larger")
    numbers = permutation.forward(np.arange(n))
    assert np.array_equal(np.sort(numbers), np.arange(n))
    assert np.array_equal(permutation.inverse(numbers), np.arange(n))


def test_vector_results_are_those_of_unbounded_integers() -> None:
    for n in (1, 2, 3, 10, 4095, 4096, 100_003, 10**9, LARGEST - 1, LARGEST):
        places = np.array(sorted({0, n // 3, n // 2, n - 1}))
        permutation = Permutation(n, b"by hand")
        by_hand = [_forward_by_hand(n, b"by hand", int(place)) for place in places]
        assert permutation.forward(places).tolist() == by_hand
        tweaks = np.arange(places.size) * 977
        tweaked = [
            _forward_by_hand(n, b"by hand", *pair) for pair in zip(places.tolist(), tweaks.tolist(), strict=True)
        ]
        assert permutation.forward(places, tweaks).tolist() == tweaked


def test_values_are_those_of_version_1() -> None:
    places = np.arange(6)
    assert Permutation(6, b"golden").forward(places).tolist() == [1, 2, 4, 0, 5, 3]
    assert Permutation(1000, b"golden").forward(places).tolist() == [699, 646, 398, 278, 73, 162]
    assert Permutation(10**9, b"golden").forward(places).tolist() == [
        408225321,
        194064455,
        664206411,
        359768350,
        525972089,
        83481111,
    ]
    assert Permutation(2**40, b"golden").forward(places).tolist() == [
        327806024722,
        899132442750,
        452157541522,
        551340383011,
        900575999499,
        736733794213,
    ]
    assert Permutation(65536, b"golden").forward(places, places % 2).tolist() == [
        26516,
        26916,
        62765,
        62000,
        61762,
        28372,
    ]


def test_the_order_of_questions_and_their_number_do_not_matter() -> None:
    permutation = Permutation(10**7 + 19, b"random access")
    places = np.random.default_rng(5).integers(0, 10**7 + 19, 40_000)
    at_once = permutation.forward(places)
    assert [int(permutation.forward(places[k : k + 1])[0]) for k in range(0, 40_000, 997)] == at_once[::997].tolist()
    assert np.array_equal(permutation.forward(places[::-1]), at_once[::-1])
    assert np.array_equal(permutation.inverse(at_once), places)


def test_a_question_is_left_as_it_was_and_an_empty_one_has_an_empty_answer() -> None:
    places = np.arange(100)
    Permutation(100, b"k").forward(places)
    assert places.tolist() == list(range(100))
    assert Permutation(100, b"k").forward(places[:0]).dtype == np.int64
    assert Permutation(100, b"k").forward(places[:0]).size == 0


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_all_orders_of_a_few_numbers_are_equally_likely(n: int) -> None:
    index = {order: number for number, order in enumerate(itertools.permutations(range(n)))}
    keys = 40 * len(index)
    places = np.arange(n)
    orders = [tuple(Permutation(n, b"orders %d" % key).forward(places).tolist()) for key in range(keys)]
    counts = np.bincount([index[order] for order in orders], minlength=len(index))
    assert not _too_uneven(counts, keys / len(index))


def test_pairs_of_neighbours_are_equally_likely_over_keys() -> None:
    n, keys = 12, 4000
    counts = np.zeros((n, n), dtype=np.int64)
    for key in range(keys):
        first, second = Permutation(n, b"pairs %d" % key).forward(np.arange(2))
        counts[first, second] += 1
    off_diagonal = counts[~np.eye(n, dtype=np.bool_)]
    assert counts.trace() == 0
    assert not _too_uneven(off_diagonal, keys / off_diagonal.size)


@pytest.mark.parametrize("n", [10**6 + 3, 10**9])
@pytest.mark.parametrize("apart", [1, 2, 256, 1000, 2048, 31623])
def test_numbers_at_any_distance_are_unrelated(n: int, apart: int) -> None:
    permutation = Permutation(n, b"apart")
    places = np.arange(200_000)
    differences = (permutation.forward(places + apart) - permutation.forward(places)) % n
    assert not _too_uneven(np.bincount(differences * 500 // n, minlength=500), 200_000 / 500)


def test_each_stretch_of_places_is_spread_over_all_numbers() -> None:
    numbers = Permutation(10**9, b"stretch").forward(np.arange(20 * 16384)).reshape(20, 16384)
    for stretch in numbers:
        assert not _too_uneven(np.bincount(stretch // 5_000_000, minlength=200), 16384 / 200)


def test_neighbouring_tweaks_give_unrelated_permutations() -> None:
    n = 65536
    permutation = Permutation(n, b"tweaks")
    tweaks = np.arange(100_001)
    numbers = permutation.forward(np.full(tweaks.size, 77), tweaks)
    assert not _too_uneven(np.bincount(numbers // 128, minlength=512), tweaks.size / 512)
    assert not _too_uneven(np.bincount(np.diff(numbers) % n // 128, minlength=512), (tweaks.size - 1) / 512)


def test_every_tweak_has_a_permutation_of_its_own_that_loses_nothing() -> None:
    permutation = Permutation(1000, b"own")
    seen: set[tuple[int, ...]] = set()
    for tweak in (0, 1, 2, 1000, 2**40):
        tweaks = np.full(1000, tweak)
        numbers = permutation.forward(np.arange(1000), tweaks)
        assert np.array_equal(np.sort(numbers), np.arange(1000))
        assert np.array_equal(permutation.inverse(numbers, tweaks), np.arange(1000))
        seen.add(tuple(numbers.tolist()))
    assert len(seen) == 5


def test_another_key_or_size_gives_another_order() -> None:
    places = np.arange(50)
    orders = {
        tuple(Permutation(n, key).forward(places).tolist()) for n in (1000, 1001) for key in (b"a", b"b", b"aa", b"")
    }
    assert len(orders) == 8


@pytest.mark.parametrize("n", [0, -1, LARGEST + 1])
def test_an_impossible_size_is_refused(n: int) -> None:
    with pytest.raises(ConfigError, match=rf"n must be in \[1, 1099511627776\], got {n}$"):
        Permutation(n, b"")


@pytest.mark.parametrize("place", [-1, 10, 2**62, -(2**63)])
def test_a_place_outside_is_refused(place: int) -> None:
    with pytest.raises(ConfigError, match=rf"in \[0, 10\), got values from .*{place}"):
        Permutation(10, b"").forward(np.array([3, place]))
