"""The servers at the storage end: emlio-daemon, sshd, and nfs-ganesha; and what is missing here for each of them."""

import os
import tempfile
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from emlio_bench.harness.sides import running_daemon
from emlio_bench.link.contract import Link
from emlio_bench.race.needs.environments import find_program
from emlio_bench.race.run.one_machine import children
from emlio_bench.race.servers.remote_folder import serving_mount, why_no_mount, why_no_served_folder
from emlio_bench.race.servers.served import free_port, served

__all__ = ["Server", "serving", "why_not"]

_GANESHA: Final = "ganesha.nfsd"
_HEADER: Final = "/usr/include/nfsc/libnfs.h"
_FUSE: Final = "/dev/fuse"

_CONFIGURATION: Final = """
NFS_CORE_PARAM {{
  Protocols = 4; NFS_Port = {port}; Bind_addr = {address}; Enable_NLM = false; Enable_RQUOTA = false; Enable_UDP = false;
}}
NFSv4 {{ Graceless = true; }}
EXPORT {{
  Export_Id = 1; Path = {folder}; Pseudo = /; Access_Type = RO; Squash = No_Root_Squash; SecType = sys; Protocols = 4;
  Transports = TCP;
  FSAL {{ Name = VFS; }}
}}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server, its address for clients, and the processes that it has itself started."""

    address: str
    pids: frozenset[int]


def why_not(subject: str, cache: Path) -> str | None:
    """Return what is missing here for a subject, or None.

    Args:
        subject: its name.
        cache: folder of programs.
    """
    if subject.startswith("mount-") and not os.access(_FUSE, os.R_OK | os.W_OK):
        return f"needs to read and write {_FUSE}"
    if subject == "sshfs":
        return why_no_mount(cache) or why_no_served_folder(cache)
    if subject == "nfs" and (find_program(_GANESHA, cache) is None or not Path(_HEADER).is_file()):
        return f"needs {_GANESHA} and {_HEADER}: apt-get install nfs-ganesha nfs-ganesha-vfs libnfs-dev"
    return None


@contextmanager
def serving(folder: Path, link: Link, cache: Path, wanted: frozenset[str]) -> Generator[dict[str, Server]]:
    """Serve a folder while the block lasts; yield the servers by the subject that needs them.

    Args:
        folder: of the files.
        link: link at whose storage end they run.
        cache: folder of programs.
        wanted: of "emlio", "sshfs" and "nfs".
    """
    found: dict[str, Server] = {}
    with ExitStack() as stack:
        indexes = stack.enter_context(tempfile.TemporaryDirectory(prefix="emlio-bench-files-"))
        for name in sorted(wanted):
            before = children()
            match name:
                case "emlio":
                    dataset = folder.with_name(f"{folder.name}?format=files")
                    daemon = running_daemon(dataset, ("--cache-dir", indexes), link=link)
                    address = stack.enter_context(daemon).address
                case "sshfs":
                    address = stack.enter_context(serving_mount(folder, link, cache))
                case _:
                    address = stack.enter_context(_serving_nfs(folder, link, cache))
            found[name] = Server(address=address, pids=children() - before)
        yield found


@contextmanager
def _serving_nfs(folder: Path, link: Link, cache: Path) -> Generator[str]:
    port = free_port(link.storage)
    with tempfile.TemporaryDirectory(prefix="emlio-bench-nfs-") as state:
        configuration = Path(state, "ganesha.conf")
        text = _CONFIGURATION.format(port=port, address=link.storage.listen, folder=folder.resolve())
        configuration.write_text(text, encoding="utf-8")
        program = find_program(_GANESHA, cache) or _GANESHA
        command = [program, "-F", "-f", str(configuration), "-L", f"{state}/log", "-p", f"{state}/pid", "-N", "CRIT"]
        with served("nfs-ganesha", command, link, port):
            yield f"nfs://{link.storage.address}/?version=4&nfsport={port}"
