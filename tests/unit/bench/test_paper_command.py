"""The command `emlio-bench paper`: options, exit status, what a fresh checkout shows."""

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import fields, replace
from io import StringIO
from pathlib import Path

import pytest
from sample_race import MS, make_entrant, make_race, make_run

from emlio.errors import ConfigError
from emlio_bench.cli import COMMANDS, main
from emlio_bench.harness.command import World
from emlio_bench.harness.results import Results
from emlio_bench.paper.figures import FIGURES, OURS, Task, contest_of
from emlio_bench.paper.run import elsewhere
from emlio_bench.paper.settings import PaperSettings

ROOT = Path(__file__).resolve().parents[3]


def task_named(name: str) -> Task:
    return next(task for figure in FIGURES for task in figure.tasks if task.name == name)


def test_a_task_at_other_round_trips_than_asked_for_is_told() -> None:
    tasks = (task_named("resnet"), task_named("training"), task_named("local"))
    assert elsewhere(tasks, (MS,)) == (
        "training runs over 10 ms only, which --rtt does not change",
        "local runs over 100 µs only, which --rtt does not change",
    )
    assert elsewhere(tasks, ()) == elsewhere((task_named("training"),), (10 * MS,)) == ()


def test_a_command_whose_runs_all_failed_exits_with_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    contest = contest_of(task_named("resnet"), 30 * MS, records=640, limit_ns=45_000_000_000)
    race = make_race([contest], [make_entrant(*OURS, family="ours")], [make_run(contest, *OURS)], benchmark="paper")
    failed = replace(race, runs=(make_run(contest, *OURS, failure="no room"),))
    for found, status in ((race, 0), (failed, 1)):
        command = replace(COMMANDS["paper"], run=lambda settings, world, found=found: found)
        monkeypatch.setitem(COMMANDS, "paper", command)
        assert main(["paper", "--out", str(tmp_path)]) == status
        assert ("no run came to its end" in capsys.readouterr().err) is bool(status)


@pytest.mark.parametrize(
    ("flags", "terminal", "typed", "agreed", "asked"),
    [
        ((), False, "", True, False),
        ((), True, "y\n", True, True),
        ((), True, "\n", False, True),
        (("--yes",), True, "\n", True, False),
    ],
    ids=["no terminal", "yes", "no", "--yes"],
)
def test_only_a_terminal_is_asked_whether_to_install(
    flags: Sequence[str],
    terminal: bool,
    typed: str,
    agreed: bool,
    asked: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    def run(settings: object, world: World) -> Results:
        assert world.agree() is agreed
        raise ConfigError("enough")

    stdin = StringIO(typed)
    monkeypatch.setattr(stdin, "isatty", lambda: terminal)
    monkeypatch.setattr(sys, "stdin", stdin)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)
    for command in ("race", "paper"):
        stdin.seek(0)
        monkeypatch.setitem(COMMANDS, command, replace(COMMANDS[command], run=run))
        assert main([command, *flags, "--out", str(tmp_path)]) == 2
        assert ("Install it? [y/N]" in capsys.readouterr().err) is asked


def test_an_unusable_cache_is_refused_before_anything_runs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = tmp_path
    (folder / "file").touch()
    for command in ("paper", "race"):
        assert main([command, "--cache", str(folder / "file/c"), "--out", str(folder / "out")]) == 2
        assert f"--cache must be a folder that can be written, got {folder}/file/c" in capsys.readouterr().err
    assert not (folder / "out").exists()


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--figure", "2"], "--figure"),
        (["--scale", "huge"], "--scale"),
        (["--within", "soon"], "--within"),
        (["--rtt", "far"], "--rtt"),
        (["--mount", "/no/such/folder"], "--mount"),
        (["--rtt", "30"], "--rtt: must have a unit, such as '30ms', got '30'"),
        (["--rtt", "1ms,0ms"], "--rtt: must be times that differ and are above 0"),
        (["--within", "30"], "--within: must have a unit, such as '30ms'"),
        (["--out", ""], "--out: must not be empty"),
        (["--cache", ""], "--cache: must not be empty"),
        (["--storage", ""], "--storage: must not be empty"),
        (["--storage=store", "--storage-address", " "], "--storage-address: must not be empty"),
        (["--cpu-watts", "180:60"], "--cpu-watts: idle watts must be at least 0 and below the maximum"),
        (["--cpu-watts", "much"], "--cpu-watts: the watts of the processors must be IDLE:MAX"),
    ],
)
def test_bad_values_are_named(argv: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["paper", *argv]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("argv", [["--rtt", "30"], ["--rtt", "0"], ["--within", "660"]])
def test_a_race_has_no_times_without_a_unit(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["race", *argv]) == 2
    assert f"{argv[0]}: must have a unit, such as '30ms'" in capsys.readouterr().err


def test_the_document_lists_every_option_and_the_script_shows_it_without_an_environment(
    tmp_path: Path,
) -> None:
    folder = tmp_path
    for name in ("scripts/bench", "docs/reference/benchmarks.md"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes((ROOT / name).read_bytes())
    words = ["bash", "scripts/bench", "paper", "--help"]
    shown = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True).stdout
    listed = " ".join(shown.partition("## All options")[2].split())
    options = [field for field in fields(PaperSettings) if "parse" in field.metadata]
    for field in options:
        name = f"--{field.name.replace('_', '-')} {field.metadata['metavar'] or ''}".strip()
        assert f"* `{name}`: {field.metadata['text']}" in listed
    assert listed.count("* `--") == len(options)
