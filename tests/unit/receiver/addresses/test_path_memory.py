"""What is remembered of the paths to daemons: within the process, in a file, and in spite of whatever lies there."""

import json
import logging
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from emlio.receiver.addresses.address import Peer
from emlio.receiver.addresses.known_path import KnownPath
from emlio.receiver.addresses.path_memory import KnownPaths, cache_file, known_paths
from emlio.wire.limits import MAX_LANES

STORE = Peer(host="store1", port=5555)
OTHER = Peer(host="::1", port=5555)
PATH = KnownPath(lanes=11, offset=1)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "emlio" / "paths.json"


def _written(file: Path, told: Any) -> KnownPaths:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(told if isinstance(told, str) else json.dumps(told), encoding="utf-8")
    return KnownPaths(file)


# ---- values -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("lanes", "offset"), [(1, 1), (MAX_LANES, 65535), (2, -65535), (1, 0)])
def test_a_path_has_lanes_and_an_offset_that_can_be(lanes: int, offset: int) -> None:
    assert KnownPath(lanes=lanes, offset=offset).lanes == lanes


@pytest.mark.parametrize(
    ("lanes", "offset"),
    [(0, 1), (MAX_LANES + 1, 1), (1, 65536), (1, -65536), (True, 1), (1, True), (1.0, 1), ("1", 1), (None, 1)],
)
def test_no_other_path_can_be_made(lanes: Any, offset: Any) -> None:
    with pytest.raises(ValueError, match=f"a path must have 1 to {MAX_LANES} lanes and a port's offset, got"):
        KnownPath(lanes=lanes, offset=offset)


@pytest.mark.parametrize(
    ("environment", "found"),
    [
        ({"HOME": "/home/a"}, "/home/a/.cache/emlio/paths.json"),
        ({"HOME": "/home/a", "XDG_CACHE_HOME": "/scratch"}, "/scratch/emlio/paths.json"),
        ({"HOME": "/home/a", "XDG_CACHE_HOME": ""}, "/home/a/.cache/emlio/paths.json"),
        ({"HOME": "/home/a", "EMLIO_CACHE": "/else"}, "/else/paths.json"),
        ({"HOME": "/home/a", "EMLIO_CACHE": "here"}, "here/paths.json"),
        ({"HOME": "/home/a", "EMLIO_CACHE": ""}, None),
        ({"XDG_CACHE_HOME": "relative"}, None),
        ({"HOME": ""}, None),
        ({}, None),
    ],
)
def test_the_file_lies_in_the_users_cache_unless_told_otherwise(environment: dict[str, str], found: str | None) -> None:
    assert cache_file(environment) == (None if found is None else Path(found))


# ---- remembering --------------------------------------------------------------------------------------------------


def test_what_is_learnt_is_known_at_once_and_by_the_next_process(file: Path) -> None:
    paths = KnownPaths(file)
    assert paths.find(STORE) is None
    paths.learn(STORE, PATH)
    paths.learn(OTHER, KnownPath(lanes=1, offset=-7))
    for knows in (paths, KnownPaths(file)):
        assert knows.find(STORE) == PATH
        assert knows.find(OTHER) == KnownPath(lanes=1, offset=-7)
        assert knows.find(Peer(host="store1", port=5556)) is None
    paths.learn(STORE, KnownPath(lanes=3, offset=1))
    assert KnownPaths(file).find(STORE) == KnownPath(lanes=3, offset=1)


def test_only_its_owner_may_read_it_and_nothing_else_is_left_beside_it(file: Path) -> None:
    KnownPaths(file).learn(STORE, PATH)
    assert file.stat().st_mode & 0o077 == 0
    assert file.parent.stat().st_mode & 0o077 == 0
    assert list(file.parent.iterdir()) == [file]


def test_what_is_known_already_is_not_written_again(file: Path) -> None:
    paths = KnownPaths(file)
    paths.learn(STORE, PATH)
    file.unlink()
    paths.learn(STORE, PATH)
    assert not file.exists()


def test_without_a_file_only_this_process_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    paths = KnownPaths(None)
    paths.learn(STORE, PATH)
    assert paths.find(STORE) == PATH
    assert not list(tmp_path.iterdir())


def test_all_loaders_of_a_process_share_what_is_known(file: Path) -> None:
    assert known_paths(file) is known_paths(Path(str(file)))
    assert known_paths(file) is not known_paths(None)


def test_the_256_that_were_learnt_last_are_kept(file: Path) -> None:
    paths = KnownPaths(file)
    peers = [Peer(host="store1", port=1 + number) for number in range(300)]
    for peer in peers:
        paths.learn(peer, PATH)
    KnownPaths(file).learn(peers[44], KnownPath(lanes=2, offset=1))
    KnownPaths(file).learn(STORE, PATH)
    later = KnownPaths(file)
    known = [number for number, peer in enumerate(peers) if later.find(peer) is not None]
    assert known == [44, *range(46, 300)], "one that was learnt again counts as new"
    assert later.find(STORE) == PATH


# ---- what others did to the file ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "told",
    [
        "",
        "{",
        "[]",
        "[1]",
        "3",
        "null",
        '"text"',
        "\x00",
        "[" * 5000,
        "9" * 5000,
        {"store1:5555": None},
        {"store1:5555": [11, 1]},
        {"store1:5555": "11"},
        {"store1:5555": {}},
        {"store1:5555": {"lanes": 11}},
        {"store1:5555": {"lanes": "11", "offset": 1}},
        {"store1:5555": {"lanes": 11.0, "offset": 1}},
        {"store1:5555": {"lanes": True, "offset": 1}},
        {"store1:5555": {"lanes": 65, "offset": 1}},
        {"store1:5555": {"lanes": 11, "offset": 1 << 70}},
    ],
)
def test_a_file_that_says_something_else_is_as_if_there_were_none_and_is_replaced(file: Path, told: Any) -> None:
    paths = _written(file, told)
    assert paths.find(STORE) is None
    paths.learn(OTHER, PATH)
    assert KnownPaths(file).find(OTHER) == PATH
    assert KnownPaths(file).find(STORE) is None


def test_bytes_that_are_no_text_are_as_if_there_were_none(file: Path) -> None:
    file.parent.mkdir(parents=True)
    file.write_bytes(b'{"store1:5555": "\xff\xfe"}')
    assert KnownPaths(file).find(STORE) is None


def test_what_is_right_beside_what_is_wrong_is_believed(file: Path) -> None:
    right = {"lanes": 11, "offset": 1, "of a later release": 3}
    paths = _written(file, {"a:1": {}, "b:1": None, "c:1": {"lanes": 0, "offset": 0}, "store1:5555": right})
    assert paths.find(STORE) == PATH


def test_a_file_that_is_far_too_large_is_not_read(file: Path) -> None:
    many = {f"store{number}:5555": {"lanes": 11, "offset": 1} for number in range(5000)}
    assert _written(file, many).find(STORE) is None


def test_a_folder_that_cannot_be_made_or_a_folder_in_the_files_place_costs_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "taken").write_text("a file", encoding="utf-8")
    (tmp_path / "paths.json").mkdir()
    with caplog.at_level(logging.DEBUG, "emlio.receiver"):
        for file in (tmp_path / "taken" / "emlio" / "paths.json", tmp_path / "paths.json"):
            paths = KnownPaths(file)
            paths.learn(STORE, PATH)
            assert paths.find(STORE) == PATH
    assert {record.levelno for record in caplog.records} == {logging.DEBUG}
    assert sum("paths cannot be remembered" in text for text in caplog.messages) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["paths.json", "taken"], "nothing half-written is left"


def test_of_two_processes_each_keeps_what_the_other_learnt_later(file: Path) -> None:
    one, other = KnownPaths(file), KnownPaths(file)
    one.learn(STORE, KnownPath(lanes=1, offset=1))
    assert other.find(STORE) == KnownPath(lanes=1, offset=1)
    other.learn(STORE, KnownPath(lanes=2, offset=1))
    one.learn(OTHER, PATH)
    after = KnownPaths(file)
    assert after.find(STORE) == KnownPath(lanes=2, offset=1), "the last word of each path counts"
    assert after.find(OTHER) == PATH


def test_processes_that_learn_at_once_leave_a_whole_file(file: Path) -> None:
    def learn(host: str) -> None:
        paths = KnownPaths(file)
        for turn in range(60):
            paths.learn(Peer(host=host, port=1 + turn), PATH)

    threads = [Thread(target=learn, args=(f"store{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        if file.exists():
            assert all(path == {"lanes": 11, "offset": 1} for path in json.loads(file.read_text()).values())
    for thread in threads:
        thread.join()
    assert list(file.parent.iterdir()) == [file]
    after = KnownPaths(file)
    assert any(after.find(Peer(host=f"store{number}", port=60)) for number in range(4)), "somebody's was the last"
