"""Host names for the ranks of a run, which mean more than one address.

Covers: a hosts file that only these processes see, whether this machine lets us have one. Does not cover: what a rank makes of
it.
"""

import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["HostNames", "why_no_names"]

_NOBODY_LISTENS = "::1"
"""Daemons of a run listen on IPv4 only."""

_WITH_NAMES = """\
#!/bin/sh
exec unshare --mount --propagation private \\
    sh -c 'mount --bind "$0" /etc/hosts && exec "$@"' '{hosts}' '{python}' "$@"
"""


def why_no_names() -> str | None:
    """Why a process can have no hosts file of its own here, or None where it can."""
    command = ["unshare", "--mount", "--propagation", "private", "mount", "--bind", "/etc/hosts", "/etc/hosts"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        return str(error)
    if done.returncode:
        return done.stderr.strip()
    return None if socket.has_ipv6 else "there is no IPv6"


class HostNames:
    """Names with an address of each family: the first for its daemon, and one where nothing listens.

    Attributes:
        python: an interpreter whose process knows the names.
    """

    def __init__(self, folder: Path, addresses: Sequence[str]) -> None:
        self._names = {address: f"store-{number}.chaos" for number, address in enumerate(addresses)}
        hosts, self.python = folder / "hosts", folder / "python-with-names"
        lines = ["127.0.0.1 localhost", *self._lines(self._names)]
        hosts.write_text("\n".join(lines) + "\n", encoding="ascii")
        self.python.write_text(_WITH_NAMES.format(hosts=hosts, python=sys.executable), encoding="utf-8")
        self.python.chmod(0o755)

    @staticmethod
    def _lines(names: Mapping[str, str]) -> list[str]:
        return [f"{address} {name}" for known, name in names.items() for address in (_NOBODY_LISTENS, known)]

    def named(self, address: str) -> str:
        """The same address of a dataset, by names."""
        for known, name in self._names.items():
            address = address.replace(f"{known}:", f"{name}:")
        return address
