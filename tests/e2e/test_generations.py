"""Datasets that come, change and go while a daemon serves, and the jobs that read them meanwhile.

Covers: SIGHUP, descriptions in datasets.d, emlio publish, generations in running and new jobs, a daemon that is started again,
copies that get a generation one after the other, what is left open. Does not cover: the choices alone
(unit/test_daemon_generations, unit/test_receiver_generations).
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from threading import Thread

import psutil
import pytest

from emlio import EmlioLoader
from emlio.cli import main
from emlio.daemon.datasets.descriptions import State, read_state
from emlio.errors import DatasetError, EmlioError, RefusedError
from emlio_testing.datasets import make_dataset, numbered_payload
from emlio_testing.leases import gives_leases, leases_on
from emlio_testing.loader_arguments import loader_arguments
from emlio_testing.ports import free_ports
from emlio_testing.processes import DaemonProcess, settles

BATCH = 10
RECORDS = 3000
SLOW = ("--message-size", "64KiB", "--memory", "4MiB", "--heartbeat-timeout", "500ms")
SOON_S = 10.0


def dataset(folder: Path, first: int, records: int = RECORDS, shards: int = 3, *, mapped: bool = True) -> Path:
    """A dataset whose records are numbered from `first` on."""
    make_dataset(
        folder,
        records=records,
        shards=shards,
        payload=lambda number: numbered_payload(first + number, 2000),
        mapped=mapped,
    )
    return folder


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records 0 to 2,999, which nobody changes."""
    return dataset(tmp_path_factory.mktemp("generations") / "old", 0)


@pytest.fixture(scope="module")
def new(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records 10,000 to 12,999, which nobody changes."""
    return dataset(tmp_path_factory.mktemp("generations") / "new", 10_000)


OLD, NEW = range(RECORDS), range(10_000, 10_000 + RECORDS)


class Site:
    """A daemon with a configuration file and a folder of descriptions beside it."""

    def __init__(self, folder: Path, port: int = 0) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.config = folder / "daemon.toml"
        self.descriptions = folder / "datasets.d"
        self.descriptions.mkdir(exist_ok=True)
        self._bind = f"tcp://127.0.0.1:{port}"

    def configure(self, **datasets: Path) -> None:
        lines = [f'"{name}" = "{directory}"' for name, directory in datasets.items()]
        self.config.write_text("\n".join(["[datasets]", *lines]) + "\n", encoding="utf-8")

    def describe(self, name: str, directory: Path) -> None:
        """Put a description into the folder, atomically."""
        made = self.folder / f"{name}.new"
        made.write_text(f'path = "{directory}"\n', encoding="utf-8")
        made.rename(self.descriptions / f"{name}.toml")

    def state(self, name: str) -> State | None:
        return read_state(self.descriptions / f"{name}.toml")

    def becomes(self, name: str, state: str) -> State:
        """Wait for the state of a description."""

        def there() -> bool:
            found = self.state(name)
            return found is not None and found.state == state

        assert settles(there, SOON_S), self.state(name)
        found = self.state(name)
        assert found is not None
        return found

    def publish(self, directory: Path, name: str) -> int:
        return main(["publish", str(directory), name, "--config", str(self.config), "--timeout", "10s"])

    def start(self, *options: str) -> DaemonProcess:
        return DaemonProcess({}, "--config", str(self.config), *SLOW, *options, folder=self.folder, bind=self._bind)


@pytest.fixture
def site(tmp_path: Path, old: Path) -> Site:
    site = Site(tmp_path / "site")
    site.configure(x=old)
    return site


def load(address: str, **options: object) -> EmlioLoader:
    arguments: dict[str, object] = {
        "batch_size": BATCH, "raw": True, "to": "numpy", "timeout": "20s", "heartbeat": "500ms", "prefetch": "1MiB", **options
    }  # fmt: skip
    return EmlioLoader(address, **loader_arguments(**arguments))


def numbers(batches: Iterator[dict[str, Sequence[bytes]]], count: int | None = None) -> list[int]:
    """The numbers of the records of the next batches, or of all that are left."""
    taken = []
    for batch in batches:
        taken += [int.from_bytes(bytes(record[:8]), "little") for record in batch["record"]]
        if count is not None and len(taken) >= count * BATCH:
            break
    return taken


def whole(address: str, **options: object) -> list[int]:
    """One epoch, sorted."""
    with load(address, **options) as loader:
        return sorted(numbers(iter(loader)))


# ---- SIGHUP -------------------------------------------------------------------------------------------------------------


def test_sighup_serves_what_was_added_and_keeps_what_a_job_reads_though_it_was_removed(
    site: Site, old: Path, new: Path
) -> None:
    with site.start() as daemon:
        with load(daemon.address("x")) as loader:
            batches = iter(loader)
            seen = numbers(batches, 3)
            site.configure(y=new)
            daemon.send_signal(signal.SIGHUP)
            daemon.wait_for_log("dataset y was added")
            assert whole(daemon.address("y")) == list(NEW)
            with pytest.raises(RefusedError, match="there is no dataset 'x' at this daemon any more, available: y"):
                whole(daemon.address("x"))
            seen += numbers(batches)
            assert sorted(seen) == list(OLD)
            assert sorted(numbers(iter(loader))) == list(OLD), "and the next epoch"
        daemon.wait_for_log("dataset x at", timeout_s=SOON_S)
        assert f"{old}: closed, no job reads it any more" in daemon.log
        site.configure(x=old, y=new)
        daemon.send_signal(signal.SIGHUP)
        daemon.wait_for_log("dataset x was added")
        assert whole(daemon.address("x")) == list(OLD)
        daemon.send_signal(signal.SIGTERM)
        assert daemon.finish() == 0
        assert "Traceback" not in daemon.log


def test_a_configuration_with_a_mistake_leaves_everything_as_it_is(site: Site, old: Path, new: Path) -> None:
    with site.start() as daemon:
        for text, why in (
            ("[datasets\n", "not valid TOML"),
            (f'[datasets]\nx = "{old}"\n"bad name" = "{new}"\n', "a dataset's name must be"),
            (f'[datasets]\n"x@zero" = "{new}"\n', "a dataset's generation must be a number"),
            (f'[daemon]\ndrain-timeout = "never"\n[datasets]\nz = "{new}"\n', "drain-timeout"),
            ("[daemon]\ndatasets-dir = '/nowhere'\nreaders = 0\n", "readers"),
        ):
            site.config.write_text(text, encoding="utf-8")
            before = daemon.log.count("the configuration is not reloaded")
            daemon.send_signal(signal.SIGHUP)
            daemon.wait_for_log("the configuration is not reloaded, everything stays as it is", times=before + 1)
            assert why in daemon.log.splitlines()[-1]
            assert whole(daemon.address("x")) == list(OLD)
        site.config.unlink()
        daemon.send_signal(signal.SIGHUP)
        daemon.wait_for_log("cannot be read")
        assert whole(daemon.address("x")) == list(OLD)


def test_other_settings_that_changed_are_named_and_a_folder_that_is_missing_keeps_nothing_else_back(
    site: Site, old: Path, new: Path, tmp_path: Path
) -> None:
    with site.start() as daemon:
        site.config.write_text(
            f'[daemon]\nreaders = 5\n[datasets]\nx = "{tmp_path / "nothing"}"\ny = "{new}"\n', encoding="utf-8"
        )
        daemon.send_signal(signal.SIGHUP)
        daemon.wait_for_log("the setting readers has changed, which needs a restart")
        daemon.wait_for_log("dataset x cannot be opened")
        daemon.wait_for_log("dataset y was added")
        assert "What it served before is served on" in daemon.log
        assert whole(daemon.address("x")) == list(OLD)
        assert whole(daemon.address("y")) == list(NEW)


@pytest.mark.parametrize("nohup", [False, True], ids=["in a terminal", "with nohup"])
@pytest.mark.skipif(shutil.which("setsid") is None, reason="setsid of util-linux gives a process a terminal")
def test_a_terminal_that_is_closed_ends_a_daemon_as_it_ends_any_program(
    tmp_path: Path, old: Path, *, nohup: bool
) -> None:
    ready, log = tmp_path / "ready.json", tmp_path / "log"
    words = ["setsid", "--ctty", *(["nohup"] if nohup else []), sys.executable, "-m", "emlio.daemon.cli"]
    words += ["--bind", "tcp://127.0.0.1:0", "--data", f"x={old}", "--ready-file", str(ready)]
    terminal, inside = os.openpty()
    with log.open("wb") as errors:
        process = subprocess.Popen(words, stdin=inside, stdout=inside, stderr=errors, cwd=tmp_path)
    os.close(inside)
    try:
        assert settles(ready.exists, 20.0), log.read_text()
        os.close(terminal)
        if nohup:
            assert settles(lambda: "the configuration was reloaded" in log.read_text(), SOON_S)
            process.terminate()
        assert process.wait(SOON_S) == 0
        assert ("SIGHUP: draining" in log.read_text()) is not nohup
    finally:
        process.kill()
        process.wait()


# ---- a folder that changes ----------------------------------------------------------------------------------------------


def test_a_job_keeps_the_shards_it_began_with_and_new_jobs_get_what_was_added(tmp_path: Path) -> None:
    folder = dataset(tmp_path / "x", 0, mapped=False)
    site = Site(tmp_path / "site")
    site.configure(x=folder)
    with site.start() as daemon, load(daemon.address("x")) as loader:
        batches = iter(loader)
        seen = numbers(batches, 2)
        more = dataset(tmp_path / "more", 50_000, 100, 1)
        (shard,) = more.glob("*.tfrecord")
        shard.rename(folder / "more.tfrecord")
        daemon.send_signal(signal.SIGHUP)
        daemon.wait_for_log("dataset x was replaced")
        assert whole(daemon.address("x")) == [*OLD, *range(50_000, 50_100)]
        seen += numbers(batches)
        assert sorted(seen) == list(OLD)
        daemon.send_signal(signal.SIGHUP)
        daemon.wait_for_log("dataset x: nothing has changed")


def test_a_job_goes_on_at_a_restarted_daemon_whose_folder_holds_more_now(tmp_path: Path) -> None:
    folder = dataset(tmp_path / "x", 0, mapped=False)
    site = Site(tmp_path / "site", free_ports(2, "127.0.0.1")[0])
    site.configure(x=folder)
    with ExitStack() as stack:
        daemon = stack.enter_context(site.start())
        loader = stack.enter_context(load(daemon.address("x")))
        batches = iter(loader)
        seen = numbers(batches, 2)
        (shard,) = dataset(tmp_path / "more", 50_000, 100, 1).glob("*.tfrecord")
        shard.rename(folder / "more.tfrecord")
        daemon.kill()
        again = stack.enter_context(site.start())
        seen += numbers(batches)
        assert sorted(seen) == list(OLD)
        assert len(whole(again.address("x"))) == RECORDS + 100


def test_a_file_that_is_cut_under_a_job_is_an_error_that_says_so(tmp_path: Path) -> None:
    folder = dataset(tmp_path / "x", 0)
    site = Site(tmp_path / "site")
    site.configure(x=folder)
    with site.start() as daemon, load(daemon.address("x"), timeout="2s") as loader:
        batches = iter(loader)
        numbers(batches, 2)
        for shard in folder.glob("*.tfrecord"):
            os.truncate(shard, 5000)
        with pytest.raises(EmlioError, match=r"changed while it was served.*Reload or restart the daemon"):
            numbers(batches)


# ---- descriptions -------------------------------------------------------------------------------------------------------


def test_a_description_is_served_soon_and_removed_soon(site: Site, new: Path) -> None:
    with site.start() as daemon:
        site.describe("y", new)
        state = site.becomes("y", "serving")
        assert (state.dataset, state.records, state.shards, state.pid) == ("y", RECORDS, 3, daemon.pid)
        assert whole(daemon.address("y")) == list(NEW)
        (site.descriptions / "y.toml").unlink()
        daemon.wait_for_log("dataset y was removed")
        with pytest.raises(RefusedError, match="any more, available: x"):
            whole(daemon.address("y"))
        assert settles(lambda: site.state("y") is None, SOON_S)
        site.describe("y", new)
        site.becomes("y", "serving")
        daemon.send_signal(signal.SIGTERM)
        assert daemon.finish() == 0
        assert site.state("y") is None, "a state is true only while the daemon runs"
        assert "Traceback" not in daemon.log


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("y", "path = 5\n", "path must be the dataset's folder"),
        ("y", 'path = "here"\n', "path must be absolute"),
        ("y", 'path = "/nowhere"\nformats = "x"\n', "unknown keys formats"),
        ("y", 'path = "/nowhere/at/all"\n', "/nowhere/at/all"),
        ("bad name", 'path = "/"\n', "a dataset's name must be"),
        ("x", 'path = "/"\n', "dataset x must be described once"),
        ("y", "path = \n", "not valid TOML"),
    ],
)
def test_a_description_with_a_mistake_is_told_once_and_harms_nothing(
    site: Site, name: str, text: str, why: str
) -> None:
    with site.start() as daemon:
        (site.descriptions / f"{name}.toml").write_text(text, encoding="utf-8")
        assert why in site.becomes(name, "failed").error
        assert whole(daemon.address("x")) == list(OLD)
        time.sleep(1.2)  # one more look
        assert sum(why in line and "ERROR" in line for line in daemon.log.splitlines()) == 1


def test_a_mistake_in_a_description_does_not_keep_a_daemon_from_starting(site: Site, new: Path) -> None:
    site.describe("y", site.folder / "nothing")
    site.describe("z", new)
    with site.start() as daemon:
        assert "nothing" in site.becomes("y", "failed").error
        site.becomes("z", "serving")
        assert whole(daemon.address("z")) == list(NEW)


def test_a_daemon_may_start_with_an_empty_folder_of_descriptions(tmp_path: Path, old: Path) -> None:
    folder = tmp_path / "descriptions"
    folder.mkdir()
    with DaemonProcess({}, "--datasets-dir", str(folder), folder=tmp_path) as daemon:
        assert main(["publish", str(old), "x", "--datasets-dir", str(folder)]) == 0
        assert whole(daemon.address("x")) == list(OLD)


# ---- generations --------------------------------------------------------------------------------------------------------


def test_a_generation_that_is_published_while_an_epoch_runs_is_for_new_jobs(
    site: Site, old: Path, new: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with site.start() as daemon, load(daemon.address("x")) as loader:
        batches = iter(loader)
        seen = numbers(batches, 3)
        assert site.publish(new, "x@2") == 0
        assert f"x@2: 3,000 records in 3 shards are served from {new}" in capsys.readouterr().out
        assert whole(daemon.address("x")) == list(NEW)
        assert whole(daemon.address("x@1")) == list(OLD)
        assert whole(daemon.address("x@2")) == list(NEW)
        with pytest.raises(RefusedError, match="there is no dataset 'x@3' at this daemon, available: x@1, x@2"):
            whole(daemon.address("x@3"))
        with pytest.raises(RefusedError, match="a dataset's generation must be a number"):
            whole(daemon.address("x@new"))
        seen += numbers(batches)
        assert sorted(seen) == list(OLD)


def test_what_was_added_to_a_folder_is_served_when_it_is_published_once_more(
    site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = dataset(tmp_path / "y", 0, 200, 2, mapped=False)
    with site.start() as daemon:
        assert site.publish(folder, "y") == 0
        (shard,) = dataset(tmp_path / "more", 50_000, 100, 1).glob("*.tfrecord")
        shard.rename(folder / "more.tfrecord")
        assert len(whole(daemon.address("y"))) == 200
        assert site.publish(folder, "y") == 0
        assert "y: 300 records in 3 shards" in capsys.readouterr().out
        assert len(whole(daemon.address("y"))) == 300


def test_a_writer_makes_the_next_generation_while_many_read_this_one(site: Site, old: Path, tmp_path: Path) -> None:
    """The case for which generations are there."""
    with site.start() as daemon, ExitStack() as stack:
        loaders = [stack.enter_context(load(daemon.address("x"))) for _ in range(3)]
        read: list[list[int]] = [[] for _ in loaders]

        def take(number: int) -> None:
            for _ in range(2):
                read[number].append(0)
                assert sorted(numbers(iter(loaders[number]))) == list(OLD)
                read[number][-1] = 1

        readers = [Thread(target=take, args=(number,)) for number in range(len(loaders))]
        for reader in readers:
            reader.start()
        for generation in (2, 3, 4):
            made = dataset(tmp_path / f"x-{generation}", generation * 100_000, 200, 2)
            assert site.publish(made, f"x@{generation}") == 0
            assert whole(daemon.address("x"))[0] == generation * 100_000
        for reader in readers:
            reader.join(60.0)
        assert read == [[1, 1]] * len(loaders)


def test_what_cannot_be_served_is_not_published_and_leaves_no_description(
    site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    with site.start() as daemon:
        assert site.publish(tmp_path / "empty", "x@2") == 2
        assert "the daemon does not serve it: " in capsys.readouterr().err
        assert list(site.descriptions.glob("*.toml")) == []
        assert settles(lambda: site.state("x@2") is None, SOON_S)
        assert whole(daemon.address("x")) == list(OLD)
    assert site.publish(tmp_path / "empty", "x@2") == 2
    assert "no daemon has noticed" in capsys.readouterr().err
    assert list(site.descriptions.iterdir()) == []


def test_a_job_comes_back_to_its_generation_after_a_restart(tmp_path: Path, old: Path, new: Path) -> None:
    site = Site(tmp_path / "site", free_ports(2, "127.0.0.1")[0])
    site.configure(x=old)
    with ExitStack() as stack:
        daemon = stack.enter_context(site.start())
        first = iter(stack.enter_context(load(daemon.address("x"))))
        seen = numbers(first, 3)
        assert site.publish(new, "x@2") == 0
        second = iter(stack.enter_context(load(daemon.address("x"))))
        of_new = numbers(second, 3)
        daemon.kill()
        again = stack.enter_context(site.start())
        assert sorted(seen + numbers(first)) == list(OLD)
        assert sorted(of_new + numbers(second)) == list(NEW)
        assert whole(again.address("x")) == list(NEW)


def test_a_job_whose_dataset_was_removed_while_the_daemon_was_away_is_told(
    tmp_path: Path, old: Path, new: Path
) -> None:
    site = Site(tmp_path / "site", free_ports(2, "127.0.0.1")[0])
    site.configure(x=old)
    with ExitStack() as stack:
        daemon = stack.enter_context(site.start())
        batches = iter(stack.enter_context(load(daemon.address("x"), timeout="3s")))
        numbers(batches, 3)
        site.configure(y=new)
        daemon.kill()
        stack.enter_context(site.start())
        with pytest.raises(EmlioError, match="there is no dataset 'x' at this daemon, available: y"):
            numbers(batches)


def test_a_rank_that_joins_late_gets_the_generation_of_its_job(
    site: Site, new: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMLIO_JOB", "training")
    with site.start() as daemon, load(daemon.address("x"), rank=0, world_size=2) as one:
        batches = iter(one)
        seen = numbers(batches, 1)
        assert site.publish(new, "x@2") == 0
        with load(daemon.address("x"), rank=1, world_size=2) as other:
            seen += numbers(iter(other))
        seen += numbers(batches)
        assert sorted(seen) == list(OLD)
        monkeypatch.setenv("EMLIO_JOB", "another")
        assert whole(daemon.address("x"), rank=0, world_size=1) == list(NEW)


# ---- several daemons ----------------------------------------------------------------------------------------------------


@pytest.fixture
def pair(tmp_path: Path, old: Path) -> Iterator[tuple[Site, Site, DaemonProcess, DaemonProcess]]:
    """Two daemons with copies."""
    sites = [Site(tmp_path / name) for name in ("a", "b")]
    for site in sites:
        site.configure(x=old)
    with sites[0].start() as one, sites[1].start() as other:
        yield sites[0], sites[1], one, other


def test_copies_that_get_a_generation_one_after_the_other_give_the_newest_that_both_have(
    pair: tuple[Site, Site, DaemonProcess, DaemonProcess], new: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, late, one, other = pair
    address = one.address("x", other)
    assert site.publish(new, "x@2") == 0
    assert whole(address) == list(OLD)
    monkeypatch.setenv("EMLIO_JOB", "training")
    with load(address, rank=0, world_size=2) as first:
        batches = iter(first)
        seen = numbers(batches, 1)
        assert late.publish(new, "x@2") == 0
        with load(address, rank=1, world_size=2) as second:
            seen += numbers(iter(second))
        assert sorted(seen + numbers(batches)) == list(OLD)
    monkeypatch.delenv("EMLIO_JOB")
    assert whole(address) == list(NEW)


def test_copies_without_a_common_generation_are_an_error_that_names_what_each_has(
    pair: tuple[Site, Site, DaemonProcess, DaemonProcess], old: Path, new: Path
) -> None:
    site, _, one, other = pair
    site.configure()
    assert site.publish(new, "x@2") == 0
    one.send_signal(signal.SIGHUP)
    one.wait_for_log("dataset x was removed")
    with pytest.raises(DatasetError, match=f"one generation of 'x' in common: {one.peer} has 2, {other.peer} has 1"):
        whole(one.address("x", other))


def test_a_daemon_that_is_added_gives_the_generation_that_the_job_reads(
    pair: tuple[Site, Site, DaemonProcess, DaemonProcess], new: Path
) -> None:
    _, site, one, other = pair
    with load(one.address("x")) as loader:
        batches = iter(loader)
        seen = numbers(batches, 1)
        assert site.publish(new, "x@2") == 0
        loader.use_daemons(other.address("x"))
        other.wait_for_log("(rank 0/1 of x,", SOON_S)
        one.wait_for_log("ended: ", SOON_S)
        assert sorted(seen + numbers(batches)) == list(OLD)


# ---- what stays open ----------------------------------------------------------------------------------------------------


def open_things(daemon: DaemonProcess) -> tuple[int, int, int]:
    """Descriptors, threads, and mappings of files."""
    process = psutil.Process(daemon.pid)
    maps = Path(f"/proc/{daemon.pid}/maps").read_text(encoding="utf-8")
    return process.num_fds(), process.num_threads(), sum("site/x-" in line for line in maps.splitlines())


def test_many_reloads_leave_nothing_open(site: Site, tmp_path: Path) -> None:
    folders = [dataset(site.folder / f"x-{number}", number * 1000, 200, 2) for number in range(2)]
    site.configure(x=folders[0])
    with site.start() as daemon:

        def turn(number: int) -> None:
            site.configure(x=folders[number % 2])
            daemon.send_signal(signal.SIGHUP)
            daemon.wait_for_log("dataset x was replaced", times=number)
            assert len(whole(daemon.address("x"))) == 200

        def closed(number: int) -> bool:
            return daemon.log.count("closed, no job reads it any more") == number

        turn(1)
        turn(2)
        assert settles(lambda: closed(2), SOON_S), daemon.log
        assert settles(lambda: daemon.lanes == 0, SOON_S)
        before = open_things(daemon)
        for number in range(3, 15):
            turn(number)
        assert settles(lambda: closed(14), SOON_S), daemon.log
        assert settles(lambda: open_things(daemon) <= before, SOON_S), (open_things(daemon), before)
        daemon.send_signal(signal.SIGTERM)
        assert daemon.finish() == 0
        assert "Traceback" not in daemon.log


def test_a_dataset_that_is_closed_gives_back_its_leases(tmp_path: Path) -> None:
    """Long runs are sent from where they lie, under leases. A writer is not held up any more when the dataset is closed."""
    if not gives_leases(tmp_path):
        pytest.skip(f"the file system of {tmp_path} gives no leases")
    folder, other = tmp_path / "x", dataset(tmp_path / "y", 0)
    make_dataset(folder, records=20, shards=1, payload=2_000_000)
    (shard,) = folder.glob("*.tfrecord")
    site = Site(tmp_path / "site")
    site.configure(x=folder, y=other)
    options = ("--memory", "64MiB", "--message-size", "4MiB", "--heartbeat-timeout", "1s")
    with DaemonProcess({}, "--config", str(site.config), *options, folder=site.folder) as daemon:
        with load(daemon.address("x"), batch_size=1, prefetch="8MiB", timeout="60s") as loader:
            batches = iter(loader)
            next(batches)
            assert settles(lambda: leases_on(shard) == ["ACTIVE"], SOON_S)
            site.configure(y=other)
            daemon.send_signal(signal.SIGHUP)
            daemon.wait_for_log("dataset x was removed")
            assert sum(1 for _ in batches) == 19
        daemon.wait_for_log("closed, no job reads it any more", timeout_s=SOON_S)
        assert leases_on(shard) == []
        assert str(folder) not in Path(f"/proc/{daemon.pid}/maps").read_text(encoding="utf-8")
        assert whole(daemon.address("y")) == list(OLD)
