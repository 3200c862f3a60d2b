"""How records of tokens are to become batches: what can be asked for, and what a loader says to the rest."""

from typing import Any

import numpy as np
import pytest

from emlio import TokenBatches
from emlio.errors import ConfigError
from emlio.receiver.tokens.feed import plan_batch_size

_PADDED = TokenBatches(max_tokens=100, pool=7)
_PACKED = TokenBatches(pack=100, pool=9)


def test_the_defaults_are_int32_and_no_truncation() -> None:
    assert TokenBatches(dtype="int32", max_tokens=100, pack=None, pool=7, pad_id=0, truncate=False) == _PADDED
    assert TokenBatches(pack=1).pool == 2048


def test_a_token_has_the_bytes_of_its_type() -> None:
    assert _PADDED.token_bytes == 4
    assert TokenBatches(dtype="int64", pack=1).token_bytes == 8
    assert TokenBatches(stored="uint16", pack=1).token_bytes == 2


def test_a_recipe_makes_64_bits_unless_others_are_asked_for() -> None:
    assert TokenBatches(pack=1, recipe="causal").dtype == "int64"
    assert TokenBatches(pack=1, recipe="causal", dtype="int32").dtype == "int32"


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"dtype": []}, "dtype of tokens must be one of int32, int64, got .."),
        ({"truncate": 1}, "truncate must be True or False, got 1"),
        ({"recipe": "bert"}, "recipe must be one of causal, or None, got 'bert'"),
        ({"stored": "float32"}, "stored must be one of int8, .*, or None, got 'float32'"),
        ({"dtype": "uint16"}, "dtype of tokens must be one of int32, int64, got 'uint16'"),
        ({"pack": 5}, "either max_tokens or pack must be given, got max_tokens=100 and pack=5"),
        ({"max_tokens": None}, "either max_tokens or pack must be given, got max_tokens=None and pack=None"),
        ({"max_tokens": 0}, r"max_tokens must be a whole number in \[1, 2147483647\], got 0"),
        ({"max_tokens": 2**31}, "max_tokens must be a whole number .*, got 2147483648"),
        ({"max_tokens": 1e4}, "max_tokens must be a whole number .*, got 10000.0"),
        ({"max_tokens": True}, "max_tokens must be a whole number .*, got True"),
        ({"max_tokens": None, "pack": -1}, "pack must be a whole number .*, got -1"),
        ({"pool": 0}, "pool must be a whole number .*, got 0"),
        ({"pool": "2048"}, "pool must be a whole number .*, got '2048'"),
        ({"pad_id": 0.5}, "pad_id must be a whole number that fits int32, got 0.5"),
        ({"pad_id": 2**31}, "pad_id must be a whole number that fits int32, got 2147483648"),
        ({"pad_id": -(2**63) - 1, "dtype": "int64"}, "pad_id must be a whole number that fits int64"),
        ({"max_tokens": None, "pack": 5, "truncate": True}, "truncate requires max_tokens"),
    ],
)
def test_what_cannot_be_is_named(changes: dict[str, Any], what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        TokenBatches(**({"max_tokens": 100} | changes))


def test_numpys_numbers_are_plain_ones_inside() -> None:
    given: Any = {"max_tokens": np.int64(100), "pool": np.int32(7), "pad_id": np.int64(0), "truncate": np.False_}
    assert repr(TokenBatches(**given)) == repr(_PADDED), "ranks compare this text"


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_padding_may_be_any_token(dtype: str) -> None:
    bits = 8 * TokenBatches(dtype=dtype, pack=1).token_bytes
    for pad_id in (-(2 ** (bits - 1)), -1, 2 ** (bits - 1) - 1):
        assert TokenBatches(dtype=dtype, pack=1, pad_id=pad_id).pad_id == pad_id


def test_a_step_of_the_plan_is_a_batch_or_a_pool_of_records() -> None:
    assert plan_batch_size(5, None) == 5
    assert plan_batch_size(None, _PADDED) == 7
    assert plan_batch_size(4, _PACKED) == 9


@pytest.mark.parametrize(
    ("batch_size", "tokens", "what"),
    [
        (None, None, "batch_size must be given: samples per step"),
        (8, _PADDED, r"batch_size must not be given with max_tokens=\d+, which limits a batch, got 8$"),
        (None, _PACKED, r"batch_size must be given with pack=\d+: rows per batch, got None$"),
        (0, _PACKED, "batch_size must be a whole number of at least 1, rows of packed tokens, got 0"),
        (2.0, _PACKED, "batch_size must be a whole number .*got 2.0"),
        (True, _PACKED, "batch_size must be a whole number .*got True"),
    ],
)
def test_a_batch_size_must_fit_the_way_of_making_batches(batch_size: Any, tokens: Any, what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        plan_batch_size(batch_size, tokens)
