"""`Files` with a daemon: the tree is what os.walk finds, ranges are byte-exact, changes are errors, daemons come back."""

import errno
import os
import pickle
import random
import signal
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest

from emlio import EmlioDataset
from emlio.daemon.config import DaemonConfig, DatasetSource, Endpoint
from emlio.daemon.service import Daemon
from emlio.errors import ClosedError, ConfigError, DatasetError, FileError, PeerLostError, RefusedError
from emlio.files import Files
from emlio.keys.folder import KeyFolder
from emlio.receiver.addresses.security import Security
from emlio.receiver.setup.recovery import Recovery
from emlio.receiver.threads.promise import Promise
from emlio_testing.datasets import make_dataset
from emlio_testing.ports import free_ports

_BIG = 2_500_000


def _make(folder: Path) -> None:
    """Make a folder of files, with all that may lie beside them."""
    for name in ("a", "b/deep", "empty", ".git"):
        (folder / name).mkdir(parents=True)
    for number in range(60):
        (folder / "ab"[number % 2] / f"{number:03}.bin").write_bytes(os.urandom(900 + number))
    (folder / "b" / "deep" / "large.bin").write_bytes(os.urandom(_BIG))
    (folder / "labels.csv").write_bytes(b"1,cat\n")
    (folder / ".git" / "config").write_bytes(b"hidden")
    (folder / "a" / "none.bin").touch()
    (folder / "a" / "odd\nname Ä").write_bytes(b"odd")
    os.close(os.open(os.fsencode(folder) + b"/a/\xff.bin", os.O_CREAT | os.O_WRONLY))
    (folder / "link").symlink_to("b/deep/large.bin")
    (folder / "b" / "up").symlink_to("../a")
    (folder / ".absolute").symlink_to("/etc/passwd")


def _source(folder: Path, **options: str) -> DatasetSource:
    return DatasetSource(name="x", directory=folder, options={"format": "files", **options})


@contextmanager
def _daemon(*data: DatasetSource, port: int = 0, records_only: bool = False) -> Generator[Daemon]:
    bind = Endpoint(host="127.0.0.1", port=port)
    with Daemon(DaemonConfig(data=data, bind=bind, records_only=records_only)) as daemon:
        yield daemon


def _port() -> int:
    """Return a port that no client's own connection gets while no daemon is there."""
    return free_ports(2, "127.0.0.1").start


def _address(daemon: Daemon, dataset: str = "x") -> str:
    return f"{daemon.endpoint.replace('tcp', 'emlio')}/{dataset}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    _make(tmp_path / "x")
    return tmp_path / "x"


@pytest.fixture
def files(folder: Path) -> Generator[Files]:
    with _daemon(_source(folder)) as daemon, Files(_address(daemon)) as found:
        yield found


def _regular(folder: Path) -> list[str]:
    return [
        os.path.relpath(os.path.join(path, name), folder)
        for path, _, names in os.walk(folder)
        for name in names
        if not os.path.islink(os.path.join(path, name))
    ]


def test_the_tree_is_what_os_walk_finds_but_for_links_out(folder: Path, files: Files) -> None:
    found = {path: sorted([*folders, *others]) for path, folders, others in files.tree.walk()}
    wanted = {path.removeprefix(str(folder)).strip("/"): sorted(os.listdir(path)) for path, _, _ in os.walk(folder)}
    wanted[""].remove(".absolute")
    assert found == wanted
    assert files.tree.stat("labels.csv").mtime_ns == (folder / "labels.csv").stat().st_mtime_ns
    assert repr(files).endswith("entries>")


def test_every_byte_is_the_files_in_any_order(folder: Path, files: Files) -> None:
    chances = random.Random(7)
    wanted: list[tuple[str, int, int]] = []
    for name in _regular(folder):
        size = (folder / name).stat().st_size
        wanted += [(name, chances.randrange(size + 2), chances.randrange(size + 2)) for _ in range(20)]
    chances.shuffle(wanted)
    for (name, offset, length), found in zip(wanted, files.read_many(wanted), strict=True):
        assert found == (folder / name).read_bytes()[offset : offset + length], (name, offset, length)


def test_entries_are_read_by_their_numbers(folder: Path, files: Files) -> None:
    number, top = files.tree.lookup("labels.csv"), files.tree.lookup("")
    wanted = (folder / "labels.csv").read_bytes()
    found, refused = files.read_each([(number, 1, 1 << 40), (top, 0, 1)])
    assert found == wanted[1:]
    assert isinstance(refused, FileError)
    assert refused.errno == errno.EISDIR


def test_whole_files_are_read_through_links_and_longer_than_an_answer(folder: Path, files: Files) -> None:
    assert files.read("link") == (folder / "b" / "deep" / "large.bin").read_bytes()
    assert files.read("b/up/000.bin", 5) == (folder / "a" / "000.bin").read_bytes()[5:]
    assert files.read("a/none.bin") == b""
    assert files.read(b"a/\xff.bin", 3, 5) == b""


@pytest.mark.parametrize(
    ("path", "number"),
    [("nope", errno.ENOENT), ("a", errno.EISDIR), ("labels.csv/x", errno.ENOTDIR), ("../x/labels.csv", errno.ENOENT)],
)
def test_what_is_no_file_is_the_systems_error(files: Files, path: str, number: int) -> None:
    with pytest.raises(FileError) as caught:
        files.read(path)
    assert caught.value.errno == number
    with pytest.raises(ConfigError, match="at least 0"):
        files.read("labels.csv", -1)


def test_files_that_change_are_errors_and_the_others_are_read(folder: Path, files: Files) -> None:
    assert len(files.tree)
    names = [f"a/{number:03}.bin" for number in range(0, 20, 2)]
    (folder / names[1]).write_bytes(b"x" * 902)
    os.truncate(folder / names[3], 5)
    (folder / names[5]).unlink()
    other = folder / "other"
    other.write_bytes((folder / names[7]).read_bytes())
    other.replace(folder / names[7])
    found = list(files.read_each(names))
    assert [isinstance(one, FileError) for one in found] == [number in (1, 3, 5, 7) for number in range(10)]
    for name, one in zip(names, found, strict=True):
        if isinstance(one, FileError):
            assert (one.errno, one.filename) == (errno.EIO, name)
        else:
            assert one == (folder / name).read_bytes()


def test_many_threads_read_at_once(folder: Path, files: Files) -> None:
    names, wrong = _regular(folder), list[str]()

    def read(seed: int) -> None:
        mine = random.Random(seed).sample(names, len(names))
        wrong.extend(name for name in mine[:20] if files.read(name) != (folder / name).read_bytes())
        wrong.extend(
            name
            for name, found in zip(mine, files.read_many(mine), strict=True)
            if found != (folder / name).read_bytes()
        )

    threads = [Thread(target=read, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_reads_go_on_with_a_daemon_that_is_back(folder: Path) -> None:
    port = _port()
    with _daemon(_source(folder), port=port) as daemon:
        files = Files(_address(daemon), recovery=Recovery(timeout="20s", heartbeat="500ms"))
        assert files.read("labels.csv") == b"1,cat\n"
    with files:
        late = Thread(target=lambda: found.append(files.read("link")))
        found: list[bytes] = []
        late.start()
        with _daemon(_source(folder), port=port):
            late.join()
            assert found == [(folder / "b" / "deep" / "large.bin").read_bytes()]


def test_a_daemon_that_stays_away_is_an_error_after_the_timeout(folder: Path) -> None:
    with _daemon(_source(folder)) as daemon:
        files = Files(_address(daemon), recovery=Recovery(timeout="1s", heartbeat="300ms"))
        assert files.read("labels.csv") == b"1,cat\n"
    with files, pytest.raises(PeerLostError):
        files.read("labels.csv")


def test_a_folder_that_changed_while_the_daemon_was_away_is_an_error(folder: Path) -> None:
    port = _port()
    with _daemon(_source(folder), port=port) as daemon:
        files = Files(_address(daemon), recovery=Recovery(timeout="20s", heartbeat="500ms"))
        assert files.read("labels.csv") == b"1,cat\n"
    (folder / "labels.csv").write_bytes(b"2,dog\n")
    with files, _daemon(_source(folder), port=port), pytest.raises(DatasetError, match="changed since"):
        files.read("a/000.bin")


def test_a_replica_with_the_same_tree_takes_over(folder: Path) -> None:
    with _daemon(_source(folder)) as second:
        with _daemon(_source(folder)) as first:
            address = f"emlio://{first.endpoint[6:]},{second.endpoint[6:]}/x"
            files = Files(address, recovery=Recovery(timeout="20s", heartbeat="500ms"))
            assert files.read("labels.csv") == b"1,cat\n"
        with files:
            assert files.read("a/000.bin") == (folder / "a" / "000.bin").read_bytes()


def test_a_dataset_of_another_format_shows_its_files_too(tmp_path: Path) -> None:
    make_dataset(tmp_path / "x", records=10, shards=2)
    (tmp_path / "x" / "README").write_bytes(b"about")
    with _daemon(DatasetSource(name="x", directory=tmp_path / "x")) as daemon, Files(_address(daemon)) as files:
        assert files.tree.listdir() == sorted(os.listdir(tmp_path / "x"))
        assert files.read("README") == b"about"


def test_a_choice_of_files_shows_none(folder: Path) -> None:
    with (
        _daemon(_source(folder, files="a/*")) as daemon,
        Files(_address(daemon)) as files,
        pytest.raises(RefusedError, match="a choice of the files") as caught,
    ):
        assert files.tree
    assert caught.value.code == "no-tree"


def test_a_daemon_for_records_alone_shows_no_other_file(folder: Path) -> None:
    with _daemon(_source(folder), records_only=True) as daemon:
        with Files(_address(daemon)) as files, pytest.raises(RefusedError, match="--records-only") as caught:
            assert files.tree
        with EmlioDataset(_address(daemon)) as dataset:
            assert dataset[0]
    assert caught.value.code == "no-tree"


def test_files_are_for_those_whose_key_may_have_the_dataset(tmp_path: Path) -> None:
    store, gpu = (KeyFolder(tmp_path / name) for name in ("store", "gpu"))
    for keys in (store, gpu):
        keys.make(keys.path.name)
    store.allow("gpu", gpu.pair().public, ("open",))
    for name in ("open", "closed"):
        make_dataset(tmp_path / name, records=6, shards=2)
    data = tuple(DatasetSource(name=name, directory=tmp_path / name) for name in ("open", "closed"))
    config = DaemonConfig(data=data, bind=Endpoint(host="127.0.0.1", port=0), keys=store.path)
    security = Security(keys=str(gpu.path), daemon_key=str(store.pair().public))
    with Daemon(config) as daemon:
        with Files(_address(daemon, "open"), security=security) as files:
            assert files.tree.listdir() == sorted(os.listdir(tmp_path / "open"))
        with Files(_address(daemon, "closed"), security=security) as files, pytest.raises(RefusedError):
            assert files.tree


def test_a_copy_in_another_process_connects_by_itself(folder: Path, files: Files) -> None:
    assert len(files.tree)
    with pickle.loads(pickle.dumps(files)) as copied:
        assert copied.read("labels.csv") == b"1,cat\n"
    assert files.read("labels.csv") == b"1,cat\n"
    files.close()
    with pytest.raises(ClosedError, match="the files are closed"):
        files.read("labels.csv")
    assert repr(files).endswith("closed>")


def test_a_directory_of_this_host_needs_no_daemon(folder: Path) -> None:
    with pytest.raises(ConfigError, match="reads from a daemon"):
        Files(folder)


def test_a_hundred_thousand_entries_are_listed_in_parts(tmp_path: Path) -> None:
    folder = tmp_path / "x"
    for number in range(100):
        (folder / f"{number:03}").mkdir(parents=True)
    first = folder / "000" / "00000"
    first.write_bytes(b"data")
    for number in range(1, 100_000):  # one inode: a tenth of the time
        target = folder / f"{number % 100:03}" / f"{number:05}"
        if number % 50_000 == 1:
            first = target
            first.write_bytes(b"data")
        else:
            os.link(first, target)
    with _daemon(_source(folder)) as daemon, Files(_address(daemon)) as files:
        assert len(files.tree) == 100_101
        assert files.tree.listdir("077") == sorted(os.listdir(folder / "077"))
        assert files.read("077/00077") == b"data"


def test_many_paths_are_looked_up_as_each_of_them(folder: Path) -> None:
    with _daemon(_source(folder)) as daemon, Files(_address(daemon)) as files:
        tree = files.tree
        known = [tree.path(number) for number in range(len(tree))]
        odd = [
            b"link",
            b"b/up/000.bin",
            b"a/../a/000.bin",
            b"a//000.bin",
            b"/a/000.bin",
            b"a/",
            b"no",
            b"a/no",
            b"",
            b".",
        ]
        paths = [*known, *(path + b"x" for path in known), *(path[:-1] for path in known), *odd, *reversed(known)]
        found = tree.lookup_all(paths)
        for path, number in zip(paths, found.tolist(), strict=True):
            try:
                assert number == tree.lookup(path), path
            except FileError:
                assert number == -1, path


def test_what_a_handler_raises_is_not_taken_for_a_lost_daemon(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    def handle(*_: object) -> None:
        raise TimeoutError("the program's own")

    assert len(files.tree)
    monkeypatch.setattr(Promise, "result", lambda *_: signal.raise_signal(signal.SIGUSR1))
    before = signal.signal(signal.SIGUSR1, handle)
    try:
        with pytest.raises(TimeoutError, match="the program's own"):
            list(files.read_each(["labels.csv"]))
    finally:
        signal.signal(signal.SIGUSR1, before)
    monkeypatch.undo()
    assert files.read("labels.csv") == b"1,cat\n"
