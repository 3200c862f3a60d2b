"""What keeps a network namespace alive.

Covers: looking. Does not cover: making namespaces (emlio.benchmarks.link).
"""

import os
from pathlib import Path

__all__ = ["holders"]


def holders(namespace: os.stat_result) -> list[str]:
    """Whatever does, as places below /proc: of a process in it, or of a descriptor of it.

    Args:
        namespace: what `stat` said of it.
    """
    found: list[str] = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            places = [process / "ns/net", *(process / "fd").iterdir()]
        except OSError:
            continue
        for place in places:
            try:
                seen = place.stat()
            except OSError:
                continue
            if (seen.st_dev, seen.st_ino) == (namespace.st_dev, namespace.st_ino):
                found.append(str(place))
    return found
