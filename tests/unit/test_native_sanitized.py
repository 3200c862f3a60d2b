"""The C library under sanitizers, with hostile input for a few seconds.

Covers: bytes beside what was given, undefined behaviour. Does not cover: results (the other tests of emlio.native).
"""

import shutil
import subprocess
from pathlib import Path

import pytest

_SCRIPT = Path(__file__).parents[2] / "scripts" / "fuzz-native"
_NO_COMPILER = 77


@pytest.mark.skipif(not shutil.which("cc"), reason="there is no C compiler")
def test_hostile_input_touches_nothing_outside_and_nothing_undefined() -> None:
    done = subprocess.run([_SCRIPT, "--seconds", "2"], capture_output=True, text=True, timeout=300, check=False)
    if done.returncode == _NO_COMPILER:
        pytest.skip(f"there is no compiler with sanitizers: {done.stderr.strip().splitlines()[-1]}")
    assert not done.returncode, done.stdout + done.stderr


def test_a_wrong_argument_is_refused() -> None:
    assert subprocess.run([_SCRIPT, "--minutes", "1"], capture_output=True, check=False).returncode == 2
