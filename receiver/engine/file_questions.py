"""Questions of other threads for the files below a dataset's folder: its tree, and ranges of them."""

from collections.abc import Mapping

import msgspec
import numpy as np
import numpy.typing as npt

from emlio.errors import DatasetError, EmlioError, RefusedError
from emlio.formats.plain import checksums_of
from emlio.native import joined_checksum
from emlio.receiver.engine.asker import OpenQuestion
from emlio.receiver.machine.daemon_pool import DaemonPool
from emlio.receiver.machine.source import Source
from emlio.session.questions import SHORT_ANSWER_BYTES
from emlio.session.trees import TreeCollector
from emlio.store.tree import Tree
from emlio.wire.control import payload_crc
from emlio.wire.questions import NO_TREE, OTHER_TREE, Absent, AskRanges, AskTree, Ranges, Told, TreePart

__all__ = ["RangesQuestion", "RangesRead", "TreeQuestion"]

_Ints = npt.NDArray[np.int64]

_BAD_CHECKSUM = "its bytes did not arrive as the daemon read them"


class RangesRead(msgspec.Struct, frozen=True, eq=False):
    """The bytes of n ranges of files, as far as they could be read.

    Attributes:
        memory: their bytes.
        starts: (n,) where each begins in the memory.
        sizes: (n,) and its bytes there.
        failures: why some could not be read, by their places; what there is of them must not be used.
    """

    memory: bytes | memoryview
    starts: _Ints
    sizes: _Ints
    failures: Mapping[int, str]


class TreeQuestion(OpenQuestion):
    """For the tree of a folder, part by part, by the first daemon that is there.

    Attributes:
        tree: what was found.
        is_asked: whether a daemon makes an answer, which takes seconds for a million files.
    """

    kind = AskTree

    def __init__(self, pool: DaemonPool) -> None:
        self._pool = pool
        self._collector = TreeCollector()
        self.tree: Tree | None = None
        self.is_asked = False

    def source(self) -> Source | None:
        """Return the first daemon that has agreed to the plan."""
        return next((source for source in self._pool.sources if source.is_agreed), None)

    def about(self) -> AskTree:
        """Return the question for the next part."""
        self.is_asked = True
        return self._collector.ask()

    def hear(self, source: Source, told: Told) -> None:
        """Take a part; begin anew if the folder has another tree than that of the parts before.

        Raises:
            EmlioError: the daemon shows no tree.
        """
        self.is_asked = False
        if isinstance(told, TreePart):
            self.tree = self._collector.take(told)
            self.done = self.tree is not None
            return
        assert isinstance(told, Absent)  # as the session has checked
        if told.code != OTHER_TREE:
            raise _refusal(source, told)
        self._collector = TreeCollector()

    def lost(self) -> None:
        """Note that the daemon was lost; the one that is asked next goes on if it has the same tree."""
        self.is_asked = False


class RangesQuestion(OpenQuestion):
    """For ranges of files of one tree, by the first daemon that has it.

    A range that no daemon can read fails, and the others are read all the same.
    """

    kind = AskRanges

    def __init__(self, pool: DaemonPool, tree: bytes, ranges: npt.NDArray[np.void]) -> None:
        """Prepare the question.

        Args:
            pool: the daemons.
            tree: the tree's digest.
            ranges: (n,) of RANGE, at most RANGES_PER_REQUEST; without any nothing is asked.
        """
        self._pool = pool
        self._tree = tree
        self._left = ranges
        self._place = 0  # of the first of them
        self._count = len(ranges)
        self._others: set[str] = set()  # daemons with another tree
        self._unable: set[str] = set()  # those that cannot read the first range
        self._heard: list[tuple[int, _Ints, Ranges]] = []
        self._failures: dict[int, str] = {}
        self.is_long = int(ranges["length"].sum()) > SHORT_ANSWER_BYTES
        self.done = not len(ranges)

    def source(self) -> Source | None:
        """Return the first daemon that has agreed to the plan and may have the tree."""
        return next(iter(self._sources()), None)

    def about(self) -> AskRanges:
        """Return the question for the first ranges that are left, the last one of which may be cut: as much as fits."""
        ends = np.cumsum(self._left["length"], dtype=np.int64)
        if int(ends[-1]) <= self.message_bytes:
            return AskRanges(tree=self._tree, ranges=self._left.tobytes())
        count = int(np.searchsorted(ends, self.message_bytes)) + 1
        asked = self._left[:count]
        if int(ends[len(asked) - 1]) > self.message_bytes:
            asked = asked.copy()
            asked["length"][-1] -= int(ends[count - 1]) - self.message_bytes
        return AskRanges(tree=self._tree, ranges=asked.tobytes())

    def hear(self, source: Source, told: Told) -> None:
        """Take what was read.

        Raises:
            EmlioError: no daemon has the tree.
        """
        if isinstance(told, Absent):
            self._failed(source, told)
        else:
            assert isinstance(told, Ranges)  # as the session has checked
            self._take(told)
        self.done = not len(self._left)

    def result(self) -> RangesRead:
        """Return what was read, checked. For one thread, once it is done."""
        got = np.zeros(self._count, np.int64)
        for first, sizes, told in self._heard:
            crcs = np.frombuffer(told.crcs, "<u4")
            of_all = joined_checksum(crcs, sizes)
            if of_all is not None and of_all == payload_crc(told.payload):
                bad = np.empty(0, np.int64)  # since all arrived as the daemon read it
            else:
                bad = np.flatnonzero(checksums_of(told.payload, sizes) != crcs)
            for place in (bad + first).tolist():
                self._failures.setdefault(place, _BAD_CHECKSUM)
            got[first : first + len(sizes)] += sizes  # of one that was cut, the rest follows it in the memory
        payloads = [told.payload for _, _, told in self._heard]
        memory = payloads[0] if len(payloads) == 1 else b"".join(payloads)
        return RangesRead(memory, np.cumsum(got) - got, got, self._failures)

    def _take(self, told: Ranges) -> None:
        count = len(told.crcs) // 4
        sizes = self._left["length"][:count].astype(np.int64)
        rest = int(sizes.sum()) - len(told.payload)
        sizes[-1] -= rest
        self._heard.append((self._place, sizes, told))
        if rest:
            self._left = self._left.copy()
            self._left["offset"][count - 1] += sizes[-1]
            self._left["length"][count - 1] = rest
        self._drop(count - 1 if rest else count)

    def _failed(self, source: Source, told: Absent) -> None:
        if told.code not in (NO_TREE, OTHER_TREE):
            self._unable.add(source.peer_name)
            if not self._sources():
                self._failures[self._place] = told.text
                self._drop(1)
            return
        self._others.add(source.peer_name)
        if all(one.peer_name in self._others for one in self._pool.sources):  # one that is away may have it
            raise _refusal(source, told)

    def _drop(self, count: int) -> None:
        if count:
            self._unable.clear()
        self._left = self._left[count:]
        self._place += count

    def _sources(self) -> list[Source]:
        passed_over = self._others | self._unable
        return [source for source in self._pool.sources if source.is_agreed and source.peer_name not in passed_over]


def _refusal(source: Source, told: Absent) -> EmlioError:
    text = f"the daemon at {source.peer}: {told.text}"
    if told.code == OTHER_TREE:
        return DatasetError(f"{text}. Connect again to list the new ones")
    return RefusedError(text, code=told.code) if told.code == NO_TREE else DatasetError(text)
