"""A folder at the storage end, served as a file system: SFTP, with SSH and without.

If the kernel has no NFS client, sshfs is the closest substitute: it also sends a request for each
name, each open and each block. A private SSH server serves it, with keys that live as long as the
server. In addition, SFTP is served without SSH, like NFS without Kerberos: without a cipher, and
without the window of SSH's channels, which limits one connection to about 2 MB per round trip. Not
over a real network, where it would show this host's files to every client.
"""

import getpass
import os
import shutil
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

from emlio.errors import ConfigError
from emlio_bench.link.contract import Link, LinkKind
from emlio_bench.race.needs.environments import find_program
from emlio_bench.race.servers.scratch import scratch_folder
from emlio_bench.race.servers.served import free_port, served

__all__ = ["SFTP_SERVERS", "serving_files", "serving_mount", "why_no_mount", "why_no_served_folder"]

SFTP_SERVERS: Final = ("/usr/lib/openssh/sftp-server", "/usr/libexec/openssh/sftp-server", "/usr/lib/ssh/sftp-server")
"""The paths of sftp-server in different distributions."""

_FUSE: Final = "/dev/fuse"
_PRIVATE_RUN: Final = 'mount -t tmpfs tmpfs /run && mkdir -m 755 /run/sshd && exec "$@"'
"""A command that gives sshd a private /run.

As root, sshd needs /run/sshd, which then only sshd sees.
"""

_CONFIGURATION: Final = """
Port {port}
ListenAddress {address}
HostKey {state}/host
AuthorizedKeysFile {state}/client.pub
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
MaxStartups 200
LogLevel ERROR
Subsystem sftp internal-sftp
ClientAliveInterval 10
ClientAliveCountMax 3
"""
"""The configuration of sshd.

The last two options end a session whose client was killed and whose link is gone. Otherwise the
session would stay for hours.
"""


def why_no_mount(cache: Path) -> str | None:
    """Return what is missing to mount a remote folder here, or None."""
    missing = [name for name in ("sshfs", "fusermount3") if find_program(name, cache) is None]
    if missing:
        return f"needs {', '.join(missing)}: apt-get install sshfs fuse3"
    if not os.access(_FUSE, os.R_OK | os.W_OK):
        return f"needs to read and write {_FUSE}"
    return None


def why_no_served_folder(cache: Path) -> str | None:
    """Return what is missing to serve a folder from here, or None."""
    missing = [name for name in ("sshd", "ssh-keygen") if find_program(name, cache) is None]
    if missing:
        return f"needs {', '.join(missing)}: apt-get install openssh-server openssh-client"
    if _sftp_server() is None:
        return "needs sftp-server: apt-get install openssh-sftp-server"
    return None


@contextmanager
def serving_mount(folder: Path, link: Link, cache: Path) -> Generator[str, None, None]:
    """Serve a folder while the block lasts; yield the URL for `consumers.mounted`.

    Args:
        folder: folder to mount.
        link: link at whose storage end the servers run.
        cache: folder of programs.
    """
    sshd, server = find_program("sshd", cache), _sftp_server()
    if sshd is None or server is None:
        raise ConfigError(f"a remote folder {why_no_served_folder(cache)}")
    with scratch_folder("ssh") as state:
        for name in ("host", "client"):
            subprocess.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{state}/{name}"],
                check=True,
                stdin=subprocess.DEVNULL,
            )
        address, port = link.storage.listen, free_port(link.storage)
        configuration = state / "sshd_config"
        configuration.write_text(_CONFIGURATION.format(port=port, address=address, state=state), encoding="utf-8")
        secure = [sshd, "-D", "-e", "-f", str(configuration)]
        if os.geteuid() == 0 and shutil.which("unshare") is not None:
            secure = ["unshare", "--mount", "sh", "-c", _PRIVATE_RUN, "sh", *secure]
        with served("sshd", secure, link, port):
            url = f"sshfs://{getpass.getuser()}@{link.storage.address}:{port}{folder.resolve()}?"
            if link.kind is LinkKind.REAL:
                # Without SSH anybody in a real network could read this host's files.
                yield url + urlencode({"key": f"{state}/client"})
                return
            plain = free_port(link.storage)
            listener = [sys.executable, "-m", "emlio_bench.race.servers.sftp_listener", address, str(plain), server]
            with served("the SFTP server", listener, link, plain):
                yield url + urlencode({"key": f"{state}/client", "plain": plain})


@contextmanager
def serving_files(folder: Path, link: Link, cache: Path, mount: Path | None) -> Generator[str, None, None]:
    """Serve a folder as `serving_mount` does, unless the user has mounted it.

    Args:
        folder: folder to serve.
        link: link at whose storage end the servers run.
        cache: folder of programs.
        mount: the user's mount, if any; then nothing is served.
    """
    if mount is not None:
        yield f"file://{folder.resolve()}"
        return
    with serving_mount(folder, link, cache) as url:
        yield url


def _sftp_server() -> str | None:
    return next((path for path in SFTP_SERVERS if os.access(path, os.X_OK)), None)
