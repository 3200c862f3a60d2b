"""scripts/gpu: its options, its help, the Python that it uses."""

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

import pytest

from emlio_bench.gpu.parts import GpuSettings

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--python"], "--python needs the path of a Python"),
        (["--python="], "--python needs the path of a Python"),
        (["--out"], "--out needs a value"),
        (["--part", "tests"], "unknown option --part; scripts/gpu --help lists all"),
        (["--python", "/no/python"], "--python must be a Python, got /no/python"),
    ],
)
def test_the_script_refuses_bad_options_in_one_sentence(argv: Sequence[str], said: str) -> None:
    ended = subprocess.run([ROOT / "scripts/gpu", *argv], capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stderr) == (2, f"scripts/gpu: {said}\n")


@pytest.mark.parametrize("argv", [["--help"], ["--python", "/no/python", "--help"]])
def test_the_scripts_help_has_every_option(argv: Sequence[str]) -> None:
    ended = subprocess.run([ROOT / "scripts/gpu", *argv], capture_output=True, text=True, check=True, timeout=60)
    shown = " ".join(ended.stdout.split())
    for field in fields(GpuSettings):
        assert f"--{field.name} {field.metadata['metavar']} {field.metadata['text']}" in shown


def test_a_python_without_the_packages_is_a_sentence(tmp_path: Path) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    bare.chmod(0o755)
    for further in ([], ["--parts", "tests"]):
        words = [ROOT / "scripts/gpu", "--python", bare, *further]
        ended = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
        assert ended.returncode == 2
        assert ended.stderr.startswith(f"scripts/gpu: {bare} lacks what EMLIO and its benchmarks need: ModuleNotFound")
        assert len(ended.stderr.splitlines()) == 1


@pytest.mark.parametrize("by_variable", [False, True])
def test_the_script_runs_the_callers_python_in_the_callers_folder(tmp_path: Path, by_variable: bool) -> None:
    (tmp_path / "bin").mkdir()
    fake = tmp_path / "bin/python"
    fake.write_text('#!/bin/sh\necho "$PWD $*"\n')
    fake.chmod(0o755)
    named = [] if by_variable else ["--python", "bin/python"]
    said = subprocess.run(
        [str(ROOT / "scripts/gpu"), "--out", "here", *named],
        cwd=tmp_path,
        env={**os.environ, "EMLIO_PYTHON": "bin/python" if by_variable else ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (said.returncode, said.stderr) == (0, "")
    assert said.stdout == f"{tmp_path} -P -m emlio_bench.gpu.cli --out here\n"
