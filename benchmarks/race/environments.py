"""Where other systems run: environments and programs in a cache folder, made on first use.

Systems whose requirements agree share a virtual environment. What it holds is pinned in requirements/rivals, all of it by
name, and installed without looking for dependencies: an environment is what its file says. PyTorch alone is 5 GB, so it is
taken from the environment of this process where that has it, by a .pth file; else one of the others has it and lends it.

Covers: making and finding them, why one cannot be made. Does not cover: what runs in them (emlio.benchmarks.race.subjects).
"""

import hashlib
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import distributions
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from emlio.benchmarks.processes import Child
from emlio.errors import ConfigError, TransportError

__all__ = [
    "ENVIRONMENTS",
    "GO_PROGRAMS",
    "INSTALL_S",
    "LENDER",
    "CarryOut",
    "Environment",
    "cache_folder",
    "carry_out",
    "environment_python",
    "find_program",
    "installed_versions",
    "make_environment",
    "make_program",
    "needs_lender",
    "why_no_environment",
]

_REQUIREMENTS: Final = Path(__file__).resolve().parents[2] / "requirements" / "rivals"
INSTALL_S: Final = 3600.0
"""How long one command may take."""

CarryOut = Callable[[str, Sequence[str]], None]
_MADE: Final = "made"
_BORROWED: Final = "borrowed.pth"


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """A virtual environment.

    Attributes:
        name: of its folder and of its file in requirements/rivals.
        borrowed: large packages that this process's environment may lend; installed with all they need where it has them not.
    """

    name: str
    borrowed: tuple[str, ...] = ()


LENDER: Final = "torch"
"""The environment that lends the others what this process cannot."""

ENVIRONMENTS: Final = {
    one.name: one
    for one in (
        Environment(name=LENDER, borrowed=("torch", "torchvision")),
        Environment(name="mosaic", borrowed=("torch", "torchvision")),
        Environment(name="hf", borrowed=("torch", "torchvision")),
        Environment(name="loaders"),
        Environment(name="tf"),
    )
}
"""By name. MosaicML Streaming wants an older NumPy and transformers than the others get along with, Hugging Face datasets a newer
huggingface-hub than it; Grain, SPDL and TensorFlow need no PyTorch."""

GO_PROGRAMS: Final = {"versitygw": "github.com/versity/versitygw/cmd/versitygw@v1.8.0"}
"""Programs that `go install` makes, with their versions."""


def cache_folder(chosen: Path | None, environment: Mapping[str, str] | None = None) -> Path:
    """Where environments and programs lie.

    Args:
        chosen: by the user; None for the usual place.
        environment: variables, in which XDG_CACHE_HOME may stand.
    """
    if chosen is not None:
        return chosen
    usual = (environment or {}).get("XDG_CACHE_HOME")
    return (Path(usual) if usual else Path.home() / ".cache") / "emlio-bench"


def why_no_environment(name: str) -> str | None:
    """Why it could not be made here, as far as that shows without trying."""
    if not (_REQUIREMENTS / f"{name}.txt").is_file():
        return f"needs {_REQUIREMENTS / name}.txt, which a checkout of the sources has and a wheel has not"
    if find_spec("venv") is None or find_spec("ensurepip") is None:
        return "needs Python's venv, which Debian and Ubuntu ship apart: apt-get install python3-venv"
    return None


def environment_python(name: str, cache: Path) -> Path | None:
    """Its interpreter, or None where it is not made or was made of other requirements."""
    folder = _folder(name, cache)
    made = folder / _MADE
    if why_no_environment(name) is not None or (needs_lender(name) and environment_python(LENDER, cache) is None):
        return None
    if made.is_file() and made.read_text(encoding="utf-8") == _digest(name):
        return folder / "bin" / "python"
    return None


def carry_out(name: str, command: Sequence[str]) -> None:
    """Run a command to its end.

    Args:
        name: how errors call it.
        command: program and arguments.

    Raises:
        ConfigError: it failed.
    """
    try:
        with Child(name, command) as child:
            child.rest(INSTALL_S)
    except TransportError as error:
        raise ConfigError(str(error)) from error


def make_environment(name: str, cache: Path, carry_out: CarryOut = carry_out) -> Path:
    """Make it, or find it made; its interpreter.

    Args:
        name: of ENVIRONMENTS.
        cache: where they lie.
        carry_out: runs each of its commands.

    Raises:
        ConfigError: it cannot be made here.
    """
    python = environment_python(name, cache)
    if python is not None:
        return python
    reason = why_no_environment(name)
    if reason is not None:
        raise ConfigError(f"the environment {name} {reason}")
    folder = _folder(name, cache)
    shutil.rmtree(folder, ignore_errors=True)  # half made, or of other requirements
    borrowed = _borrowed(name)
    if needs_lender(name):
        make_environment(LENDER, cache, carry_out)
        borrowed = _site_packages(_folder(LENDER, cache))
    steps: list[Sequence[str]] = [[sys.executable, "-m", "venv", str(folder)]]
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    pip.append("--no-compile")  # most of it is never imported
    if ENVIRONMENTS[name].borrowed and borrowed is None:
        steps.append([*pip, *ENVIRONMENTS[name].borrowed])
    steps.append([*pip, "--no-deps", "--requirement", str(_REQUIREMENTS / f"{name}.txt")])
    for number, step in enumerate(steps):
        carry_out(f"making the environment {name}", step)
        if number == 0 and borrowed is not None:
            _site_packages(folder).joinpath(_BORROWED).write_text(f"{borrowed}\n", encoding="utf-8")
    (folder / _MADE).write_text(_digest(name), encoding="utf-8")
    return folder / "bin" / "python"


def installed_versions(name: str | None, cache: Path, packages: Sequence[str]) -> str:
    """Packages with their versions, as far as they are installed, such as "litdata 0.2.76, torch 2.15.0".

    Args:
        name: of an environment; None for this process's own.
        cache: where environments lie.
        packages: as they are called where they are published.
    """
    # What an environment borrows lies in this process's.
    folders = [*([str(_site_packages(_folder(name, cache)))] if name is not None else []), *sys.path]
    found: list[str] = []
    for package in packages:
        one = next(iter(distributions(name=package, path=folders)), None)
        if one is not None:
            found.append(f"{package} {one.version}")
    return ", ".join(found)


def find_program(name: str, cache: Path) -> str | None:
    """Where a program is: in the cache, or installed. System daemons are found though no user's PATH has their folder."""
    made = cache / "bin" / name
    if made.is_file():
        return str(made)
    return shutil.which(name) or shutil.which(name, path="/usr/local/sbin:/usr/sbin:/sbin")


def make_program(name: str, cache: Path, carry_out: CarryOut = carry_out) -> str:
    """A program of GO_PROGRAMS: found, or made by `go install`.

    Args:
        name: which.
        cache: where they lie.
        carry_out: runs the command.

    Raises:
        ConfigError: there is no Go, or it failed.
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
    """The folder of this process's packages, where it has all that may be borrowed."""
    specs = [find_spec(package) for package in ENVIRONMENTS[name].borrowed]
    if not specs or not all(spec is not None and spec.origin is not None for spec in specs):
        return None
    folders = {Path(str(spec.origin)).parents[1] for spec in specs if spec is not None}
    return folders.pop() if len(folders) == 1 else None


def needs_lender(name: str) -> bool:
    """Whether another environment must be there before this one."""
    return name != LENDER and bool(ENVIRONMENTS[name].borrowed) and _borrowed(name) is None


def _site_packages(folder: Path) -> Path:
    return folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"


def _digest(name: str) -> str:
    text = (_REQUIREMENTS / f"{name}.txt").read_bytes()
    world = f"{sys.version_info[:2]} {os.path.realpath(sys.base_prefix)} {_borrowed(name)}"
    return hashlib.blake2b(text + world.encode(), digest_size=16).hexdigest() + "\n"
