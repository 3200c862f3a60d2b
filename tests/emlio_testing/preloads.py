"""Shared libraries of our own that a process loads before all others, to see another system than there is."""

import shutil
import subprocess
from pathlib import Path

__all__ = ["build_preload", "why_no_preload"]


def why_no_preload() -> str | None:
    """Return why none can be compiled here, or None where it can."""
    return None if shutil.which("cc") is not None else "there is no C compiler (cc)"


def build_preload(source: Path, folder: Path) -> Path:
    """Compile one into a folder, unless an earlier call did."""
    library = folder / source.with_suffix(".so").name
    if not library.exists():
        command = ["cc", "-O1", "-shared", "-fPIC", "-Wall", "-o", str(library), str(source), "-ldl", "-pthread"]
        subprocess.run(command, check=True)
    return library
