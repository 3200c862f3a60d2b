"""Arguments of Python's types and NumPy's, and the errors that name them."""

from typing import Any

import numpy as np
import pytest

from emlio.arguments import flag, like, parsed, whole
from emlio.errors import ConfigError
from emlio.units import parse_duration_ns


@pytest.mark.parametrize("value", [3, np.int64(3), np.uint8(3), np.array(3)])
def test_a_whole_number_of_any_type_becomes_a_plain_one(value: Any) -> None:
    assert type(whole("n", value, least=1, most=3)) is int
    assert whole("n", value, least=1, most=3) == 3


@pytest.mark.parametrize("value", [None, True, np.True_, 1.0, np.float64(1), "1", b"1", []])
def test_what_is_no_whole_number_is_refused_by_its_name(value: Any) -> None:
    with pytest.raises(ConfigError, match="n must be a whole number of at least 1, or None, got "):
        whole("n", value, least=1, otherwise=", or None")


@pytest.mark.parametrize("value", [0, 4, np.int64(-1)])
def test_a_whole_number_out_of_bounds_is_refused(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"n must be a whole number in \[1, 3\], got "):
        whole("n", value, least=1, most=3)


def test_a_truth_value_of_any_type_becomes_a_plain_one() -> None:
    assert flag("f", np.True_) is True
    assert flag("f", np.False_) is False
    assert flag("f", value=True) is True


@pytest.mark.parametrize("value", [None, 0, 1, np.int64(1), "yes", []])
def test_what_is_no_truth_value_is_refused_by_its_name(value: Any) -> None:
    with pytest.raises(ConfigError, match="f must be True or False, got "):
        flag("f", value)


def test_an_error_of_a_parser_names_the_argument() -> None:
    assert parsed("timeout", parse_duration_ns, "2s") == 2_000_000_000
    with pytest.raises(ConfigError, match=r"^timeout must be a duration .*, got 'soon'$"):
        parsed("timeout", parse_duration_ns, "soon")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("batchsize", "; did you mean 'batch_size'?"),
        ("bach", "; did you mean 'batch_size'?"),
        ("size", "; did you mean 'batch_size' or 'world_size'?"),
        ("batch", "; did you mean 'batch_size'?"),
        ("colour", ""),
        ("z", ""),
    ],
)
def test_a_misspelled_name_is_like_a_name_or_a_word_of_one(name: str, meant: str) -> None:
    assert like(name, iter(("batch_size", "shuffle", "world_size"))) == meant
