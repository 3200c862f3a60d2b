"""Small files that the kernel makes: what one says, what a folder holds, nothing where there is none or it may not be read.

Covers: reading names, numbers and lists of them. Does not cover: counters, whose errors matter (each source reads its own).
"""

from pathlib import Path

__all__ = ["entries_of", "number_of", "text_of"]


def entries_of(folder: Path) -> list[Path]:
    """What lies in a folder."""
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def text_of(path: Path) -> str:
    """What a file says, without the line's end."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def number_of(path: Path) -> int | None:
    """The number of at least 0 that a file says."""
    said = text_of(path)
    return int(said) if said.isdigit() else None
