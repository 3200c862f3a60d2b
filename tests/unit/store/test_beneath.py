"""Ways below a folder: the kernel's and the walked one come to the same, wherever links lead."""

import errno
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from emlio.store.beneath import open_beneath, open_by_kernel, open_by_walking

_Way = Callable[[int, str, int], int]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with files, links of all kinds, and something outside that nobody may reach."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("secret")
    inside = tmp_path / "inside"
    (inside / "v1" / "deep").mkdir(parents=True)
    (inside / "file").write_text("file")
    (inside / "v1" / "one").write_text("one")
    for name, target in {
        "link": "file",
        "links": "link",
        "dots": "./v1/../file",
        "down": "v1/one",
        "current": "v1",
        "by-folder": "current/one",
        "there-and-back": "current/deep/../one",
        "v1/up": "../file",
        "gone": "nothing",
        "above": "../outside/secret",
        "above-and-back": "../inside/file",
        "v1/far-above": "../../outside/secret",
        "by-link-above": "v1/far-above",
        "absolute": str(tmp_path / "outside" / "secret"),
        "absolute-inside": str(inside / "file"),
        "folder-outside": "../outside",
        "loop": "loop",
        "into-a-file": "file/one",
        "process": "/proc/self/root",
    }.items():
        (inside / name).symlink_to(target)
    return inside


@pytest.fixture
def folder(place: Path) -> Iterator[int]:
    descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    yield descriptor
    os.close(descriptor)


@pytest.fixture(params=["kernel", "walking", "either"])
def way(request: pytest.FixtureRequest, folder: int) -> _Way:
    ways: dict[str, _Way] = {"kernel": open_by_kernel, "walking": open_by_walking, "either": open_beneath}
    if request.param == "kernel":
        try:
            os.close(open_by_kernel(folder, ".", os.O_RDONLY))
        except OSError as error:
            if error.errno not in (errno.ENOSYS, errno.EPERM):
                raise
            pytest.skip("this kernel has no openat2, or a filter forbids it")
    return ways[request.param]


def _read(way: _Way, folder: int, name: str) -> str:
    descriptor = way(folder, name, os.O_RDONLY)
    with os.fdopen(descriptor) as file:
        assert not os.get_inheritable(descriptor)
        return file.read()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("file", "file"),
        ("link", "file"),
        ("links", "file"),
        ("dots", "file"),
        ("down", "one"),
        ("v1/one", "one"),
        ("v1/../file", "file"),
        ("by-folder", "one"),
        ("current/one", "one"),
        ("current/up", "file"),
        ("there-and-back", "one"),
    ],
)
def test_links_that_stay_below_are_followed(way: _Way, folder: int, name: str, content: str) -> None:
    assert _read(way, folder, name) == content


@pytest.mark.parametrize(
    "name",
    [
        "above",
        "above-and-back",
        "by-link-above",
        "v1/far-above",
        "absolute",
        "absolute-inside",
        "process",
        "folder-outside/secret",
        "folder-outside",
        "..",
        "../inside/file",
        "v1/../../inside/file",
        "/etc/passwd",
        "/",
    ],
)
@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_PATH, os.O_RDONLY | os.O_DIRECTORY])
def test_whatever_leads_out_is_refused_even_if_it_comes_back(way: _Way, folder: int, name: str, flags: int) -> None:
    with pytest.raises(OSError, match=r"cross-device") as raised:
        os.close(way(folder, name, flags))
    assert raised.value.errno == errno.EXDEV


@pytest.mark.parametrize(
    ("name", "flags", "number"),
    [
        ("nothing", os.O_RDONLY, errno.ENOENT),
        ("gone", os.O_RDONLY, errno.ENOENT),
        ("", os.O_RDONLY, errno.ENOENT),
        ("loop", os.O_RDONLY, errno.ELOOP),
        ("into-a-file", os.O_RDONLY, errno.ENOTDIR),
        ("file/", os.O_RDONLY, errno.ENOTDIR),
        ("file", os.O_RDONLY | os.O_DIRECTORY, errno.ENOTDIR),
        ("file\0.tfrecord", os.O_RDONLY, errno.EINVAL),
        ("a" * 300, os.O_RDONLY, errno.ENAMETOOLONG),
    ],
)
def test_what_cannot_be_opened_fails_as_open_does(way: _Way, folder: int, name: str, flags: int, number: int) -> None:
    with pytest.raises(OSError, match=r"\[Errno") as raised:
        os.close(way(folder, name, flags))
    assert raised.value.errno == number


@pytest.mark.parametrize(
    ("name", "kind"), [("by-folder", stat.S_ISREG), ("current", stat.S_ISDIR), (".", stat.S_ISDIR)]
)
def test_a_handle_without_reading_tells_what_is_there(
    way: _Way, folder: int, name: str, kind: Callable[[int], bool]
) -> None:
    descriptor = way(folder, name, os.O_PATH)
    try:
        assert kind(os.fstat(descriptor).st_mode)
    finally:
        os.close(descriptor)


_TURN = """
import os, sys
os.chdir(sys.argv[1])
print("turning", flush=True)
while True:
    for target in ("v1/one", "../outside/secret"):
        os.symlink(target, ".new")
        os.rename(".new", "turning")
"""


def test_no_exchange_of_links_meanwhile_leads_out(way: _Way, folder: int, place: Path) -> None:
    """One who may write to the folder turns a link to and fro while it is opened: inside or not at all.

    It is another process, on another core: threads of this one take turns too seldom. Who looks at the link and then opens its
    name gets the secret some times in these tries.
    """
    (place / "turning").symlink_to("v1/one")
    seen = {_read(way, folder, "turning")}
    refused = 0
    with subprocess.Popen([sys.executable, "-c", _TURN, place], stdout=subprocess.PIPE) as turning:
        try:
            assert turning.stdout is not None
            turning.stdout.readline()
            for _ in range(20_000):
                try:
                    seen.add(_read(way, folder, "turning"))
                except OSError as error:
                    refused += error.errno == errno.EXDEV
        finally:
            turning.kill()
    assert seen == {"one"}
    assert refused, "the link never led out while it was looked at: nothing was tried"


def test_a_folder_that_was_renamed_is_still_that_folder(way: _Way, folder: int, place: Path) -> None:
    place.rename(place.with_name("elsewhere"))
    (place.with_name("outside")).rename(place)
    assert _read(way, folder, "by-folder") == "one"
    with pytest.raises(FileNotFoundError):
        way(folder, "secret", os.O_RDONLY)
