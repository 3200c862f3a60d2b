"""The references that keep a network namespace alive."""

import os
from pathlib import Path

__all__ = ["holders"]


def holders(namespace: os.stat_result) -> list[str]:
    """Return paths below /proc that refer to the namespace.

    Each is the namespace of a process, or a descriptor of it.

    Args:
        namespace: the result of `stat` on it.
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
