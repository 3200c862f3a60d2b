"""Runs the commands and scripts of README.md, and scripts of docs/guide/loader.md and docs/guide/decoding.md, on less data.

Covers: every command and every piece of Python, but the four commands with keys (test_readme_keys). Does not cover: figures.
"""

import ast
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from emlio_testing.commands import run_emlio
from emlio_testing.processes import DaemonProcess, RankProcess, run_python

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
LOADER = (ROOT / "docs" / "guide" / "loader.md").read_text(encoding="utf-8")
TRANSFORM = (ROOT / "docs" / "guide" / "decoding.md").read_text(encoding="utf-8").partition("\n## DALI")[0]
SYNTH = ("-c", "import sys; from emlio.cli import main; sys.exit(main())", "synth")
ELSEWHERE = {
    "scripts/test": "this run",
    "scripts/test --slow": "this run, asked for more",
    "scripts/test -k reorder": "this run, asked for less",
    "emlio keygen": "test_readme_keys",
    "emlio allow train1 KEY_OF_TRAIN1": "test_readme_keys",
    "emlio-daemon --data imagenet=/data/imagenet --bind tcp://0.0.0.0:5555": "test_readme_keys",
    "emlio trust store1 KEY_OF_STORE1": "test_readme_keys",
    "pip install .": "test_install",
}
HERE = {
    "scripts/quickstart": "test_the_quickstart_trains",
    "scripts/bench": "test_the_help_of_a_script_makes_nothing",
    "scripts/bench --rtt 30ms": "test_the_race_understands_its_options",
    "emlio-daemon --data imagenet=/data/imagenet": "imagenet",
    "emlio status localhost": "test_the_shown_status_names_the_dataset",
    'pip install ".[torch]"': "test_the_extras_exist",
    'pip install ".[images]"': "test_the_extras_exist",
    "emlio synth /tmp/try --records 2000": "test_the_first_script_runs_without_torch_and_dali",
    "emlio-daemon --data try=/tmp/try": "test_the_first_script_runs_without_torch_and_dali",
    "pip install -e ./benchmarks": "test_the_command_of_the_benchmarks_is_there",
    "emlio convert": "test_the_commands_that_are_only_named_exist",
    "emlio mount": "test_the_commands_that_are_only_named_exist",
    "emlio run": "test_the_commands_that_are_only_named_exist",
}
NOT_INSTALLED = """
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name in ("torch", "nvidia") else find(name, *rest)
"""


def shown_commands() -> set[str]:
    """Commands in indented blocks and in backticks, without prompts and comments."""
    lines = [line[4:] for line in README.splitlines() if line.startswith("    ")]
    spans = re.findall(r"`([^`\n]+)`", README)
    found: set[str] = set()
    for text in [re.sub(r"^\w+\$ ", "", line) for line in lines] + spans:
        command = re.sub(r"\s{2,}#.*$", "", text).strip().rstrip(";")
        program = command.split(" ", 1)[0]
        if program.startswith("scripts/") or (
            program in ("emlio", "emlio-daemon", "emlio-bench", "pip") and command != program
        ):
            found.add(command)
    return found


def python_blocks(page: str = README) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def training_script() -> str:
    """The lines of the example's right side."""
    (diff,) = re.findall(r"^```diff\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return "\n".join(line[1:] for line in diff.splitlines() if not line.startswith("-"))


@pytest.fixture(scope="module")
def imagenet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    """A daemon of pictures, started by the shown command's words."""
    folder = tmp_path_factory.mktemp("imagenet")
    run_python(*SYNTH, folder / "data", "--records", "48", "--image-size", "96x64", "--classes", "4", timeout_s=60.0)
    (command,) = (one for one in HERE if one.startswith("emlio-daemon --data imagenet"))
    name, _, directory = shlex.split(command)[2].partition("=")
    assert directory == "/data/imagenet"
    with DaemonProcess({name: folder / "data"}, folder=folder) as daemon:
        yield daemon


def filled(text: str, daemon: DaemonProcess) -> str:
    for shown, used in (
        ("emlio://store1:5555/imagenet", daemon.address("imagenet")),
        ('device="cuda"', 'device="cpu"'),
        ("range(90)", "range(2)"),
        ("batch_size=256", "batch_size=16"),
    ):
        assert shown in text
        text = text.replace(shown, used)
    return text


def test_every_shown_command_is_run_somewhere() -> None:
    shown = shown_commands()
    assert {"scripts/quickstart", "scripts/test", "emlio keygen"} <= shown
    assert shown == {*HERE, *ELSEWHERE}
    for command, where in ELSEWHERE.items():
        if where.startswith("test_"):
            assert (Path(__file__).parent / f"{where}.py").exists(), command
    for command, where in HERE.items():
        assert where in globals(), command


def test_every_piece_of_python_can_be_read() -> None:
    for piece in [training_script(), *python_blocks(), *python_blocks(LOADER), *python_blocks(TRANSFORM)]:
        ast.parse(piece)


def test_the_shown_status_names_the_dataset(imagenet: DaemonProcess, tmp_path: Path) -> None:
    (command,) = (one for one in HERE if one.startswith("emlio status"))
    _, *words = shlex.split(f"{command}:{imagenet.peer.rpartition(':')[2]}")
    shown = run_emlio(*words, home=tmp_path, timeout_s=60.0)
    assert (shown.status, shown.err) == (0, "")
    assert shown.out.startswith("localhost:")
    assert "imagenet@1" in shown.out


def test_the_shown_training_script_trains(imagenet: DaemonProcess) -> None:
    pytest.importorskip("nvidia.dali")
    script = f"""
import json
seen = []
def train(images, labels):
    assert len(images) == len(labels)
    seen.append(len(labels))
{filled(training_script(), imagenet)}
loader.close()
print(json.dumps(seen))
"""
    with RankProcess(script) as rank:
        assert rank.line(0, 60.0) == [16] * 6
        assert rank.finish() == 0


def test_the_first_script_runs_without_torch_and_dali(tmp_path: Path) -> None:
    synth, serve = (one for one, where in HERE.items() if where == "test_the_first_script_runs_without_torch_and_dali")
    folder = tmp_path / "try"
    assert shlex.split(serve)[1:] == ["--data", "try=/tmp/try"]
    words = [str(folder) if word == "/tmp/try" else word for word in shlex.split(synth)[2:]]
    run_python(*SYNTH, *words[: words.index("2000")], "64", "--image-size", "96x64", timeout_s=60.0)
    first, *_ = python_blocks()
    (transforming,) = (piece for piece in python_blocks(LOADER) if "transform=transform" in piece)
    said: list[str] = []
    with DaemonProcess({"try": folder}, folder=tmp_path) as daemon:
        for script in (first, transforming, *(piece for piece in python_blocks(TRANSFORM) if "EmlioLoader" in piece)):
            assert "emlio://localhost:5555/try" in script
            text = NOT_INSTALLED + script.replace("emlio://localhost:5555/try", daemon.address("try"))
            (tmp_path / "first.py").write_text(text, encoding="utf-8")
            said.append(run_python(tmp_path / "first.py", timeout_s=60.0))
    plain, *transformed = said
    assert plain.count("32 [") == 2
    assert [lines.splitlines() for lines in transformed] == [["(32, 64, 64, 3) (32,)"] * 2] * 2


def test_the_shown_state_goes_on_where_it_was_taken(imagenet: DaemonProcess) -> None:
    (piece,) = (piece for piece in python_blocks() if "load_state_dict" in piece)
    assert piece.index("state_dict()") < piece.index("load_state_dict")
    script = f"""
import json
from emlio import EmlioLoader
loader = EmlioLoader("{imagenet.address("imagenet")}", batch_size=16, raw=True, ids=True)
def ids(batches):
    return [int(one) for batch in batches for one in batch["__id__"]]
first = ids([next(iter(loader))])
{piece}
rest = ids(loader)
loader.close()
print(json.dumps([len(json.dumps(state)), sorted(first + rest) == list(range(48))]))
"""
    with RankProcess(script) as rank:
        size, whole = rank.line(0, 60.0)
        assert whole
        assert size <= 200
        assert rank.finish() == 0


def test_the_quickstart_trains(tmp_path: Path) -> None:
    said = run_python(
        ROOT / "examples" / "quickstart.py", "--directory", tmp_path / "data", "--records", "96", timeout_s=120.0
    )
    assert "Traceback" not in said
    text = (ROOT / "scripts" / "quickstart").read_text(encoding="utf-8")
    assert 'python examples/quickstart.py "$@"' in text


def test_the_race_understands_its_options() -> None:
    text = (ROOT / "scripts" / "bench").read_text(encoding="utf-8")
    assert 'bin/emlio-bench "$@"' in text
    said = run_python("-m", "emlio_bench.cli", "--rtt", "30ms", "--help", timeout_s=60.0)
    assert "--rtt" in said


def script_elsewhere(folder: Path, name: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run a script in a folder with nothing else in it, where it must make nothing."""
    (folder / "scripts").mkdir(exist_ok=True)
    for file in (name, "environment.sh"):
        (folder / "scripts" / file).write_bytes((ROOT / "scripts" / file).read_bytes())
    done = subprocess.run(
        ["bash", f"scripts/{name}", *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    assert {path.name for path in folder.iterdir()} == {"scripts"}
    return done


@pytest.mark.parametrize("name", ["bench", "quickstart"])
def test_the_help_of_a_script_makes_nothing(tmp_path: Path, name: str) -> None:
    shown = script_elsewhere(tmp_path, name, "--help")
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.startswith(f"usage: scripts/{name}")


def test_the_help_of_the_quickstart_has_the_options_of_its_example(tmp_path: Path) -> None:
    shown = script_elsewhere(tmp_path, "quickstart", "--help").stdout
    options = run_python(ROOT / "examples" / "quickstart.py", "--help", timeout_s=60.0)
    found = set(re.findall(r"--[a-z-]+", options)) - {"--help"}
    assert found <= set(re.findall(r"^  (--[a-z-]+) ", shown, re.MULTILINE))
    assert len(found) == 6


def test_a_misspelt_option_of_the_quickstart_makes_nothing(tmp_path: Path) -> None:
    refused = script_elsewhere(tmp_path, "quickstart", "--recrods", "5")
    assert refused.returncode == 2
    assert "no such option: --recrods" in refused.stderr


def test_the_command_of_the_benchmarks_is_there() -> None:
    project = tomllib.loads((ROOT / "benchmarks" / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert "emlio-bench" in project["scripts"]


def test_the_list_of_extras_is_whole() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    section = LOADER.partition("## What to install")[2].partition("\n## ")[0]
    listed = [
        name for row in re.findall(r"^\| (`.*?) \|", section, re.MULTILINE) for name in re.findall(r"`(.*?)`", row)
    ]
    assert sorted(listed) == sorted(extras)


def test_the_extras_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for command in HERE:
        for extra in re.findall(r'^pip install "\.\[(\w+)\]"$', command):
            assert project["optional-dependencies"][extra], command


def test_the_commands_that_are_only_named_exist() -> None:
    for command in (one for one in HERE if re.fullmatch(r"emlio \w+", one)):
        program = [sys.executable, *SYNTH[:2], *command.split()[1:], "--help"]
        assert subprocess.run(program, capture_output=True, check=False).returncode == 0, command
