"""Datasets that come, change and go while a daemon serves, and the jobs that read them meanwhile.

Covers: SIGHUP, folders that change, descriptions in datasets.d, what is left open. Does not cover: several generations of a
dataset (test_generations).
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from emlio.cli import main
from emlio.errors import EmlioError, RefusedError
from emlio_testing.daemon_sites import NEW, OLD, RECORDS, SOON_S, DaemonSite, load, make_numbered, numbers, whole
from emlio_testing.datasets import make_dataset
from emlio_testing.leases import gives_leases, leases_on
from emlio_testing.ports import free_ports
from emlio_testing.processes import DaemonProcess, settles

# Beside a whole run of tests an interpreter has taken 17 s to end.
_EXIT_S = 40.0

# ---- SIGHUP -------------------------------------------------------------------------------------------------------------


def test_sighup_serves_what_was_added_and_keeps_what_a_job_reads_though_it_was_removed(
    site: DaemonSite, old_records: Path, new_records: Path
) -> None:
    with site.start() as daemon:
        with load(daemon.address("x")) as loader:
            batches = iter(loader)
            seen = numbers(batches, 3)
            site.configure(y=new_records)
            daemon.send_signal(signal.SIGHUP)
            daemon.wait_for_log("dataset y was added")
            assert whole(daemon.address("y")) == list(NEW)
            with pytest.raises(RefusedError, match="there is no dataset 'x' at this daemon any more, available: y"):
                whole(daemon.address("x"))
            seen += numbers(batches)
            assert sorted(seen) == list(OLD)
            assert sorted(numbers(iter(loader))) == list(OLD), "and the next epoch"
        daemon.wait_for_log("dataset x at", timeout_s=SOON_S)
        assert f"{old_records}: closed, no job reads it any more" in daemon.log
        site.configure(x=old_records, y=new_records)
        daemon.send_signal(signal.SIGHUP)
        daemon.wait_for_log("dataset x was added")
        assert whole(daemon.address("x")) == list(OLD)
        daemon.send_signal(signal.SIGTERM)
        assert daemon.finish() == 0
        assert "Traceback" not in daemon.log


def test_a_configuration_with_a_mistake_leaves_everything_as_it_is(
    site: DaemonSite, old_records: Path, new_records: Path
) -> None:
    with site.start() as daemon:
        for text, why in (
            ("[datasets\n", "not valid TOML"),
            (f'[datasets]\nx = "{old_records}"\n"bad name" = "{new_records}"\n', "a dataset's name must be"),
            (f'[datasets]\n"x@zero" = "{new_records}"\n', "a dataset's generation must be a number"),
            (f'[daemon]\ndrain-timeout = "never"\n[datasets]\nz = "{new_records}"\n', "drain-timeout"),
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
    site: DaemonSite, old_records: Path, new_records: Path, tmp_path: Path
) -> None:
    with site.start() as daemon:
        site.config.write_text(
            f'[daemon]\nreaders = 5\n[datasets]\nx = "{tmp_path / "nothing"}"\ny = "{new_records}"\n', encoding="utf-8"
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
    tmp_path: Path, old_records: Path, *, nohup: bool
) -> None:
    ready, log = tmp_path / "ready.json", tmp_path / "log"
    words = ["setsid", "--ctty", *(["nohup"] if nohup else []), sys.executable, "-m", "emlio.daemon.cli"]
    words += ["--bind", "tcp://127.0.0.1:0", "--data", f"x={old_records}", "--ready-file", str(ready)]
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
        assert process.wait(_EXIT_S) == 0
        assert ("SIGHUP: draining" in log.read_text()) is not nohup
    finally:
        process.kill()
        process.wait()


# ---- a folder that changes ----------------------------------------------------------------------------------------------


def test_a_job_keeps_the_shards_it_began_with_and_new_jobs_get_what_was_added(tmp_path: Path) -> None:
    folder = make_numbered(tmp_path / "x", 0, mapped=False)
    site = DaemonSite(tmp_path / "site")
    site.configure(x=folder)
    with site.start() as daemon, load(daemon.address("x")) as loader:
        batches = iter(loader)
        seen = numbers(batches, 2)
        more = make_numbered(tmp_path / "more", 50_000, 100, 1)
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
    folder = make_numbered(tmp_path / "x", 0, mapped=False)
    site = DaemonSite(tmp_path / "site", free_ports(2, "127.0.0.1")[0])
    site.configure(x=folder)
    with ExitStack() as stack:
        daemon = stack.enter_context(site.start())
        loader = stack.enter_context(load(daemon.address("x")))
        batches = iter(loader)
        seen = numbers(batches, 2)
        (shard,) = make_numbered(tmp_path / "more", 50_000, 100, 1).glob("*.tfrecord")
        shard.rename(folder / "more.tfrecord")
        daemon.kill()
        again = stack.enter_context(site.start())
        seen += numbers(batches)
        assert sorted(seen) == list(OLD)
        assert len(whole(again.address("x"))) == RECORDS + 100


def test_a_file_that_is_cut_under_a_job_is_an_error_that_says_so(tmp_path: Path) -> None:
    folder = make_numbered(tmp_path / "x", 0)
    site = DaemonSite(tmp_path / "site")
    site.configure(x=folder)
    with site.start() as daemon, load(daemon.address("x"), timeout="2s") as loader:
        batches = iter(loader)
        numbers(batches, 2)
        for shard in folder.glob("*.tfrecord"):
            os.truncate(shard, 5000)
        with pytest.raises(EmlioError, match=r"changed while it was served.*Reload or restart the daemon"):
            numbers(batches)


def test_a_link_that_is_moved_to_the_next_version_leaves_jobs_alone(
    tmp_path: Path, old_records: Path, new_records: Path
) -> None:
    link = tmp_path / "current"
    link.symlink_to(old_records)
    site = DaemonSite(tmp_path / "site")
    site.configure(x=link)
    with site.start() as daemon, load(daemon.address("x")) as loader:
        batches = iter(loader)
        seen = numbers(batches, 2)
        (tmp_path / "next").symlink_to(new_records)
        (tmp_path / "next").rename(link)
        time.sleep(1.2)  # files are looked at more often than that
        assert whole(daemon.address("x")) == list(OLD), "a job that begins before the reload"
        daemon.send_signal(signal.SIGHUP)
        daemon.wait_for_log("dataset x was replaced")
        assert whole(daemon.address("x")) == list(NEW)
        seen += numbers(batches)
        assert sorted(seen) == list(OLD)
        assert sorted(numbers(iter(loader))) == list(OLD), "and the next epoch"
        assert "ERROR" not in daemon.log


# ---- descriptions -------------------------------------------------------------------------------------------------------


def test_a_description_is_served_soon_and_removed_soon(site: DaemonSite, new_records: Path) -> None:
    with site.start() as daemon:
        site.describe("y", new_records)
        state = site.becomes("y", "serving")
        assert (state.dataset, state.records, state.shards, state.pid) == ("y", RECORDS, 3, daemon.pid)
        assert whole(daemon.address("y")) == list(NEW)
        (site.descriptions / "y.toml").unlink()
        daemon.wait_for_log("dataset y was removed")
        with pytest.raises(RefusedError, match="any more, available: x"):
            whole(daemon.address("y"))
        assert settles(lambda: site.state("y") is None, SOON_S)
        site.describe("y", new_records)
        site.becomes("y", "serving")
        daemon.send_signal(signal.SIGTERM)
        assert daemon.finish() == 0
        assert site.state("y") is None, "a state is true only while the daemon runs"
        assert "Traceback" not in daemon.log


MISTAKES = {
    "number": ("path = 5\n", "path must be the dataset's folder"),
    "relative": ('path = "here"\n', "path must be absolute"),
    "unknown": ('path = "/nowhere"\nformats = "x"\n', "unknown keys formats"),
    "missing": ('path = "/nowhere/at/all"\n', "/nowhere/at/all"),
    "bad name": ('path = "/"\n', "a dataset's name must be"),
    "x": ('path = "/"\n', "dataset x must be described once, it is in [datasets] or --data, too"),
    "nothing": ("path = \n", "not valid TOML"),
}
"""Descriptions and what is wrong with them, by name."""


def test_descriptions_with_mistakes_are_told_once_and_harm_nothing(site: DaemonSite) -> None:
    with site.start() as daemon:
        for name, (text, _) in MISTAKES.items():
            (site.descriptions / f"{name}.toml").write_text(text, encoding="utf-8")
        for name, (_, why) in MISTAKES.items():
            assert why in site.becomes(name, "failed").error
        assert whole(daemon.address("x")) == list(OLD)
        time.sleep(1.2)  # one more look
        errors = [line for line in daemon.log.splitlines() if "ERROR" in line]
        for name, (_, why) in MISTAKES.items():
            assert sum(why in line for line in errors) == 1, name
        assert len(errors) == len(MISTAKES)


def test_a_mistake_in_a_description_does_not_keep_a_daemon_from_starting(site: DaemonSite, new_records: Path) -> None:
    site.describe("y", site.folder / "nothing")
    site.describe("z", new_records)
    with site.start() as daemon:
        assert "nothing" in site.becomes("y", "failed").error
        site.becomes("z", "serving")
        assert whole(daemon.address("z")) == list(NEW)


def test_a_daemon_may_start_with_an_empty_folder_of_descriptions(tmp_path: Path, old_records: Path) -> None:
    folder = tmp_path / "descriptions"
    folder.mkdir()
    with DaemonProcess({}, "--datasets-dir", str(folder), folder=tmp_path) as daemon:
        assert main(["publish", str(old_records), "x", "--datasets-dir", str(folder)]) == 0
        assert whole(daemon.address("x")) == list(OLD)


# ---- what stays open ----------------------------------------------------------------------------------------------------


def open_things(daemon: DaemonProcess) -> tuple[int, int, int]:
    """Descriptors, threads, and mappings of files."""
    process = psutil.Process(daemon.pid)
    maps = Path(f"/proc/{daemon.pid}/maps").read_text(encoding="utf-8")
    return process.num_fds(), process.num_threads(), sum("site/x-" in line for line in maps.splitlines())


def test_many_reloads_leave_nothing_open(site: DaemonSite, tmp_path: Path) -> None:
    folders = [make_numbered(site.folder / f"x-{number}", number * 1000, 200, 2) for number in range(2)]
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
    folder, other = tmp_path / "x", make_numbered(tmp_path / "y", 0)
    make_dataset(folder, records=20, shards=1, payload=2_000_000)
    (shard,) = folder.glob("*.tfrecord")
    site = DaemonSite(tmp_path / "site")
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
