"""The environments and programs of other systems, in a cache folder, made on first use.

Systems with compatible requirements share a virtual environment. requirements/systems pins each
package by name, and packages are installed without resolving dependencies, so the file describes
the whole environment. PyTorch alone takes 5 GB. It is therefore borrowed by a .pth file from the
environment of this process if possible; otherwise one of the other environments installs it and
lends it.
"""

import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import distributions
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from emlio.errors import ConfigError

__all__ = [
    "ENVIRONMENTS",
    "GO_PROGRAMS",
    "INSTALLED_MB",
    "LENDER",
    "LENT_MB",
    "CarryOut",
    "cache_folder",
    "environment_python",
    "find_program",
    "installed_versions",
    "make_environment",
    "make_program",
    "needs_lender",
    "usable_cache_folder",
    "why_no_environment",
]

_REQUIREMENTS: Final = Path(__file__).resolve().parents[4] / "requirements" / "systems"
CarryOut = Callable[[str, Sequence[str]], None]
"""Runs a command, with its name in errors, to its end, or raises a ConfigError."""

_MADE: Final = "made"
_BORROWED: Final = "borrowed.pth"


LENDER: Final = "torch"
"""The environment that lends packages if this process's environment does not have them."""

_TORCH: Final = ("torch", "torchvision")
ENVIRONMENTS: Final[Mapping[str, tuple[str, ...]]] = {
    LENDER: _TORCH,
    "mosaic": _TORCH,
    "hf": _TORCH,
    "loaders": (),
    "tf": (),
    "dlio": _TORCH,
}
"""The environments by name, with the large packages that another environment may lend them.

An environment has the name of its folder and of its file in requirements/systems. What is not lent
is installed with its dependencies. MosaicML Streaming needs an older NumPy and transformers than the
others work with. Hugging Face datasets needs a newer huggingface-hub than MosaicML Streaming does.
Grain, SPDL and TensorFlow need no PyTorch.
"""

INSTALLED_MB: Final = {LENDER: 57, "mosaic": 185, "hf": 313, "loaders": 77, "tf": 1435, "dlio": 103, "versitygw": 60}
"""The size of each environment on disk, measured, without what is lent, and about that of each program."""

LENT_MB: Final = 5000
"""The size of PyTorch with CUDA, where the lender must install it."""

GO_PROGRAMS: Final = {"versitygw": "github.com/versity/versitygw/cmd/versitygw@v1.8.0"}
"""Programs that `go install` builds, with their versions."""


def cache_folder(chosen: Path | None, environment: Mapping[str, str] | None = None) -> Path:
    """Return the folder of environments and programs.

    Args:
        chosen: folder chosen by the user; None for the default.
        environment: environment variables; XDG_CACHE_HOME is used if present.
    """
    if chosen is not None:
        return chosen
    usual = (environment or {}).get("XDG_CACHE_HOME")
    return (Path(usual) if usual else Path.home() / ".cache") / "emlio-bench"


def usable_cache_folder(chosen: Path | None, environment: Mapping[str, str] | None = None) -> Path:
    """Return the folder of environments and programs, which is made if it is missing.

    Args:
        chosen: see `cache_folder`.
        environment: see `cache_folder`.

    Raises:
        ConfigError: files cannot be written there.
    """
    folder = cache_folder(chosen, environment)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError as error:
        raise ConfigError(
            f"--cache must be a folder that can be written, got {folder}: {error.strerror or error}"
        ) from error


def why_no_environment(name: str) -> str | None:
    """Return the reason why the environment cannot be made here, without trying, or None."""
    if not (_REQUIREMENTS / f"{name}.txt").is_file():
        return (
            f"needs {_REQUIREMENTS / name}.txt, which only a checkout has. Install the benchmarks from one: pip install "
            "--editable . --editable ./benchmarks"
        )
    if find_spec("venv") is None or find_spec("ensurepip") is None:
        return "needs Python's venv, which Debian and Ubuntu ship apart: apt-get install python3-venv"
    return None


def environment_python(name: str, cache: Path) -> Path | None:
    """Return the interpreter of an environment.

    None if it is not made, or was made from other requirements.
    """
    folder = _folder(name, cache)
    made = folder / _MADE
    if why_no_environment(name) is not None or (needs_lender(name) and environment_python(LENDER, cache) is None):
        return None
    if made.is_file() and made.read_text(encoding="utf-8") == _digest(name):
        return folder / "bin" / "python"
    return None


def make_environment(name: str, cache: Path, carry_out: CarryOut) -> Path:
    """Make an environment, or find it made, and return its interpreter.

    Args:
        name: a key of `ENVIRONMENTS`.
        cache: folder of environments.
        carry_out: runs each command.

    Raises:
        ConfigError: the environment cannot be made here.
    """
    python = environment_python(name, cache)
    if python is not None:
        return python
    reason = why_no_environment(name)
    if reason is not None:
        raise ConfigError(f"the environment {name} {reason}")
    folder = _folder(name, cache)
    shutil.rmtree(folder, ignore_errors=True)  # incomplete, or made from other requirements
    borrowed = _borrowed(name)
    if needs_lender(name):
        make_environment(LENDER, cache, carry_out)
        borrowed = _site_packages(_folder(LENDER, cache))
    steps: list[Sequence[str]] = [[sys.executable, "-m", "venv", str(folder)]]
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    pip.append("--no-compile")  # most modules are never imported
    if ENVIRONMENTS[name] and borrowed is None:
        steps.append([*pip, *ENVIRONMENTS[name]])
    steps.append([*pip, "--no-deps", "--requirement", str(_REQUIREMENTS / f"{name}.txt")])
    for number, step in enumerate(steps):
        carry_out(f"making the environment {name}", step)
        if number == 0 and borrowed is not None:
            _site_packages(folder).joinpath(_BORROWED).write_text(f"{borrowed}\n", encoding="utf-8")
    (folder / _MADE).write_text(_digest(name), encoding="utf-8")
    return folder / "bin" / "python"


def installed_versions(name: str | None, cache: Path, packages: Sequence[str]) -> str:
    """Return installed packages with their versions, such as "litdata 0.2.76, torch 2.15.0".

    Args:
        name: name of an environment; None for this process's own.
        cache: folder of environments.
        packages: names of the published packages.
    """
    # Borrowed packages are in this process's environment.
    folders = [*([str(_site_packages(_folder(name, cache)))] if name is not None else []), *sys.path]
    found: list[str] = []
    for package in packages:
        one = next(iter(distributions(name=package, path=folders)), None)
        if one is not None:
            found.append(f"{package} {one.version}")
    return ", ".join(found)


def find_program(name: str, cache: Path) -> str | None:
    """Return the path of a program in the cache or on PATH.

    The folders of system daemons are searched too, since they are not on a user's PATH.
    """
    made = cache / "bin" / name
    if made.is_file():
        return str(made)
    return shutil.which(name) or shutil.which(name, path="/usr/local/sbin:/usr/sbin:/sbin")


def make_program(name: str, cache: Path, carry_out: CarryOut) -> str:
    """Find a program of `GO_PROGRAMS`, or build it with `go install`.

    Args:
        name: name of the program.
        cache: folder of programs.
        carry_out: runs the command.

    Raises:
        ConfigError: Go is missing, or the build failed.
    """
    found = find_program(name, cache)
    if found is not None:
        return found
    go = shutil.which("go")
    if go is None:
        raise ConfigError(f"{name} must be installed, or Go (1.22 or newer) with which it is made in two minutes")
    carry_out(f"making {name}", ["env", f"GOBIN={cache / 'bin'}", "GOFLAGS=", go, "install", GO_PROGRAMS[name]])
    return str(cache / "bin" / name)


def _folder(name: str, cache: Path) -> Path:
    if name not in ENVIRONMENTS:
        raise ConfigError(f"an environment must be one of {', '.join(ENVIRONMENTS)}, got {name!r}")
    return cache / "environments" / name


def _borrowed(name: str) -> Path | None:
    """Return this process's package folder, if it has all packages that may be borrowed."""
    specs = [find_spec(package) for package in ENVIRONMENTS[name]]
    if not specs or not all(spec is not None and spec.origin is not None for spec in specs):
        return None
    folders = {Path(str(spec.origin)).parents[1] for spec in specs if spec is not None}
    return folders.pop() if len(folders) == 1 else None


def needs_lender(name: str) -> bool:
    """Return whether the lending environment must exist before this one."""
    return name != LENDER and bool(ENVIRONMENTS[name]) and _borrowed(name) is None


def _site_packages(folder: Path) -> Path:
    return folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"


def _digest(name: str) -> str:
    text = (_REQUIREMENTS / f"{name}.txt").read_bytes()
    world = f"{sys.version_info[:2]} {os.path.realpath(sys.base_prefix)} {_borrowed(name)}"
    return hashlib.blake2b(text + world.encode(), digest_size=16).hexdigest() + "\n"
