"""Paths as text, whatever bytes the file system has, the same on all hosts."""

__all__ = ["path_bytes", "path_text"]


def path_bytes(path: str) -> bytes:
    """Return the bytes that the file system has for a path."""
    return path.encode("utf-8", "surrogateescape")


def path_text(path: bytes) -> str:
    """Return the path as text; bytes that are no UTF-8 come back from `path_bytes`."""
    return path.decode("utf-8", "surrogateescape")
