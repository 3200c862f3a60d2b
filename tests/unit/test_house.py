import ast
import inspect
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import emlio
from emlio import errors
from emlio.native.library import LIBRARY_NAME

ROOT = Path(__file__).resolve().parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
_BENCH: dict[str, Any] = tomllib.loads((ROOT / "benchmarks" / "pyproject.toml").read_text(encoding="utf-8"))
FOLDERS: dict[str, str] = PROJECT["tool"]["setuptools"]["package-dir"]
LINKED = sorted(name.partition(".")[2] for name in FOLDERS if name.count(".") == 1)
MOST_LINES = 400
BESIDE = ("benchmarks/emlio_bench", "tests/emlio_testing")
"""Packages that a storage node does not install."""
READ_TOO = ("tests", "benchmarks", "scripts", "requirements", "docs", "examples", ".ci")


def _files(folder: Path, suffix: str = "") -> Iterator[Path]:
    """Real files; a link to a folder is not followed."""
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name != "__pycache__"]
        yield from (Path(place) / name for name in sorted(names) if name.endswith(suffix))


def _sources() -> list[Path]:
    return [path for folder in ("emlio", *LINKED) for path in _files(ROOT / folder, ".py")]


def _named(path: Path) -> str:
    return str(path.relative_to(ROOT))


SOURCES = _sources()
DOCUMENTED = [*SOURCES, *(path for folder in BESIDE for path in _files(ROOT / folder, ".py"))]


# ---- the build table ------------------------------------------------------------------------------------------------


def test_the_table_of_packages_is_what_lies_on_the_disk() -> None:
    on_disk = {"emlio"}
    for path in SOURCES:
        place = path.parent.relative_to(ROOT)
        on_disk.add(".".join(place.parts if place.parts[0] == "emlio" else ("emlio", *place.parts)))
    assert sorted(on_disk) == PROJECT["tool"]["setuptools"]["packages"]


def test_every_package_has_an_init_file_and_the_table_leads_to_it() -> None:
    for package in PROJECT["tool"]["setuptools"]["packages"]:
        known = package
        while known not in FOLDERS:
            known = known.rpartition(".")[0]
        inside = package[len(known) :].replace(".", "/")
        assert (ROOT / (FOLDERS[known] + inside) / "__init__.py").is_file(), package


def test_the_links_for_editors_are_those_of_the_table_and_relative() -> None:
    links = {path.name: os.readlink(path) for path in (ROOT / "emlio").iterdir() if path.is_symlink()}
    assert links == {name: f"../{name}" for name in LINKED}
    assert {name: FOLDERS[f"emlio.{name}"] for name in LINKED} == {name: name for name in LINKED}


def test_pyright_is_told_of_every_link() -> None:
    assert sorted(PROJECT["tool"]["pyright"]["include"]) == sorted(
        ["emlio", *(f"emlio/{name}" for name in LINKED), *BESIDE]
    )


def test_coverage_looks_at_the_real_folders() -> None:
    sources = PROJECT["tool"]["coverage"]["run"]["source"]
    assert sorted(sources) == sorted(["emlio", *LINKED, "benchmarks/emlio_bench"])
    assert not [name for name in sources if (ROOT / name).is_symlink()]


def test_the_bare_names_of_the_folders_may_not_be_imported() -> None:
    banned = PROJECT["tool"]["ruff"]["lint"]["flake8-tidy-imports"]["banned-api"]
    assert sorted(banned) == LINKED
    assert "TID" in PROJECT["tool"]["ruff"]["lint"]["select"]


def test_nothing_but_emlio_is_installed() -> None:
    assert {name.partition(".")[0] for name in PROJECT["tool"]["setuptools"]["packages"]} == {"emlio"}
    assert not PROJECT["tool"]["setuptools"].get("py-modules")


@pytest.mark.slow
def test_a_wheel_made_of_the_source_archive_holds_every_module(tmp_path: Path) -> None:
    import tarfile
    import zipfile

    subprocess.run(
        [sys.executable, "-m", "build", "--outdir", str(tmp_path), str(ROOT)], check=True, stdout=subprocess.DEVNULL
    )
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        installed = {name for name in wheel.namelist() if ".dist-info/" not in name}
    wanted = {_named(path) if _named(path).startswith("emlio/") else f"emlio/{_named(path)}" for path in SOURCES}
    library = {f"emlio/{LIBRARY_NAME}"} if shutil.which("cc") and os.environ.get("EMLIO_NATIVE") != "0" else set()
    models = {_named(path) for path in _files(ROOT / "emlio", ".npz")}
    assert installed == {*wanted, *library, *models, "emlio/daemon/metrics/page.html", "emlio/py.typed"}
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as archive:
        assert any(name.endswith("/LICENSE") for name in archive.getnames())


def test_the_tests_environment_has_all_that_tests_are_skipped_without() -> None:
    """A test that skips where torch, DALI or a framework is missing must not be skipped by scripts/test."""
    extras = PROJECT["project"]["optional-dependencies"]
    for script in ("test", "check"):
        text = (ROOT / "scripts" / script).read_text(encoding="utf-8")
        wanted = re.search(
            r"^emlio_environment \.venv-test (\S+) --editable \./benchmarks --editable \./tests$", text, re.MULTILINE
        )
        assert wanted is not None, script
        brought = [
            *_BENCH["project"]["dependencies"],
            *(line for extra in wanted[1].split(",") for line in extras[extra]),
        ]
        installed = {re.split(r"[<>=\[]", line)[0] for line in brought}
        needed = {"torch", "torchvision", "nvidia-dali-cuda120", "pillow", "scikit-learn", "matplotlib", "msgpack"}
        assert needed | {"lightning", "accelerate", "transformers"} <= installed, script


# ---- files ----------------------------------------------------------------------------------------------------------


def _lines_besides_docstrings(path: Path) -> int:
    """Documentation must not be cut to make a file shorter."""
    text = path.read_text(encoding="utf-8")
    documented = 0
    if path.suffix == ".py":
        for node in ast.walk(ast.parse(text)):
            if (
                isinstance(node, ast.Expr)
                and isinstance(node.value, ast.Constant)
                and isinstance(node.value.value, str)
            ):
                documented += (node.end_lineno or node.lineno) - node.lineno + 1
    return len(text.splitlines()) - documented


def test_no_file_of_code_is_longer_than_its_room() -> None:
    code = [*DOCUMENTED, *_files(ROOT / "tests", ".py"), *_files(ROOT / "examples", ".py"), *_files(ROOT / "scripts")]
    lengths = {_named(path): _lines_besides_docstrings(path) for path in code}
    assert {name: lines for name, lines in lengths.items() if lines > MOST_LINES} == {}


_QUESTIONS = {"How", "What", "When", "Where", "Whether", "Which", "Who", "Whose", "Why"}


def test_every_module_says_what_it_is_and_no_docstring_begins_as_a_question() -> None:
    silent: list[str] = []
    asking: list[str] = []
    for path in DOCUMENTED:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if not ast.get_docstring(tree):
            silent.append(_named(path))
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                said = (ast.get_docstring(node) or "").split()
                if said and said[0].rstrip(",.:") in _QUESTIONS:
                    asking.append(f"{_named(path)}: {' '.join(said[:8])}")
            elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):  # below a constant, too
                said = node.value.value.split() if isinstance(node.value.value, str) else []
                if said and said[0].rstrip(",.:") in _QUESTIONS:
                    asking.append(f"{_named(path)}: {' '.join(said[:8])}")
    assert silent == []
    assert asking == []


def _exported(path: Path) -> list[str] | None:
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and any(
            isinstance(one, ast.Name) and one.id == "__all__" for one in node.targets
        ):
            return list(ast.literal_eval(node.value))
    return None


def _place(name: str) -> tuple[int, str]:
    """Constants, then classes, then functions: as ruff sorts them."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2), name


def test_every_module_says_in_order_what_it_offers() -> None:
    amiss: list[str] = []
    for path in DOCUMENTED:
        names = _exported(path)
        if names is None:
            if path.name != "__init__.py":
                amiss.append(f"{_named(path)}: no __all__")
        elif names != sorted(set(names), key=_place):
            amiss.append(f"{_named(path)}: {names}")
    assert amiss == []


def test_no_module_is_a_drawer_for_everything() -> None:
    drawers = {"utils", "util", "common", "helpers", "base", "manager", "misc"}
    assert [_named(path) for path in DOCUMENTED if path.stem in drawers or path.parent.name in drawers] == []


# ---- what an import loads -------------------------------------------------------------------------------------------


def _loaded_by(statement: str, *, path: Path | None = None) -> set[str]:
    """The modules a fresh interpreter has after a statement."""
    environment = dict(os.environ)
    if path is not None:
        environment["PYTHONPATH"] = str(path)
    program = f"{statement}\nimport sys\nprint('\\n'.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, text=True, check=True, cwd="/"
    )
    return set(done.stdout.split())


def test_importing_emlio_loads_none_of_what_is_heavy() -> None:
    heavy = {"zmq", "numpy", "msgspec", "torch", "psutil", "PIL", "emlio.receiver", "emlio.daemon"}
    assert _loaded_by("import emlio; emlio.__version__") & heavy == set()
    assert _loaded_by("import emlio; dir(emlio)") & heavy == set()
    assert {"zmq", "numpy", "emlio.receiver"} <= _loaded_by("import emlio; emlio.EmlioLoader")


def test_completion_shows_what_emlio_offers() -> None:
    assert {"EmlioLoader", "Writer", "train_test_split"} <= set(dir(emlio))
    assert "import_module" not in dir(emlio)


def test_the_writer_loads_neither_sockets_nor_the_training_side() -> None:
    heavy = {"zmq", "torch", "PIL", "pyarrow", "emlio.receiver", "emlio.daemon"}
    assert _loaded_by("import emlio; emlio.Writer") & heavy == set()


@pytest.fixture(scope="module")
def vendors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which torch, DALI and TensorFlow are installed, as far as an import can tell."""
    folder: Path = tmp_path_factory.mktemp("vendors")
    for name in ("torch", "nvidia", "tensorflow"):
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text("")
    return folder


@pytest.mark.parametrize("module", ["emlio.daemon.cli", "emlio.cli", "emlio.cli.convert", "emlio.cli.plan"])
def test_a_storage_node_loads_neither_the_training_side_nor_its_vendors(module: str, vendors: Path) -> None:
    loaded = _loaded_by(f"import {module}", path=vendors)
    assert module in loaded
    assert loaded & {"torch", "nvidia", "tensorflow", "emlio.receiver"} == set()


def test_a_command_that_forwards_signals_has_no_threads_of_libraries() -> None:
    """A signal to the process may go to any thread that does not block it."""
    loaded = _loaded_by("import emlio.cli.energy.running, os; assert len(os.listdir('/proc/self/task')) == 1")
    assert "emlio.energy.job.command" in loaded
    assert "numpy" not in loaded


def test_the_loader_finds_torch_without_loading_it(vendors: Path) -> None:
    statement = "from emlio.receiver.torch_adapter import torch_is_installed; assert torch_is_installed()"
    assert "torch" not in _loaded_by(f"import emlio; emlio.EmlioLoader; {statement}", path=vendors)


# ---- names and texts ------------------------------------------------------------------------------------------------


def test_the_public_names_are_these() -> None:
    assert emlio.__all__ == [
        "DaliPipeline",
        "EmlioDataset",
        "EmlioLoader",
        "Fraction",
        "Ids",
        "Joules",
        "Mixture",
        "Recovery",
        "Security",
        "TokenBatches",
        "Weights",
        "Where",
        "Writer",
        "__version__",
        "train_test_split",
    ]
    assert emlio.EmlioLoader.__module__ == "emlio.receiver.loader"
    with pytest.raises(AttributeError, match="no attribute 'EmlioLoder'"):
        emlio.EmlioLoder  # type: ignore[attr-defined]  # noqa: B018  # a slip of the finger must be told


def test_the_version_is_the_same_everywhere() -> None:
    assert emlio.__version__ == PROJECT["project"]["version"] == _BENCH["project"]["version"]


def _drawn_tree() -> dict[str, str]:
    """Each drawn class and the one it hangs from."""
    parents: dict[str, str] = {}
    above: dict[int, str] = {}
    for line in (errors.__doc__ or "").splitlines():
        match = re.match(r"([ │├└─]*)([A-Z]\w+Error)\b", line)
        if match is not None:
            depth = len(match[1])
            nearest = max((place for place in above if place < depth), default=None)
            parents[match[2]] = above[nearest] if nearest is not None else "Exception"
            above = {place: name for place, name in above.items() if place < depth} | {depth: match[2]}
    return parents


def test_the_tree_of_errors_is_the_one_drawn() -> None:
    real = {name: kind.__bases__[0].__name__ for name, kind in inspect.getmembers(errors, inspect.isclass)}
    assert _drawn_tree() == real
    assert sorted(real) == errors.__all__


def test_every_name_a_script_installs_leads_to_a_function() -> None:
    import importlib

    for target in [*PROJECT["project"]["scripts"].values(), *_BENCH["project"]["scripts"].values()]:
        module, _, name = target.partition(":")
        assert callable(getattr(importlib.import_module(module), name)), target


def test_the_changelog_has_a_place_for_what_comes() -> None:
    assert re.search(r"^## Unreleased$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)


def _texts() -> Iterator[Path]:
    yield from (path for path in ROOT.iterdir() if path.is_file() and path.name not in (".coverage", ".git", "LICENSE"))
    for folder in ("emlio", *LINKED, *READ_TOO):
        yield from _files(ROOT / folder)


def test_no_file_speaks_of_the_place_it_was_written_at() -> None:
    # Put together here, so that this file is not found itself.
    words = ["/wo" + "rk/", "py" + "pi.", "python" + "hosted", "--index" + "-url", "TO" + "DO", "FIX" + "ME"]
    found: list[str] = []
    for path in _texts():
        data = path.read_bytes()
        found.extend(f"{_named(path)}: {word}" for word in words if word.encode() in data)
    assert found == []
