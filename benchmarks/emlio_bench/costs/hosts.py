"""Two hosts on one machine: a storage node and a training node, with a long link between them.

Each host is a network namespace, and a mount namespace for each program. Each has a boot id of its
own, as two machines have, so that neither takes the other for itself. They share processors, memory
and the clock, so the true clock offset is 0.
"""

import shutil
import sys
import uuid
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from emlio.energy.recording.store import Store
from emlio.errors import ConfigError
from emlio_bench.harness.daemon import running_daemon
from emlio_bench.link.contract import LinkEnd
from emlio_bench.link.emulated import EmulatedLink, why_not
from emlio_bench.link.spec import LinkSpec
from emlio_bench.processes.child import Child

__all__ = ["COMPUTE", "STORAGE", "Host", "TwoHosts", "two_hosts", "why_no_hosts"]

STORAGE: Final = "storage-1"
COMPUTE: Final = "train-1"
_PORT: Final = 5555
_LOOK_S: Final = 0.02
_ENTER: Final = 'mount --bind "$1" /proc/sys/kernel/random/boot_id && shift && exec "$@"'
_EMLIO: Final = "import sys; from emlio.cli import main; sys.exit(main())"


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """One host.

    Attributes:
        name: name of the node in its recording.
        end: end of the link.
        boot: file that holds its boot id.
    """

    name: str
    end: LinkEnd
    boot: Path

    def command(self, argv: Sequence[str]) -> list[str]:
        """Return the command line that runs a program on this host."""
        entered = ["unshare", "--mount", "sh", "-c", _ENTER, "sh", str(self.boot), *argv]
        return self.end.command(entered)

    def emlio(self, *words: str) -> list[str]:
        """Return the command line that runs `emlio` on this host."""
        return self.command([sys.executable, "-c", _EMLIO, *words])


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoHosts:
    """Both hosts while they are up.

    Attributes:
        compute: the training node.
        storage: the storage node, which records its energy.
        address: address of the storage node's daemon, with its dataset.
    """

    compute: Host
    storage: Host
    address: str


def why_no_hosts() -> str | None:
    """Return the reason why two hosts are impossible here, or None."""
    if shutil.which("unshare") is None:
        return "two hosts need the program unshare, of util-linux"
    reason = why_not()
    return None if reason is None else f"a link between two hosts {reason}"


@contextmanager
def two_hosts(dataset: Path, folder: Path, *, rtt_ns: int, source_flags: Sequence[str]) -> Generator[TwoHosts]:
    """Start both hosts; the storage node records its energy and serves one dataset.

    Args:
        dataset: directory of the dataset.
        folder: folder for the hosts' files.
        rtt_ns: time that the link adds to a round trip.
        source_flags: flags of `emlio energy record` on the storage node, besides the output file.
    """
    reason = why_no_hosts()
    if reason is not None:
        raise ConfigError(reason)
    with EmulatedLink(LinkSpec(rtt_ns=rtt_ns)) as link, ExitStack() as stack:
        storage = _host(STORAGE, link.storage, folder)
        recorded = folder / "storage.sqlite"
        flags = ["--out", str(recorded), "--node", STORAGE, *source_flags]
        recorder = stack.enter_context(Child("the recorder", storage.emlio("energy", "record", *flags)))
        recorder.wait_until(lambda: recorded.exists() and _has_readings(recorded), _LOOK_S)
        serving = ["--bind", f"tcp://{storage.end.address}:{_PORT}", "--insecure", "--energy", str(recorded)]
        daemon = stack.enter_context(running_daemon(dataset, serving, within=storage.command))
        yield TwoHosts(compute=_host(COMPUTE, link.training, folder), storage=storage, address=daemon.address)


def _host(name: str, end: LinkEnd, folder: Path) -> Host:
    boot = folder / f"{name}.boot"
    boot.write_text(f"{uuid.uuid4()}\n", encoding="ascii")
    return Host(name=name, end=end, boot=boot)


def _has_readings(path: Path) -> bool:
    try:
        with Store(path) as store:
            return bool(store.load().readings)
    except ConfigError:  # the file is not complete yet
        return False
