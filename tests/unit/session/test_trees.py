"""A tree on its way: parts of a bounded size that make the same tree, and parts that do not fit."""

import zlib

import numpy as np
import pytest
from msgspec.structs import replace

from emlio.errors import RemoteProtocolError
from emlio.session.questions import misfit
from emlio.session.trees import TreeCollector, cut_tree
from emlio.store.file_table import NameTable
from emlio.store.tree import Tree
from emlio.wire.limits import CONTENT_PART_BYTES
from emlio.wire.questions import TreePart
from emlio_testing.mounted_trees import Link, MountedTree


def _tree(files: int, links: int = 300) -> Tree:
    """Return a folder with files and links with long targets."""
    modes = np.full(1 + files + links, 0o100444, np.uint16)
    modes[0], modes[-links:] = 0o40555, 0o120777
    sizes = np.arange(len(modes), dtype=np.int64)
    sizes[0], sizes[-links:] = files + links, 4000
    names = NameTable.of(["", *(f"{number:08}" for number in range(files + links))])
    targets = np.frombuffer(np.random.default_rng(1).bytes(4000 * links), np.uint8)
    return Tree(modes=modes, sizes=sizes, mtimes_ns=-sizes, names=names, targets=targets)


def _parts(tree: Tree) -> tuple[list[TreePart], Tree | None]:
    collector, parts, found = TreeCollector(), list[TreePart](), None
    while found is None:
        asked = collector.ask()
        parts.append(cut_tree(tree, asked.first))
        assert misfit(asked, parts[-1]) is None
        found = collector.take(parts[-1])
    return parts, found


def test_all_parts_are_short_and_make_the_same_tree() -> None:
    tree = _tree(100_000)
    parts, found = _parts(tree)
    assert found is not None
    assert found.digest == tree.digest
    assert found.target(len(tree) - 7) == tree.target(len(tree) - 7)
    assert found.entry(70_000) == tree.entry(70_000)
    assert all(CONTENT_PART_BYTES - 5000 < part.size <= CONTENT_PART_BYTES for part in parts[:-1])
    assert sum(part.count for part in parts) == len(tree)


def _damaged(part: TreePart, data: bytes) -> TreePart:
    return replace(part, size=len(data), data=zlib.compress(data))


def test_parts_that_do_not_fit_are_the_daemons_fault() -> None:
    whole = cut_tree(_tree(3, links=2), 0)
    data = zlib.decompress(whole.data)
    for part, words in (
        (_damaged(whole, data[:100]), "got 100 bytes"),
        (_damaged(whole, data[:-1]), "its names and targets"),
        (_damaged(whole, data + b"x"), "its names and targets"),
        (replace(whole, data=b"nonsense"), "compressed"),
        (replace(whole, size=whole.size - 1), "got others"),
        (_damaged(whole, data[:-1] + b"x"), "digest"),
        (_damaged(whole, b"\x24\x81" + data[2:]), "must be a tree"),
    ):
        with pytest.raises(RemoteProtocolError, match=words):
            TreeCollector().take(part)


@pytest.mark.parametrize(("mode", "name", "target"), [(0o120777, b"l", b"t" * 4096), (0o100444, b"n" * 1025, b"")])
def test_names_and_targets_that_no_system_has_take_no_memory(mode: int, name: bytes, target: bytes) -> None:
    """A kilobyte that is received could hold a megabyte of them."""
    columns = (mode.to_bytes(2, "little"), len(target).to_bytes(8, "little"), bytes(8), len(name).to_bytes(2, "little"))
    data = b"".join((*columns, name, target))
    with pytest.raises(RemoteProtocolError, match="at most 1024 bytes and a link 4095"):
        TreeCollector().take(replace(_damaged(cut_tree(_tree(3), 0), data), count=1))


def test_parts_of_another_tree_do_not_continue_one() -> None:
    tree = _tree(100_000)
    collector = TreeCollector()
    collector.take(cut_tree(tree, 0))
    with pytest.raises(RemoteProtocolError, match="in all its parts"):
        collector.take(replace(cut_tree(tree, collector.ask().first), total=len(tree) + 1))


def test_a_link_out_of_the_folder_is_the_daemons_fault() -> None:
    tree = MountedTree({b"a/x": Link(b"../../etc/passwd")}).tree
    with pytest.raises(RemoteProtocolError, match=r"stay below the folder, got b'a/x' to b'../../etc/passwd'"):
        TreeCollector().take(cut_tree(tree, 0))
