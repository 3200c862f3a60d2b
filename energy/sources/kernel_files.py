"""Small files of the kernel's file systems.

A file or folder that is missing or unreadable counts as empty. Counters are not read here, since
their errors matter; each source reads its own.
"""

from pathlib import Path

__all__ = ["entries_of", "number_of", "text_of"]


def entries_of(folder: Path) -> list[Path]:
    """Return the entries of a folder."""
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def text_of(path: Path) -> str:
    """Return the content of a file, without surrounding whitespace."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def number_of(path: Path) -> int | None:
    """Return the non-negative number in a file; None if it holds none."""
    said = text_of(path)
    return int(said) if said.isdigit() else None
