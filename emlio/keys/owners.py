"""Checks that no other user could have put a file or folder in its place.

The checks look at the owner and mode of the file and of all folders above it.

The rules are those of sshd's StrictModes: a trusted file, and each folder on the way to it, belongs
to the user or to root, and only its owner can write to it. A user who can write to a folder can
replace its entries. Folders above the user's own home are not checked: a user who can replace
them controls everything of this user anyway.

The rules are looser in two points. A folder above may be writable by all if it is sticky, like
/tmp: only the owners of the folder and of an entry can rename the entry, and both are checked. And
in a container that does not know the host's root, a folder above may belong to an owner that the
kernel does not name.

They are stricter in one point. A link on the way is not simply followed: the folders that contain
the link are checked too.
"""

import os
import pwd
import shlex
import stat
from collections.abc import Callable
from functools import cache
from pathlib import Path

import msgspec

from emlio.errors import ConfigError
from emlio.interrupts import is_interrupt

__all__ = ["Asker", "check_above", "check_owner", "check_writers", "this_process", "unnamed_owner"]

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_MOST_LINKS = 40  # the kernel's limit


class Asker(msgspec.Struct, frozen=True, kw_only=True):
    """The user for whom files are checked, and access to the file system.

    Attributes:
        user: the user whose own files are trusted.
        home: the user's home; None where there is none.
        unnamed: the number under which the kernel shows owners it does not name, if root outside
            the user namespace may be among them; else None.
        look: returns the metadata of a path; does not follow links.
        target: returns the target of a link.
    """

    user: int
    home: str | None = None
    unnamed: int | None = None
    look: Callable[[str], os.stat_result] = os.lstat
    target: Callable[[str], str] = os.readlink

    def believes(self, owner: int) -> bool:
        """Return whether files of this owner are trusted."""
        return owner in (self.user, 0)


def this_process() -> Asker:
    """Return the process's own user on the real file system."""
    return _process_of(os.geteuid())


@cache  # on some systems a user's home is looked up over the network
def _process_of(user: int) -> Asker:
    try:
        home = pwd.getpwuid(user).pw_dir
    except KeyError:
        home = ""
    return Asker(user=user, home=home if os.path.isabs(home) else None, unnamed=_unnamed(Path("/proc")))


def _unnamed(proc: Path) -> int | None:
    try:
        uid_map = (proc / "self/uid_map").read_text(encoding="ascii")
        return unnamed_owner(uid_map, (proc / "sys/kernel/overflowuid").read_text(encoding="ascii"))
    except (OSError, ValueError) as error:
        if is_interrupt(error):
            raise
        return None


def unnamed_owner(uid_map: str, shown_as: str) -> int | None:
    """Return the number that stands for owners outside of a user namespace.

    It is None if root is known inside the namespace.

    Args:
        uid_map: /proc/self/uid_map. Each line holds the first user inside, the corresponding user
            outside, and the number of users.
        shown_as: /proc/sys/kernel/overflowuid.
    """
    outside = [int(line.split()[1]) for line in uid_map.splitlines()]
    return int(shown_as) if outside and 0 not in outside else None


def check_owner(path: Path, found: os.stat_result, asker: Asker) -> None:
    """Check that the path belongs to the user or to root.

    Raises:
        ConfigError: it does not.
    """
    if not asker.believes(found.st_uid):
        raise ConfigError(
            f"{path}: must belong to {_believed(asker)}, belongs to {_name(found.st_uid)}. Run this as "
            f"{_name(found.st_uid)}, or run: chown {_name(asker.user)} {shlex.quote(str(path))}"
        )


def check_writers(path: Path, found: os.stat_result) -> None:
    """Check that only the owner may write to the path.

    Raises:
        ConfigError: its group or others may.
    """
    if found.st_mode & _OTHERS_WRITE:
        raise ConfigError(
            f"{path}: must be writable by its owner only, its mode is {found.st_mode & 0o7777:04o}. Run: chmod go-w "
            f"{shlex.quote(str(path))}"
        )


def check_above(path: Path, asker: Asker) -> None:
    """Check that no other user could have put the entry at `path`, or a link on the way to it.

    Raises:
        ConfigError: another user could, or the links lead nowhere.
        OSError: the system reports an error, or nothing exists at `path`.
    """
    passed, end = _way(path, asker)
    unchecked = _above_home(end, asker)
    anybodys = False  # whether all users may create entries in the last folder on the way
    for folder, found in passed:
        if folder not in unchecked:
            if not asker.believes(found.st_uid) and (anybodys or found.st_uid != asker.unnamed):
                raise _foreign(folder, found, path, asker)
            if _may_be_written(found) and not found.st_mode & stat.S_ISVTX:
                raise _writable(folder, found, path, asker)
        anybodys = _may_be_written(found)


def _above_home(end: str, asker: Asker) -> set[str]:
    """Return the folders above the user's home, if the home contains the path."""
    if asker.home is None:
        return set()
    try:
        _, home = _way(Path(asker.home), asker)
    except (OSError, ConfigError) as error:
        if is_interrupt(error):
            raise
        return set()  # many services have no home
    if end != home and not end.startswith(home + os.sep):
        return set()
    return {str(folder) for name in (home, asker.home) for folder in Path(name).parents}


def _way(wanted: Path, asker: Asker) -> tuple[list[tuple[str, os.stat_result]], str]:
    """Return all folders and links on the way to a path, and the final path.

    The final path is not among the entries.
    """
    passed: list[tuple[str, os.stat_result]] = []
    at, links = os.sep, 0
    ahead = str(wanted.absolute()).split(os.sep)[::-1]
    while ahead:
        name = ahead.pop()
        if name in ("", "."):
            continue
        if name == "..":
            at = os.path.dirname(at)
            continue
        passed.append((at, asker.look(at)))
        inside = os.path.join(at, name)
        found = asker.look(inside)
        if not stat.S_ISLNK(found.st_mode):
            at = inside
            continue
        links += 1
        if links > _MOST_LINKS:
            raise ConfigError(f"{wanted}: must be a folder, is a broken link")
        passed.append((inside, found))
        target = asker.target(inside)
        ahead += target.split(os.sep)[::-1]
        if os.path.isabs(target):
            at = os.sep
    return passed, at


def _may_be_written(found: os.stat_result) -> bool:
    """Return whether others than the owner may write; a link's mode has no meaning."""
    return not stat.S_ISLNK(found.st_mode) and bool(found.st_mode & _OTHERS_WRITE)


def _foreign(folder: str, found: os.stat_result, path: Path, asker: Asker) -> ConfigError:
    return ConfigError(
        f"{folder}: must belong to {_believed(asker)}, because it is on the path to {path}, belongs to "
        f"{_name(found.st_uid)}. Keep keys in a folder that only {_believed(asker)} can replace"
    )


def _writable(folder: str, found: os.stat_result, path: Path, asker: Asker) -> ConfigError:
    return ConfigError(
        f"{folder}: must be writable by its owner only, because it is on the path to {path}, its mode is "
        f"{found.st_mode & 0o7777:04o}. Run: chmod go-w {shlex.quote(folder)}, or keep keys in a folder that only "
        f"{_believed(asker)} can replace"
    )


def _believed(asker: Asker) -> str:
    return "root" if asker.user == 0 else f"{_name(asker.user)} or root"


def _name(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)
