"""The folder of client keys, re-read whenever it changes.

An invalid file admits no client, and neither do two files with the same key; other files are not
affected. If the folder is missing, writable by others, or holds too many files, no client is
admitted.

A look that fails for lack of descriptors or memory, or because the disk did not answer, says
nothing about the folder: the rules read before stay in effect. Otherwise an attacker who exhausts
the daemon's descriptors could have all clients revoked. Checks that need no descriptor are made all
the same: a removed file admits no client, and neither does a changed one until it can be read.

Time stamps of files are coarse: two edits in place in quick succession may leave size and times
unchanged. So a changed file is read once more after the longest time-stamp granularity of any file
system has passed. This does not depend on the clocks of file servers.
"""

import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TypeAlias

import msgspec

from emlio.clock import Clock, SystemClock
from emlio.errors import ConfigError
from emlio.keys.allow_list import AllowList, ClientRule, check_client_name, same_keys
from emlio.keys.guarded_files import check_folder, failed, is_passing, read_file

__all__ = ["MAX_CLIENTS", "AllowFolder", "FoundRules"]

MAX_CLIENTS = 10_000
"""Looking at this many takes a few hundredths of a second, which the control thread can spare each
second.
"""

_MOST_FILES = 2 * MAX_CLIENTS
"""Files of any kind: a folder with any number of other files is not walked either."""

_SUFFIX = ".key"
_LONGEST_TICK_NS = 2_000_000_000
"""The time-stamp granularity of FAT; other file systems have 4 ms to 1 s."""

_READ_AGAIN_AT_ONCE = 250
"""The limit, in one look, of files that are re-read only because they may have changed.

Reading them takes as long as a look at the largest permitted folder.
"""

_NEVER_NS = 1 << 63

_TOLD_AT_ONCE = 3


class FoundRules(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the folder.

    Attributes:
        rules: of the valid files, by name.
        problems: of the other files, a sentence for each.
    """

    rules: tuple[ClientRule, ...] = ()
    problems: tuple[str, ...] = ()


_Mark: TypeAlias = tuple[int, int, int, int, int]
"""Device, inode, size, and the times of the last change of content and of metadata.

A change of the file changes it, except within the granularity of time stamps. It is a bare tuple,
since ten thousand of them are made each second.
"""


class _Seen(msgspec.Struct, frozen=True, kw_only=True):
    """A file as it was read; either a rule or a problem.

    Attributes:
        mark: taken before the file was read; None if that failed.
        rule: the rule in the file.
        problem: why the file holds no rule.
        read_again_ns: when to read it once more, even if its mark is unchanged.
    """

    mark: _Mark | None
    rule: ClientRule | None
    problem: str | None
    read_again_ns: int


class AllowFolder:
    """A reader of allow-lists from a folder of NAME.key files. For one thread.

    Attributes:
        path: of the folder.
        obstacle: why the last look had to rely on earlier results; None if it did not.
    """

    def __init__(
        self,
        path: Path,
        *,
        clock: Clock | None = None,
        scan: "Callable[[Path], AbstractContextManager[Iterator[os.DirEntry[str]]]]" = os.scandir,
    ) -> None:
        """Create it without reading the folder.

        Args:
            path: of the folder.
            clock: for re-reading recently changed files.
            scan: lists a folder.
        """
        self.path = path
        self.obstacle: str | None = None
        self._scan = scan
        self._known = False
        self._clock: Clock = clock if clock is not None else SystemClock()
        self._seen: dict[str, _Seen] = {}
        self._settled: dict[str, _Mark | None] | None = None
        self._due_ns = _NEVER_NS
        self._found = FoundRules()
        self._given: FoundRules | None = None
        self._current: AllowList | None = None
        self._problems: tuple[str, ...] = ()
        self._taken: frozenset[str] = frozenset()

    def load(self) -> AllowList:
        """Return the current list at start-up, when every file must be valid.

        Raises:
            ConfigError: a file is invalid, two have the same key, or the folder cannot be used.
        """
        self.changed()
        if self._problems:
            more = len(self._problems) - _TOLD_AT_ONCE
            rest = f"; {more} more are listed by: emlio keys" if more > 0 else ""
            raise ConfigError("; ".join(self._problems[:_TOLD_AT_ONCE]) + rest)
        assert self._current is not None  # the first look always yields a new result
        return self._current

    def changed(self) -> AllowList | None:
        """Return the list if it differs from the last one returned, else None.

        It never raises because of the folder's content.
        """
        found = self.look()
        if found is self._given:
            return None
        self._given = found
        self._problems = found.problems
        self._taken &= frozenset(found.problems)
        fresh = AllowList(rules=found.rules)
        if fresh == self._current:
            return None
        self._current = fresh
        return fresh

    def take_problems(self) -> tuple[str, ...]:
        """Return the current problems that were not returned before.

        A problem that recurs is returned again.
        """
        fresh = tuple(problem for problem in self._problems if problem not in self._taken)
        self._taken = frozenset(self._problems)
        return fresh

    def look(self) -> FoundRules:
        """Return the folder's content, including problems.

        Files that look unchanged are not read.
        """
        self.obstacle = None
        try:
            marks = self._marks()
            self._known = True
        except ConfigError as error:
            if not self._known or not is_passing(error):
                self._seen, self._settled = {}, None
                self._found = FoundRules(problems=(str(error),))
                return self._found
            self.obstacle = str(error)
            marks = self._marks_of_known()
        now_ns = self._clock.monotonic_ns()
        if marks == self._settled and now_ns < self._due_ns:
            return self._found
        due = [name for name, seen in self._seen.items() if seen.read_again_ns <= now_ns][:_READ_AGAIN_AT_ONCE]
        self._see(marks, frozenset(due))
        self._due_ns = min((seen.read_again_ns for seen in self._seen.values()), default=_NEVER_NS)
        whole = len(self._seen) == len(marks) and None not in marks.values()
        self._settled = marks if whole else None
        self._found = self._sum_up()
        return self._found

    def _see(self, marks: "dict[str, _Mark | None]", due: frozenset[str]) -> None:
        """Read the files that are new, changed or due."""
        before, self._seen = self._seen, {}
        for name, mark in sorted(marks.items()):
            old = before.get(name)
            if old is None or mark is None or old.mark != mark:
                seen = self._read(name, mark)
            else:
                seen = self._read(name, mark, before=old) if name in due else old
            if seen is not None:
                self._seen[name] = seen

    def _sum_up(self) -> FoundRules:
        rules = [seen.rule for seen in self._seen.values() if seen.rule is not None]
        problems = [seen.problem for seen in self._seen.values() if seen.problem is not None]
        doubles = same_keys(rules)
        for first, second in doubles:
            paths = f"{self._path(first.name)} and {self._path(second.name)}"
            problems.append(
                f"{paths}: each client must have a key of its own, these two have the same, so neither is allowed"
            )
        refused = {rule.key for _, rule in doubles}
        return FoundRules(rules=tuple(rule for rule in rules if rule.key not in refused), problems=tuple(problems))

    def _marks(self) -> dict[str, _Mark | None]:
        """Return the marks of all clients by name.

        Fail before reading any file if there are too many.
        """
        marks: dict[str, _Mark | None] = {}
        try:
            check_folder(self.path)
            with self._scan(self.path) as entries:
                for number, entry in enumerate(entries, 1):
                    # Hidden files are those being written, here and by editors.
                    if entry.name.endswith(_SUFFIX) and not entry.name.startswith("."):
                        name = entry.name.removesuffix(_SUFFIX)
                        marks[name] = self._mark_of(name, entry.stat)
                    if len(marks) > MAX_CLIENTS or number > _MOST_FILES:
                        raise ConfigError(
                            f"{self.path}: must hold at most {MAX_CLIENTS} clients and {_MOST_FILES} files, holds "
                            "more; no client is allowed until some are removed"
                        )
        except FileNotFoundError as error:
            raise ConfigError(
                f"{self.path}: no folder of client keys. Allow a client with the key that emlio keygen prints on its "
                f"host: emlio allow NAME KEY --folder {shlex.quote(str(self.path.parent))}"
            ) from error
        except OSError as error:
            raise failed(self.path, "listed", error) from error
        return marks

    def _marks_of_known(self) -> dict[str, _Mark | None]:
        """Return the marks of known files that may still exist.

        This is used when the folder cannot be listed; it needs no descriptor.
        """
        paths = {name: self._path(name) for name in self._seen}
        return {name: self._mark_of(name, path.stat) for name, path in paths.items() if _may_be_there(path)}

    def _mark_of(self, name: str, status: Callable[[], os.stat_result]) -> _Mark | None:
        try:
            found = status()
        except OSError as error:
            seen = self._seen.get(name)
            if seen is None or not is_passing(error):
                return None  # reading it will report the reason
            self.obstacle = self.obstacle or str(failed(self._path(name), "accessed", error))
            return seen.mark
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns

    def _path(self, name: str) -> Path:
        return self.path / f"{name}{_SUFFIX}"

    def _read(self, name: str, mark: _Mark | None, *, before: _Seen | None = None) -> _Seen | None:
        """Read the file; return None if it no longer exists.

        If the file looked unchanged and cannot be read for the moment, the result follows `before`.
        """
        path = self._path(name)
        rule: ClientRule | None = None
        problem: str | None = None
        try:
            check_client_name(name)
            rule = ClientRule.parse(name, read_file(path), str(path))
        except FileNotFoundError:
            if not os.path.lexists(path):
                return None
            problem = f"{path}: must be a file, is a broken link"
        except ConfigError as error:
            problem = str(error) if str(path) in str(error) else f"{path}: {error}"
            if before is not None and is_passing(error):
                self.obstacle = self.obstacle or problem
                return msgspec.structs.replace(before, read_again_ns=self._clock.monotonic_ns() + _LONGEST_TICK_NS)
        # If the system prevented reading, it may succeed later without a change of the file.
        once_more = before is None or problem is not None
        again_ns = self._clock.monotonic_ns() + _LONGEST_TICK_NS if once_more else _NEVER_NS
        return _Seen(mark=mark, rule=rule, problem=problem, read_again_ns=again_ns)


def _may_be_there(path: Path) -> bool:
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True
