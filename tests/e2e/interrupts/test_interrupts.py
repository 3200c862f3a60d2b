"""A part of `python -m tests.e2e.interrupts`, and all of it.

Covers: that no strike loses, repeats or shifts a batch, comes again or leaves a lock held. Does not cover: next() called by hand,
which has one place behind the return of the loader's code where Python raises and drops any iterator's value.
"""

import faulthandler
import os
import signal
import sys
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any, cast

import pytest

from emlio_testing.processes import run_python
from tests.e2e.interrupts.strikes import AtMoments
from tests.e2e.interrupts.walk import Walk
from tests.e2e.interrupts.ways import WAYS

ROOT = Path(__file__).parents[3]


def _run(*words: object, timeout_s: float) -> str:
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return run_python("-m", "tests.e2e.interrupts", *words, timeout_s=timeout_s, environment={"PYTHONPATH": path})


def test_strikes_at_random_moments_change_nothing() -> None:
    ways = ("plain", "transform", "collate", "packed")
    assert "all good" in _run("--interrupts", 160, "--ways", *ways, "--roots", "local", timeout_s=200.0)


@pytest.mark.parametrize("operation", ["_round", "_close"])
def test_a_strike_that_comes_while_strikes_are_ended_is_caught_as_any_other(operation: str) -> None:
    """The loader's work has ended, and a function of the harness begins: Python looks for signals there, too."""
    loader = SimpleNamespace(close=lambda: None, state_dict=dict)
    walk = Walk(lambda: cast(Any, loader), cast(Any, SimpleNamespace(begins=(0, 10))))
    walk._loader = cast(Any, loader)
    walk._iterator = iter(())
    walk._settle = lambda: True  # type: ignore[method-assign]
    walk._begin_anew = lambda: None  # type: ignore[method-assign]
    moments = AtMoments(1, 1000.0)

    def strike(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_name in ("_disarmed", "disarm"):
            sys.setprofile(None)
            moments._handle(signal.SIGALRM, frame)

    handler = signal.getsignal(signal.SIGALRM)
    hook = sys.unraisablehook
    sys.setprofile(strike)
    try:
        walk._round(moments, by_hand=False) if operation == "_round" else walk._close(moments)
    finally:
        sys.setprofile(None)
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.unraisablehook = hook
        signal.signal(signal.SIGALRM, handler)
        faulthandler.cancel_dump_traceback_later()
    assert moments.struck == 1
    assert walk.details == []


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
