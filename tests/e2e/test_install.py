"""What a storage node gets when it installs EMLIO and nothing else.

Covers: wheel and sdist, built and installed into an environment of its own without extras; what lies there, what a daemon
imports, how large it is. Does not cover: extras.
"""

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from emlio_testing.processes import RankProcess

ROOT = Path(__file__).parents[2]
LARGEST_MB = 120

pytestmark = pytest.mark.timeout(280)


def run(*command: str, cwd: Path | None = None) -> str:
    # Where this process finds modules is no matter of theirs: pip would take an emlio found there for installed.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ended = subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environment, timeout=240, check=False)
    assert ended.returncode == 0, f"{' '.join(command)}\n{ended.stdout}\n{ended.stderr}"
    return ended.stdout


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources: setuptools leaves its work beside them, and takes what it finds there into later wheels."""
    copy = tmp_path_factory.mktemp("checkout") / "emlio"
    ignored = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT, copy, symlinks=True, ignore=ignored)
    return copy


@pytest.fixture(scope="module")
def distributions(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sdist, and the wheel made from it: what a registry would hold."""
    made = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(made), str(checkout))
    (sdist,), (wheel,) = made.glob("*.tar.gz"), made.glob("*.whl")
    return sdist, wheel


@pytest.fixture(scope="module")
def python(distributions: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter in an environment that has the wheel and what it needs."""
    directory = tmp_path_factory.mktemp("node") / "venv"
    venv.create(directory, with_pip=True)
    interpreter = directory / "bin" / "python"
    run(str(interpreter), "-m", "pip", "install", "--quiet", "--no-compile", str(distributions[1]))
    return interpreter


def site_packages(python: Path) -> Path:
    return Path(run(str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())


def contents(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


@pytest.mark.slow
def test_the_wheel_of_the_sdist_is_that_of_the_checkout(
    checkout: Path, distributions: tuple[Path, Path], tmp_path: Path
) -> None:
    sdist, wheel = distributions
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(checkout))
    (direct,) = tmp_path.glob("*.whl")
    assert contents(direct) == contents(wheel)
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for folder in ("emlio", "daemon", "planner", "receiver"):
        sources = {
            str(path.relative_to(checkout))
            for path in (checkout / folder).rglob("*.py")
            if "__pycache__" not in path.parts
        }
        of_links = {name for name in sources if (checkout / name.split("/")[0] / name.split("/")[1]).is_symlink()}
        assert sources - of_links <= names


def test_only_emlio_is_installed_at_the_top_level(distributions: tuple[Path, Path]) -> None:
    assert {name.partition("/")[0] for name in contents(distributions[1])} == {"emlio"}
    assert not {name.split("/")[1] for name in contents(distributions[1])} & {"benchmarks", "testing"}


def test_the_benchmarks_are_a_wheel_of_their_own(checkout: Path, tmp_path: Path) -> None:
    folder = checkout / "benchmarks"
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(folder))
    (wheel,) = tmp_path.glob("*.whl")
    sources = {
        str(path.relative_to(folder)) for kind in ("*.py", "*.c") for path in (folder / "emlio_bench").rglob(kind)
    }
    assert contents(wheel) == sources
    assert "emlio_bench/cli.py" in sources


@pytest.mark.slow
def test_it_brings_what_the_lock_of_a_storage_node_names_and_nothing_more(python: Path) -> None:
    lock = (ROOT / "requirements" / "node.lock").read_text(encoding="utf-8")
    named = set(re.findall(r"^([a-z0-9-]+)==", lock, re.MULTILINE))
    here = importlib.metadata.distributions(path=[str(site_packages(python))])
    installed = {re.sub(r"[-_.]+", "-", found.name).lower() for found in here}
    assert installed - {"pip", "setuptools"} == {"emlio", *named}


@pytest.mark.slow
def test_a_daemon_loads_neither_torch_nor_the_receiver(python: Path, tmp_path: Path) -> None:
    loaded = run(
        str(python), "-c", "import sys, emlio.daemon.cli; print(*sorted(sys.modules), sep='\\n')", cwd=tmp_path
    ).split()
    assert "emlio.daemon.control.thread" in loaded
    roots = {name.partition(".")[0] for name in loaded}
    assert roots.isdisjoint({"torch", "nvidia", "tensorflow", "PIL", "matplotlib"})
    assert not [name for name in loaded if name.startswith("emlio.receiver")]


@pytest.mark.slow
def test_the_commands_are_there_and_say_their_version(python: Path) -> None:
    version = importlib.metadata.version("emlio")
    for command in ("emlio", "emlio-daemon"):
        assert run(str(python.parent / command), "--version").strip() == f"emlio {version}"


@pytest.mark.slow
def test_what_was_installed_serves_and_loads_a_dataset(python: Path, tmp_path: Path) -> None:
    script = """
import json, sys
from pathlib import Path
from emlio import EmlioLoader
from emlio.daemon.config import DaemonConfig, DatasetSource, Endpoint
from emlio.daemon.service import Daemon
from emlio_testing.datasets import make_dataset

make_dataset(Path(sys.argv[1]) / "set", records=100, shards=2)
source = DatasetSource(name="set", directory=Path(sys.argv[1]) / "set")
with Daemon(DaemonConfig(data=(source,), bind=Endpoint(host="127.0.0.1", port=0))) as daemon:
    with EmlioLoader(daemon.endpoint.replace("tcp", "emlio") + "/set", batch_size=10, raw=True) as loader:
        print(json.dumps(sorted(int.from_bytes(record[:8], "little") for batch in loader for record in batch["record"])))
"""
    shared = {"PYTHONPATH": str(ROOT / "tests")}  # of the tests, never installed
    with RankProcess(script, str(tmp_path), python=python, environment=shared) as rank:
        assert rank.line(0, 30.0) == list(range(100)), rank.log
        assert rank.finish() == 0


@pytest.mark.slow
def test_it_is_small(python: Path) -> None:
    root, sizes = site_packages(python), dict[str, int]()
    for path in root.rglob("*"):
        top = path.relative_to(root).parts[0] if path.is_file() else ""
        if top and not top.startswith(("pip", "setuptools", "_distutils", "pkg_resources", "distutils")):
            sizes[top] = sizes.get(top, 0) + path.stat().st_size
    total_mb = sum(sizes.values()) / 1e6
    largest = ", ".join(f"{name} {sizes[name] / 1e6:.1f}" for name in sorted(sizes, key=lambda name: -sizes[name])[:6])
    print(f"installed: {total_mb:.1f} MB ({largest})")  # noqa: T201  # the figure is for who runs this with -s
    assert total_mb < LARGEST_MB, largest
