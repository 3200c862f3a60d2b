"""Builds the C library beside the Python code, if there is a C compiler.

Everything else is in pyproject.toml. Without a compiler the package is complete, too: NumPy then does what the library would
(emlio/native). The library needs no headers of Python, so one wheel serves all Pythons of a kind of machine.
"""

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
SOURCES = ROOT / "native"
LIBRARY = Path("emlio") / "libemlio_native.so"
FLAGS = ("-std=c11", "-O3", "-fPIC", "-shared", "-pthread", "-fvisibility=hidden", "-g0", "-s", "-Wl,--build-id=none")


def compiler() -> list[str]:
    """Return the command of a C compiler; nothing if there is none, or if none is wanted."""
    if os.environ.get("EMLIO_NATIVE") == "0" or not sys.platform.startswith("linux"):
        return []
    given = shlex.split(os.environ.get("CC", ""))
    names: list[list[str]] = [given] if given else [["cc"], ["gcc"], ["clang"]]
    return next((name for name in names if shutil.which(name[0])), list[str]())


def build_library(target: Path) -> bool:
    """Compile the library; return whether it is there. A compiler that fails is reported and stops nothing."""
    command = compiler()
    target.unlink(missing_ok=True)
    if not command:
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    # Names inside this folder only: the result must not depend on where the sources lie.
    done = subprocess.run(
        [*command, *FLAGS, "-o", str(target.resolve()), *sorted(path.name for path in SOURCES.glob("*.c"))],
        cwd=SOURCES,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.stderr.write(f"the C library was not built, NumPy will do its work:\n{done.stderr}\n")
    return done.returncode == 0


class BuildWithLibrary(build_py):
    """Copies the Python code, and compiles the library beside it."""

    def run(self) -> None:
        """See setuptools."""
        super().run()
        build_library((ROOT if self.editable_mode else Path(self.build_lib)) / LIBRARY)

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        """See setuptools."""
        made = Path(self.build_lib) / LIBRARY
        return [*super().get_outputs(include_bytecode), *([str(made)] if made.exists() else [])]


class WithLibrary(Distribution):
    """Says that the package has a part for one kind of machine."""

    def has_ext_modules(self) -> bool:
        """See setuptools."""
        return bool(compiler())


class WheelOfMachine(bdist_wheel):
    """Names the kind of machine in a wheel with the library: no Python in particular, but this processor."""

    def get_tag(self) -> tuple[str, str, str]:
        """See setuptools."""
        if self.root_is_pure:
            return "py3", "none", "any"
        machine = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        return "py3", "none", os.environ.get("EMLIO_WHEEL_PLATFORM") or machine


setup(distclass=WithLibrary, cmdclass={"build_py": BuildWithLibrary, "bdist_wheel": WheelOfMachine})
