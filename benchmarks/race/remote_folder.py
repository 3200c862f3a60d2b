"""A folder of the storage's end for those who want a file system: SFTP, over SSH and without.

Where the kernel has no NFS client, sshfs is the closest stand-in: it, too, asks for each name, each open and each block. An SSH
server of its own listens there with keys that live as long as it does. Beside it SFTP is spoken without SSH, as NFS without
Kerberos is: no cipher, and no window of SSH's channels, which limits one connection to about 2 MB a round trip.

Covers: both servers. Does not cover: mounting, which is the consumer's (emlio.benchmarks.race.consumers.mounted).
"""

import getpass
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

from emlio.benchmarks.link.contract import Link
from emlio.benchmarks.race.environments import find_program
from emlio.benchmarks.race.served import free_port, served
from emlio.errors import ConfigError

__all__ = ["SFTP_SERVERS", "serving_files", "serving_mount", "why_no_mount"]

SFTP_SERVERS: Final = ("/usr/lib/openssh/sftp-server", "/usr/libexec/openssh/sftp-server", "/usr/lib/ssh/sftp-server")
"""Where distributions put it."""

_FUSE: Final = "/dev/fuse"
_PRIVATE_RUN: Final = 'mount -t tmpfs tmpfs /run && mkdir -m 755 /run/sshd && exec "$@"'
"""As root sshd wants a folder of the system's; it gets one that only it sees."""

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
"""The last two end a session whose client was cut and whose link is gone: it would wait for both for hours."""


def why_no_mount(cache: Path) -> str | None:
    """What is missing, or None."""
    missing = [name for name in ("sshfs", "fusermount3", "sshd", "ssh-keygen") if find_program(name, cache) is None]
    if missing:
        return f"needs {', '.join(missing)}: apt-get install sshfs fuse3 openssh-server openssh-client"
    if _sftp_server() is None:
        return "needs sftp-server: apt-get install openssh-sftp-server"
    if not os.access(_FUSE, os.R_OK | os.W_OK):
        return f"needs to read and write {_FUSE}"
    return None


@contextmanager
def serving_mount(folder: Path, link: Link, cache: Path) -> Generator[str, None, None]:
    """Serve a folder while the block lasts; gives the URL that emlio.benchmarks.race.consumers.mounted takes.

    Args:
        folder: what will be mounted.
        link: at whose storage's end.
        cache: where programs may lie.
    """
    sshd, server = find_program("sshd", cache), _sftp_server()
    if sshd is None or server is None:
        raise ConfigError(f"a remote folder {why_no_mount(cache)}")
    with tempfile.TemporaryDirectory(prefix="emlio-race-ssh-") as state:
        for name in ("host", "client"):
            subprocess.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{state}/{name}"],
                check=True,
                stdin=subprocess.DEVNULL,
            )
        address, port = link.storage.listen, free_port(link.storage)
        configuration = Path(state) / "sshd_config"
        configuration.write_text(_CONFIGURATION.format(port=port, address=address, state=state), encoding="utf-8")
        secure = [sshd, "-D", "-e", "-f", str(configuration)]
        if os.geteuid() == 0 and shutil.which("unshare") is not None:
            secure = ["unshare", "--mount", "sh", "-c", _PRIVATE_RUN, "sh", *secure]
        with served("sshd", secure, link, port):
            plain = free_port(link.storage)
            listener = [sys.executable, "-m", "emlio.benchmarks.race.sftp_listener", address, str(plain), server]
            with served("the SFTP server", listener, link, plain):
                words = urlencode({"key": f"{state}/client", "plain": plain})
                yield f"sshfs://{getpass.getuser()}@{link.storage.address}:{port}{folder.resolve()}?{words}"


@contextmanager
def serving_files(folder: Path, link: Link, cache: Path, mount: Path | None) -> Generator[str, None, None]:
    """As `serving_mount`, unless `folder` lies on a mount the user made: then nothing needs to be served.

    Args:
        folder: what is served.
        link: at whose storage's end.
        cache: where programs may lie.
        mount: the user's, if any.
    """
    if mount is not None:
        yield f"file://{folder.resolve()}"
        return
    with serving_mount(folder, link, cache) as url:
        yield url


def _sftp_server() -> str | None:
    return next((path for path in SFTP_SERVERS if os.access(path, os.X_OK)), None)
