"""Asking daemons for files: trees part by part, ranges in few questions, failures of one range, daemons that are lost."""

import numpy as np
import numpy.typing as npt
import pytest

from emlio.checksum import crc32c
from emlio.errors import DatasetError, PeerLostError, RefusedError
from emlio.receiver.engine.file_questions import RangesQuestion, TreeQuestion
from emlio.receiver.threads.promise import Promise
from emlio.session.questions import RANGE
from emlio.session.trees import cut_tree
from emlio.store.file_table import NameTable
from emlio.store.tree import Tree
from emlio.wire.control import decode_control, encode_control
from emlio.wire.limits import MOST_RANGE_QUESTIONS, RECORD_BYTES_PER_REPLY
from emlio.wire.questions import FILE_CHANGED, NO_TREE, OTHER_TREE, Absent, Answer, AskRanges, AskTree, Ranges
from emlio_testing.asked_daemons import AskedDaemons

_DIGEST = bytes(range(16))
_CHANGED = Absent(code=FILE_CHANGED, text="it was replaced")
_OTHER = Absent(code=OTHER_TREE, text="the folder has changed")


def _array(*ranges: tuple[int, int, int]) -> npt.NDArray[np.void]:
    return np.array([(file, length, offset) for file, offset, length in ranges], RANGE)


def _told(*parts: bytes) -> Ranges:
    return Ranges(
        crcs=b"".join(crc32c(part).to_bytes(4, "little") for part in parts), payload=memoryview(b"".join(parts))
    )


def _results(question: RangesQuestion) -> list[bytes | str]:
    """Return the bytes of each range, or why there are none."""
    read = question.result()
    bounds = zip(read.starts.tolist(), read.sizes.tolist(), strict=True)
    return [read.failures.get(place, bytes(read.memory[at : at + size])) for place, (at, size) in enumerate(bounds)]


class _Pool(AskedDaemons):
    def ranges(self, *ranges: tuple[int, int, int]) -> tuple[RangesQuestion, Promise]:
        question = RangesQuestion(self.pool, _DIGEST, _array(*ranges))
        return question, self.ask([question])

    def left(self) -> list[tuple[int, int, int]]:
        """Return the ranges of the last question."""
        about = self.sent[-1][1].about
        assert isinstance(about, AskRanges)
        asked = np.frombuffer(about.ranges, RANGE)
        return [(int(one["file"]), int(one["offset"]), int(one["length"])) for one in asked]


def _tree(files: int, mtime_ns: int = 0) -> Tree:
    modes, sizes = np.full(files + 1, 0o100444, np.uint16), np.zeros(files + 1, np.int64)
    modes[0], sizes[0] = 0o40555, files
    names = NameTable.of(["", *(f"{number:06}" for number in range(files))])
    return Tree(
        modes=modes, sizes=sizes, mtimes_ns=np.full(files + 1, mtime_ns), names=names, targets=np.zeros(0, np.uint8)
    )


def test_ranges_come_in_one_answer() -> None:
    pool = _Pool()
    question, answer = pool.ranges((1, 0, 3), (9, 1 << 40, 2))
    assert pool.left() == [(1, 0, 3), (9, 1 << 40, 2)]
    pool.answer(_told(b"abc", b"de"))
    answer.result(0)
    assert _results(question) == [b"abc", b"de"]


def test_a_long_range_is_asked_for_in_parts_that_fit_the_path() -> None:
    pool = _Pool()
    files = {1: b"abc", 2: bytes(7) + bytes(range(256)) * (RECORD_BYTES_PER_REPLY // 128), 3: b"z"}
    question, answer = pool.ranges((1, 0, 3), (2, 7, 2 * RECORD_BYTES_PER_REPLY), (3, 0, 1))
    while not answer.done():
        asked = pool.left()
        assert sum(length for _, _, length in asked) <= RECORD_BYTES_PER_REPLY
        pool.clock.advance(1_000_000_000)
        pool.answer(_told(*(files[file][offset : offset + length] for file, offset, length in asked)))
    assert _results(question) == [b"abc", files[2][7:], b"z"]
    assert len(pool.sent) >= 5


def test_short_answers_are_asked_for_before_long_ones_of_which_a_path_takes_only_some() -> None:
    pool = _Pool()
    for file in range(20):
        pool.ranges((file, 0, RECORD_BYTES_PER_REPLY))
    assert [about.ranges[0] for _, about in pool.asked() if isinstance(about, AskRanges)] == [0, 1]
    pool.ranges((99, 0, 1024))
    assert pool.left() == [(99, 0, 1024)]
    pool.clock.advance(1_000_000_000)
    pool.answer_next(_told(bytes(RECORD_BYTES_PER_REPLY // 2)))
    assert len({about.ranges[0] for _, about in pool.asked() if isinstance(about, AskRanges)}) < 20


def test_a_range_that_cannot_be_read_fails_alone() -> None:
    pool = _Pool()
    question, answer = pool.ranges((1, 0, 1), (2, 0, 1), (3, 0, 1))
    pool.answer(_told(b"a"))
    pool.answer(_CHANGED)
    assert pool.left() == [(3, 0, 1)]
    pool.answer(_told(b"c"))
    answer.result(0)
    assert [type(one) for one in _results(question)] == [bytes, str, bytes]
    assert _results(question)[1] == "it was replaced"


def test_bytes_that_do_not_match_their_checksum_are_not_handed_out() -> None:
    pool = _Pool()
    question, answer = pool.ranges((1, 0, 1), (2, 0, 1))
    pool.answer(Ranges(crcs=_told(b"a", b"b").crcs, payload=memoryview(b"ax")))
    answer.result(0)
    assert _results(question) == [b"a", "its bytes did not arrive as the daemon read them"]


@pytest.mark.parametrize("wrong", [None, 0, 1])
def test_long_ranges_are_checked_against_their_own_checksums_in_a_message_that_arrived_well(wrong: int | None) -> None:
    pool, parts = _Pool(), [bytes(range(256)) * 300, b"b" * 50_000]
    question, answer = pool.ranges(*((number, 0, len(part)) for number, part in enumerate(parts, 1)))
    crcs = [crc32c(part) ^ (place == wrong) for place, part in enumerate(parts)]
    told = Ranges(crcs=np.array(crcs, "<u4").tobytes(), payload=memoryview(b"".join(parts)))
    came = decode_control(encode_control(Answer(number=1, told=told)))
    assert isinstance(came, Answer)
    pool.answer(came.told)
    answer.result(0)
    bad = "its bytes did not arrive as the daemon read them"
    assert _results(question) == [bad if place == wrong else part for place, part in enumerate(parts)]


def test_a_daemon_with_the_same_tree_is_asked_where_one_has_another() -> None:
    pool = _Pool(2)
    question, answer = pool.ranges((1, 0, 1))
    assert [number for number, _ in pool.sent] == [0]
    pool.answer(_OTHER)
    assert [number for number, _ in pool.sent] == [0, 1]
    pool.answer(_told(b"a"))
    answer.result(0)
    assert _results(question) == [b"a"]


def test_a_range_that_one_daemon_cannot_read_is_asked_of_another() -> None:
    pool = _Pool(2)
    question, answer = pool.ranges((1, 0, 1), (2, 0, 1))
    pool.answer(_CHANGED)
    pool.answer(_told(b"a"))
    pool.answer(_CHANGED)
    assert [number for number, _ in pool.sent] == [0, 1, 0, 1]
    pool.answer(_CHANGED)
    answer.result(0)
    assert _results(question) == [b"a", "it was replaced"]


def test_where_no_daemon_has_the_tree_that_is_the_error() -> None:
    pool = _Pool(2)
    _, answer = pool.ranges((1, 0, 1))
    pool.answer(_OTHER)
    pool.answer(_OTHER)
    with pytest.raises(DatasetError, match=r"the folder has changed\. Connect again"):
        answer.result(0)


def test_a_daemon_that_is_away_and_may_have_the_tree_is_waited_for() -> None:
    pool = _Pool(2)
    pool.sources.all[0].lost()
    question, answer = pool.ranges((1, 0, 1))
    pool.answer(_OTHER)
    assert not answer.done()
    pool.sources.all[0].come_back()
    pool.asker.tick()
    pool.answer(_told(b"a"))
    answer.result(0)
    assert _results(question) == [b"a"]


def test_what_is_left_is_asked_again_after_a_daemon_was_lost() -> None:
    pool = _Pool()
    question, answer = pool.ranges((1, 0, 1), (2, 0, 1))
    pool.answer(_told(b"a"))
    pool.sources.all[0].lost()
    pool.asker.tick()
    pool.sources.all[0].come_back()
    pool.asker.tick()
    assert pool.left() == [(2, 0, 1)]
    pool.answer(_told(b"b"))
    answer.result(0)
    assert _results(question) == [b"a", b"b"]


def test_many_questions_for_ranges_are_under_way_and_others_beside_them() -> None:
    pool = _Pool()
    answers = [pool.ranges((number, 0, 1))[1] for number in range(MOST_RANGE_QUESTIONS + 9)]
    assert len(pool.sent) == MOST_RANGE_QUESTIONS
    tree = TreeQuestion(pool.pool)
    pool.ask([tree])
    assert pool.sent[-1][1].about == AskTree()
    pool.answer(_told(b"a"), 0)
    assert pool.left() == [(MOST_RANGE_QUESTIONS, 0, 1)]
    assert answers[0].done()
    assert not answers[1].done()


def test_the_end_of_all_daemons_is_the_error_of_those_that_wait() -> None:
    pool = _Pool()
    _, answer = pool.ranges((1, 0, 1))
    pool.asker.end(PeerLostError("gone"))
    with pytest.raises(PeerLostError, match="gone"):
        answer.result(0)


def test_a_tree_comes_part_by_part_and_goes_on_at_a_daemon_that_is_back() -> None:
    pool, tree = _Pool(), _tree(90_000)
    question = TreeQuestion(pool.pool)
    answer = pool.ask([question])
    first = cut_tree(tree, 0)
    pool.answer(first)
    assert question.is_asked
    pool.sources.all[0].lost()
    pool.asker.tick()
    assert not question.is_asked
    pool.sources.all[0].come_back()
    pool.asker.tick()
    assert pool.sent[-1][1].about == AskTree(tree=tree.digest, first=first.count)
    while not answer.done():
        about = pool.sent[-1][1].about
        assert isinstance(about, AskTree)
        pool.answer(cut_tree(tree, about.first))
    assert question.tree is not None
    assert question.tree.digest == tree.digest


def test_a_tree_is_listed_anew_where_it_changed_meanwhile() -> None:
    pool = _Pool()
    question = TreeQuestion(pool.pool)
    answer = pool.ask([question])
    pool.answer(cut_tree(_tree(90_000), 0))
    pool.answer(_OTHER)
    assert pool.sent[-1][1].about == AskTree()
    pool.answer(cut_tree(_tree(3, mtime_ns=5), 0))
    answer.result(0)
    assert question.tree is not None
    assert len(question.tree) == 4


def test_a_daemon_that_shows_no_files_says_why() -> None:
    pool = _Pool()
    answer = pool.ask([TreeQuestion(pool.pool)])
    pool.answer(Absent(code=NO_TREE, text="it lies in a bucket"))
    with pytest.raises(RefusedError, match="it lies in a bucket"):
        answer.result(0)
