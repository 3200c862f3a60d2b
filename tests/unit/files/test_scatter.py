"""Reads here and there: in which folder they are, and when that is pushed."""

import os
from collections.abc import Iterable
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from emlio.files.mount.scatter import ScatterDetector
from emlio.store.tree import Tree
from emlio_testing.mounted_trees import Link, MountedTree

_FOLDERS = ("", "a/", "a/b/", "a/b/c/", "d/", "d/e/", "f/")
_PATHS = st.sets(st.builds("{}{}".format, st.sampled_from(_FOLDERS), st.sampled_from("xyz")), min_size=8)
MANY = 1 << 40


def _tree(sizes: dict[str, int]) -> Tree:
    return MountedTree({os.fsencode(path): bytes(size) for path, size in sizes.items()}).tree


def _found(detector: ScatterDetector, tree: Tree, paths: Iterable[str], room_bytes: int = MANY) -> list[str] | None:
    """Return the files that are found by the last of these reads; none by those before."""
    found = None
    for path in paths:
        assert found is None
        found = detector.read(tree.lookup(path), room_bytes)
    return None if found is None else [os.fsdecode(tree.path(number)) for number in found.tolist()]


@given(_PATHS, st.randoms(use_true_random=False))
def test_the_smallest_folder_of_eight_reads_is_found_with_all_files_below(paths: set[str], random: Random) -> None:
    tree = _tree(dict.fromkeys(paths, 1))
    chosen = random.sample(sorted(paths), 8)
    common = os.path.commonpath([f"/{os.path.dirname(path)}" for path in chosen]).strip("/")
    found = _found(ScatterDetector(tree), tree, chosen)
    assert found is not None
    assert sorted(found) == sorted(path for path in paths if path.startswith(f"{common}/" if common else ""))


@given(_PATHS)
def test_a_tree_tells_what_is_below_each_folder(paths: set[str]) -> None:
    tree = _tree(dict.fromkeys(paths, 1))
    folders = {os.path.dirname(path) for path in paths}
    for folder in folders:
        found = [os.fsdecode(tree.path(number)) for part in tree.below(tree.lookup(folder)) for number in part]
        files = [path for path in found if path in paths]
        assert sorted(files) == sorted(path for path in paths if path.startswith(f"{folder}/" if folder else ""))
        assert len(found) == len(set(found))


def test_a_folder_without_room_is_not_found_and_one_in_it_is() -> None:
    tree = _tree({f"{folder}/{number}": 5000 for folder in "ab" for number in range(16)})
    detector, room = ScatterDetector(tree), 16 * 8192
    assert _found(detector, tree, [f"{folder}/{number}" for number in range(8) for folder in "ab"], room) is None
    assert _found(detector, tree, [f"b/{number}" for number in range(8, 14)], room) is None
    found = _found(detector, tree, ["b/14"], room)
    assert found is not None
    assert len(found) == 16
    assert _found(detector, tree, [f"b/{number}" for number in range(8)], room - 1) is None


def test_a_file_that_is_read_again_and_again_is_one_read() -> None:
    tree = _tree({str(number): 9 for number in range(9)})
    detector = ScatterDetector(tree)
    assert _found(detector, tree, ["0", "1"] * 20) is None
    assert _found(detector, tree, [*"2345", "6"]) is None
    assert _found(detector, tree, ["7"]) is not None
    assert _found(detector, tree, [*"0123456"]) is None
    detector.forget()
    assert _found(detector, tree, ["7"]) is None


def test_empty_files_and_links_are_not_pushed() -> None:
    tree = MountedTree({b"%d" % number: b"x" * (number % 2) for number in range(20)} | {b"link": Link(b"1")}).tree
    found = _found(ScatterDetector(tree), tree, [str(number) for number in range(1, 17, 2)])
    assert found is not None
    assert sorted(map(int, found)) == list(range(1, 20, 2))
