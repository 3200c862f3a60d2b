"""The ways in which a dataset is mounted: by whom, with which rights, and by which command."""

import os
import shlex
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from emlio_testing.ordinary_user import as_user, cannot_become_user, prepare

__all__ = ["CIRCUMSTANCES", "Circumstance", "Places", "direct"]

_ROOT = Path(__file__).parents[3]
_EMLIO: Final = shlex.join([sys.executable, "-c", "import sys; from emlio.cli import main; sys.exit(main())"])


@dataclass(frozen=True, slots=True)
class Places:
    """Folders, and the address of the dataset.

    Attributes:
        folder: the dataset's folder.
        directory: where it is mounted.
        programs: static ones.
        scratch: anybody may write there.
        address: of the dataset.
    """

    folder: Path
    directory: Path
    programs: Path
    scratch: Path
    address: str


Command = Callable[[Places, str], str]
"""Makes a shell program of places and what runs inside."""


def _mount(places: Places, inside: str) -> str:
    return f"""
        mkfifo {places.scratch}/said
        {_EMLIO} mount {places.address} {places.directory} > {places.scratch}/said &
        read line < {places.scratch}/said || exit 90
        {inside}; status=$?
        kill -INT $!; wait $! || exit 91
        exit $status
    """


def _run(places: Places, inside: str, options: str = "") -> str:
    return f"{_EMLIO} run {options} {places.address}={places.directory} -- {inside}"


def _run_in_order(places: Places, inside: str) -> str:
    return _run(places, inside, "--order sequential")


def direct(places: Places, inside: str) -> str:
    """Let the programs read the folder itself, which refuses writes at the same path."""
    bind = f"mount --bind {places.folder} {places.directory}"
    return f"{bind} && mount -o remount,bind,ro {places.directory} && {inside}"


def _by_user(command: Command, *, user_namespaces: bool = True) -> Command:
    def made(places: Places, inside: str) -> str:
        before = prepare(places.scratch, user_namespaces=user_namespaces)
        return f"{before} && {as_user(command(places, inside))}"

    return made


def _in_container(command: Command, *, user: bool = False) -> Command:
    """A root of its own with little in it: no fusermount3, no other user, no capability outside."""

    def made(places: Places, inside: str) -> str:
        root = places.scratch / "root"
        seen = {_ROOT, places.scratch, places.directory, places.programs}
        seen |= {Path(sys.base_prefix).resolve(), Path("/usr"), Path("/etc")}
        seen |= {Path(name) for name in sys.path if os.path.isdir(name)}
        seen = {path for path in seen if not any(other in path.parents for other in seen)}
        binds = "\n".join(f"mkdir -p {root}{path} && mount --rbind {path} {root}{path}" for path in sorted(seen))
        within = command(places, inside)
        if user:
            within = f"exec unshare --user --map-user 1000 --map-group 1000 sh -c {shlex.quote(within)}"
        program = f"""
            set -e
            mount -t tmpfs none {root}
            {binds}
            for name in bin sbin lib lib64; do [ ! -L /$name ] || cp -P /$name {root}/; done
            [ ! -e {root}/usr/bin/fusermount3 ] || mount --bind /dev/null {root}/usr/bin/fusermount3
            mkdir -p {root}/dev/shm {root}/proc {root}/tmp {root}/old
            for name in null zero urandom fuse; do touch {root}/dev/$name; mount --bind /dev/$name {root}/dev/$name; done
            mount -t tmpfs none {root}/dev/shm
            mount -t proc none {root}/proc
            cd {root} && pivot_root . old && umount -l /old
            set +e
            cd /; {within}
        """
        (places.scratch / "root").mkdir()
        outside = f"exec unshare -Urmpf --kill-child sh -c {shlex.quote(program)}"
        return f"{prepare(places.scratch)} && {as_user(outside)}"

    return made


@dataclass(frozen=True, slots=True)
class Circumstance:
    """One column of the matrix.

    Attributes:
        name: its head.
        command: what runs, as root in a mount namespace of its own.
        refused: why it cannot be had here; "" if it can.
    """

    name: str
    command: Command
    refused: str = ""


_NO_USER: Final = cannot_become_user()
_NO_HELPER: Final = _NO_USER or ("" if shutil.which("fusermount3") else "fusermount3 is not installed")

CIRCUMSTANCES: Final = (
    Circumstance("root, mount", _mount),
    Circumstance("root, run", _run),
    Circumstance("root, run in order", _run_in_order),
    Circumstance("user, run in a namespace", _by_user(_run), _NO_USER),
    Circumstance("user, mount by fusermount3", _by_user(_mount), _NO_HELPER),
    Circumstance("user, run by fusermount3", _by_user(_run, user_namespaces=False), _NO_HELPER),
    Circumstance("container, mount", _in_container(_mount), _NO_USER),
    Circumstance("container, run", _in_container(_run), _NO_USER),
    Circumstance("user in a container, run", _in_container(_run, user=True), _NO_USER),
)
