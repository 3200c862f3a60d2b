"""Compiling the C source beside this file into a library, once for each version of it."""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

__all__ = ["COMPILER_VARIABLE", "NotCompiledError", "load_library"]

COMPILER_VARIABLE: Final = "EMLIO_BENCH_CC"
"""The C compiler; empty for none. If it is not set, `cc` is used."""

_SOURCE: Final = Path(__file__).with_name("forward.c")
_FLAGS: Final = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-shared", "-fPIC")
_ABI: Final = 2
_COMPILE_S: Final = 60.0
_SAID_CHARACTERS: Final = 300


class NotCompiledError(Exception):
    """There is no library. Its text is the reason."""


def load_library(variables: Mapping[str, str] = os.environ) -> ctypes.CDLL:
    """Load the library. Compile it first if this version has not been compiled yet.

    Args:
        variables: of the environment.

    Raises:
        NotCompiledError: there is no compiler, or it failed.
    """
    compiler = variables.get(COMPILER_VARIABLE, "cc")
    program = shutil.which(compiler) if compiler else None
    if program is None:
        raise NotCompiledError(f"no compiler {compiler!r}" if compiler else f"{COMPILER_VARIABLE} is empty")
    made = _folder(variables) / f"forward-{_fingerprint(program)}.so"
    try:
        if not made.exists():
            _compile(program, made)
        library = ctypes.CDLL(str(made))
    except OSError as error:
        raise NotCompiledError(f"{made} cannot be made or loaded: {error}") from error
    if library.forward_abi() != _ABI:
        raise NotCompiledError(f"{made} must have ABI {_ABI}, it has {library.forward_abi()}")
    return library


def _folder(variables: Mapping[str, str]) -> Path:
    cache = variables.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "emlio-bench"


def _fingerprint(program: str) -> str:
    """Return a name that another source, compiler or machine does not have."""
    digest = hashlib.sha256(_SOURCE.read_bytes())
    digest.update("\0".join((os.path.realpath(program), platform.machine(), *_FLAGS)).encode())
    return digest.hexdigest()[:16]


def _compile(program: str, made: Path) -> None:
    made.parent.mkdir(parents=True, exist_ok=True)
    # Renamed when it is complete: two links may begin at the same time.
    with tempfile.TemporaryDirectory(dir=made.parent) as folder:
        part = Path(folder) / made.name
        try:
            told = subprocess.run(
                [program, *_FLAGS, "-o", str(part), str(_SOURCE)],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
                timeout=_COMPILE_S,
            )
        except subprocess.TimeoutExpired as error:
            raise NotCompiledError(f"{program} took longer than {_COMPILE_S:g} s") from error
        if told.returncode != 0:
            raise NotCompiledError(f"{program} failed: {told.stderr.strip()[:_SAID_CHARACTERS]}")
        part.replace(made)
