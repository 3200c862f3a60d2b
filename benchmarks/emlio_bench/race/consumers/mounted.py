"""Mounts a remote folder for a consumer, by sshfs, or uses the user's mount."""

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

__all__ = ["MOUNTS", "files_below", "forget", "mounted"]

MOUNTS: dict[str, tuple[list[str], bool]] = {
    "default": ([], False),
    "tuned": (
        [
            "max_conns=8",  # requests for several files do not wait for each other's blocks
            "kernel_cache",
            "dcache_timeout=3600",  # a folder is listed only once
            "dcache_max_size=1000000",
            "entry_timeout=3600",
            "attr_timeout=3600",
            "no_rofd_flush",  # closing a file after reading costs no round trip
        ],
        True,
    ),
}
"""Options of a mount by name, and whether SFTP runs without SSH."""

_START_S = 60.0
_END_S = 5.0
_LOOK_S = 0.02


@contextmanager
def mounted(
    order: dict[str, Any], within: Callable[[Sequence[str]], list[str]] = list
) -> Generator[dict[str, Any], None, None]:
    """Yield the order with its URL replaced by a local folder.

    The mount "none" is an ordinary local folder. `within` returns the command line that runs sshfs in the right place, such
    as at one end of a link.
    """
    url = urlsplit(str(order["url"]))
    if url.scheme == "file":
        if order["options"]["mount"] != "none":
            forget(url.path)
        yield {**order, "url": url.path}
        return
    point = f"{order['folder']}-mount"
    os.makedirs(point, exist_ok=True)
    words = {name: values[0] for name, values in parse_qs(url.query).items()}
    options, plain = MOUNTS[order["options"]["mount"]]
    if plain:
        options = [*options, f"directport={words['plain']}"]
    else:
        options = [
            *options,
            f"port={url.port}",
            f"IdentityFile={words['key']}",
            "StrictHostKeyChecking=no",
            "UserKnownHostsFile=/dev/null",
            "BatchMode=yes",
            "LogLevel=ERROR",
        ]
    # Without SSH there is no login, and a user name would be taken for a part of the host name.
    host = url.hostname if plain else f"{url.username}@{url.hostname}"
    command = ["sshfs", "-f", "-o", ",".join(["ro", "auto_unmount", *options]), f"{host}:{url.path}", point]
    mount = subprocess.Popen(within(command), stdin=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + _START_S
        while not os.path.ismount(point):
            if mount.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"sshfs must mount {order['url']} within {_START_S:g} s, it did not")
            time.sleep(_LOOK_S)  # sshfs does not report when it has mounted
        yield {**order, "url": point}
    finally:
        subprocess.run(["fusermount3", "-u", "-z", point], check=False, stderr=subprocess.DEVNULL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            mount.wait(_END_S)
        mount.kill()
        mount.wait()
        with contextlib.suppress(OSError):
            os.rmdir(point)


def forget(folder: str) -> None:
    """Ask the kernel to drop its cached pages of a folder that was mounted before."""
    for place, _, names in os.walk(folder):
        for name in names:
            file = os.open(os.path.join(place, name), os.O_RDONLY)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(file)


def files_below(folder: str) -> list[str]:
    """Return the paths of all files in the subfolders of a folder, sorted."""
    paths: list[str] = []
    for place in sorted(entry.path for entry in os.scandir(folder) if entry.is_dir()):
        paths += sorted(entry.path for entry in os.scandir(place) if entry.is_file())
    return paths
