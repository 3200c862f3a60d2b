"""A part of `python -m tests.e2e.interrupts`, and all of it.

Covers: that no strike loses, repeats or shifts a batch, comes again or leaves a lock held. Does not cover: next() called by hand,
which has one place behind the return of the loader's code where Python raises and drops any iterator's value.
"""

import os
from pathlib import Path

import pytest

from emlio_testing.processes import run_python
from tests.e2e.interrupts.ways import WAYS

ROOT = Path(__file__).parents[3]


def _run(*words: object, timeout_s: float) -> str:
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return run_python("-m", "tests.e2e.interrupts", *words, timeout_s=timeout_s, environment={"PYTHONPATH": path})


def test_strikes_at_random_moments_change_nothing() -> None:
    ways = ("plain", "transform", "collate", "packed")
    assert "all good" in _run("--interrupts", 160, "--ways", *ways, "--roots", "local", timeout_s=200.0)


def test_strikes_at_places_where_python_looks_for_signals_change_nothing() -> None:
    words = ("--interrupts", 0, "--places", 50, "--ways", "plain", "transform", "--roots", "local")
    assert "all good" in _run(*words, timeout_s=250.0)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_two_thousand_strikes_at_random_moments_change_nothing() -> None:
    assert "all good" in _run("--interrupts", 2000, timeout_s=1800.0)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("way", WAYS)
def test_a_strike_at_each_place_where_python_looks_for_signals_changes_nothing(way: str) -> None:
    assert "all good" in _run("--interrupts", 0, "--places", 1, "--ways", way, timeout_s=3600.0)
