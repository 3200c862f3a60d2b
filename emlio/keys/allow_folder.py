"""The folder of client keys, read now and whenever it changes.

Covers: files into rules, noticing every change at the price of a stat for each file, what happens to files that turn bad.
Does not cover: asking in turns (the daemon), and what a rule says (emlio.keys.allow_list).

A file that is bad lets nobody in, and neither do two files with the same key; the others stay as they are. A folder that is gone,
that others can write to, or that holds too many files lets nobody in at all.

A look that fails for want of descriptors or memory, or because the disk did not answer, says nothing about the folder: what was
read before counts on. Else whoever can use up the daemon's descriptors could have all clients revoked. What needs no descriptor
is looked at all the same: a file that was removed meanwhile lets nobody in, and neither does one that was changed until it can be
read.

Times of files tick slowly: an edit in place that follows another at once may leave size and times as they are. So a file that
changed is read once more after the longest tick of any file system has passed. Clocks of file servers play no part in that.
"""

import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from emlio.clock import Clock, SystemClock
from emlio.errors import ConfigError
from emlio.keys.allow_list import AllowList, ClientRule, check_client_name, same_keys
from emlio.keys.guarded_files import check_folder, failed, is_passing, read_file

__all__ = ["MAX_CLIENTS", "AllowFolder", "FoundRules"]

MAX_CLIENTS = 10_000
"""Looking at as many takes a few hundredths of a second, as the control thread can spare each second."""

_MOST_FILES = 2 * MAX_CLIENTS
"""Of any kind: an endless folder of others is not walked either."""

_SUFFIX = ".key"
_LONGEST_TICK_NS = 2_000_000_000
"""Of FAT; others tick every 4 ms to 1 s."""

_READ_AGAIN_AT_ONCE = 250
"""Files that only may have changed, in one look: reading them takes as long as looking at all of the most there may be."""

_NEVER_NS = 1 << 63

_TOLD_AT_ONCE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRules:
    """What lies in the folder.

    Attributes:
        rules: of the files that are good, by name.
        problems: what is wrong with the others, a sentence for each.
    """

    rules: tuple[ClientRule, ...] = ()
    problems: tuple[str, ...] = ()


_Mark: TypeAlias = tuple[int, int, int, int, int]
"""Device, inode, size, and the times of the last change of content and of anything: another one when a file changes, except
within one tick. A bare tuple, for ten thousand of them are made each second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """A file as it was read; either a rule or a problem.

    Attributes:
        mark: of before it was read; None where that could not be had.
        rule: what it says.
        problem: why it says nothing.
        read_again_ns: when to read it once more, though it looks the same.
    """

    mark: _Mark | None
    rule: ClientRule | None
    problem: str | None
    read_again_ns: int


class AllowFolder:
    """Turns a folder of NAME.key files into allow-lists. For one thread.

    Attributes:
        path: of the folder.
        obstacle: why the last look had to go by what was read before; None where it had not.
    """

    def __init__(
        self,
        path: Path,
        *,
        clock: Clock | None = None,
        scan: "Callable[[Path], AbstractContextManager[Iterator[os.DirEntry[str]]]]" = os.scandir,
    ) -> None:
        """See the class.

        Args:
            path: of the folder.
            clock: for files that changed just now.
            scan: the system's list of a folder.
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
        """The list as it is now, for a start, which wants all of it to be well.

        Raises:
            ConfigError: a file is bad, two have the same key, or the folder cannot be used.
        """
        self.changed()
        if self._problems:
            more = len(self._problems) - _TOLD_AT_ONCE
            rest = f"; and {more} more, see: emlio keys" if more > 0 else ""
            raise ConfigError("; ".join(self._problems[:_TOLD_AT_ONCE]) + rest)
        assert self._current is not None  # the first look always finds something new
        return self._current

    def changed(self) -> AllowList | None:
        """The list, if it is another than the last one given; never raises on account of what lies there."""
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
        """What is wrong since the last look and was not taken before; a problem that comes back is told again."""
        fresh = tuple(problem for problem in self._problems if problem not in self._taken)
        self._taken = frozenset(self._problems)
        return fresh

    def look(self) -> FoundRules:
        """What lies in the folder, well or not; files that look as before are not read."""
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
        """Read what is new, looks other than before, or is due."""
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
            problems.append(f"{paths}: each client must have a key of its own, these have the same; neither is let in")
        refused = {rule.key for _, rule in doubles}
        return FoundRules(rules=tuple(rule for rule in rules if rule.key not in refused), problems=tuple(problems))

    def _marks(self) -> dict[str, _Mark | None]:
        """Of all clients by name; nothing is read if there are too many."""
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
                            f"{self.path}: must hold at most {MAX_CLIENTS} clients and {_MOST_FILES} files, holds more; "
                            "nobody is let in"
                        )
        except FileNotFoundError as error:
            raise ConfigError(
                f"{self.path}: there must be a folder of client keys, is none. Let a client in, by the key that emlio keygen "
                f"prints on its host: emlio allow NAME KEY --folder {shlex.quote(str(self.path.parent))}"
            ) from error
        except OSError as error:
            raise failed(self.path, "listed", error) from error
        return marks

    def _marks_of_known(self) -> dict[str, _Mark | None]:
        """Of those that were read before and are there, where the folder cannot be listed: that takes no descriptor."""
        paths = {name: self._path(name) for name in self._seen}
        return {name: self._mark_of(name, path.stat) for name, path in paths.items() if _may_be_there(path)}

    def _mark_of(self, name: str, status: Callable[[], os.stat_result]) -> _Mark | None:
        try:
            found = status()
        except OSError as error:
            seen = self._seen.get(name)
            if seen is None or not is_passing(error):
                return None  # reading it will say why
            self.obstacle = self.obstacle or str(failed(self._path(name), "looked at", error))
            return seen.mark
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns

    def _path(self, name: str) -> Path:
        return self.path / f"{name}{_SUFFIX}"

    def _read(self, name: str, mark: _Mark | None, *, before: _Seen | None = None) -> _Seen | None:
        """The file as it is now, None if it is gone; or as `before`, which looked the same, if it cannot be read just now."""
        path = self._path(name)
        rule: ClientRule | None = None
        problem: str | None = None
        try:
            check_client_name(name)
            rule = ClientRule.parse(name, read_file(path), str(path))
        except FileNotFoundError:
            if not os.path.lexists(path):
                return None
            problem = f"{path}: must be a file, is a link that leads nowhere"
        except ConfigError as error:
            problem = str(error) if str(path) in str(error) else f"{path}: {error}"
            if before is not None and is_passing(error):
                self.obstacle = self.obstacle or problem
                return replace(before, read_again_ns=self._clock.monotonic_ns() + _LONGEST_TICK_NS)
        # What the system did not let us read may be had later though the file stays as it is.
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
