"""Generations of a dataset, in jobs that run and in new ones.

Covers: emlio publish while jobs read, ranks that come late, a daemon that is started again, copies that get a generation one by
one. Does not cover: how datasets come and go (test_reload), the choices alone (unit/test_daemon_generations,
unit/receiver/assignment/test_generations).
"""

import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Thread

import pytest

from emlio.errors import DatasetError, EmlioError, RefusedError
from emlio_testing.daemon_sites import NEW, OLD, SOON_S, DaemonSite, load, make_numbered, numbers, whole
from emlio_testing.ports import free_ports
from emlio_testing.processes import DaemonProcess, settles

# ---- generations --------------------------------------------------------------------------------------------------------


def test_a_generation_that_is_published_while_an_epoch_runs_is_for_new_jobs(
    site: DaemonSite, old_records: Path, new_records: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with site.start() as daemon, load(daemon.address("x")) as loader:
        batches = iter(loader)
        seen = numbers(batches, 3)
        assert site.publish(new_records, "x@2") == 0
        assert f"x@2: 3,000 records in 3 shards served from {new_records}" in capsys.readouterr().out
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
    site: DaemonSite, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make_numbered(tmp_path / "y", 0, 200, 2, mapped=False)
    with site.start() as daemon:
        assert site.publish(folder, "y") == 0
        (shard,) = make_numbered(tmp_path / "more", 50_000, 100, 1).glob("*.tfrecord")
        shard.rename(folder / "more.tfrecord")
        assert len(whole(daemon.address("y"))) == 200
        assert site.publish(folder, "y") == 0
        assert "y: 300 records in 3 shards" in capsys.readouterr().out
        assert len(whole(daemon.address("y"))) == 300


def test_another_folder_takes_the_place_of_a_generation_only_if_that_is_asked_for(
    site: DaemonSite, old_records: Path, new_records: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with site.start() as daemon:
        assert site.publish(old_records, "z@2") == 0
        assert site.publish(new_records, "z@2") == 2
        assert f"z@2 is '{old_records}' already" in capsys.readouterr().err
        assert whole(daemon.address("z@2")) == list(OLD)
        assert site.publish(new_records, "z@2", "--replace") == 0
        assert whole(daemon.address("z@2")) == list(NEW)


def test_a_writer_makes_the_next_generation_while_many_read_this_one(
    site: DaemonSite, old_records: Path, tmp_path: Path
) -> None:
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
            made = make_numbered(tmp_path / f"x-{generation}", generation * 100_000, 200, 2)
            assert site.publish(made, f"x@{generation}") == 0
            assert whole(daemon.address("x"))[0] == generation * 100_000
        for reader in readers:
            reader.join(60.0)
        assert read == [[1, 1]] * len(loaders)


def test_what_cannot_be_served_is_not_published_and_leaves_no_description(
    site: DaemonSite, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    with site.start() as daemon:
        assert site.publish(tmp_path / "empty", "x@2") == 2
        assert "the daemon does not serve it: " in capsys.readouterr().err
        assert list(site.descriptions.glob("*.toml")) == []
        assert settles(lambda: site.state("x@2") is None, SOON_S)
        assert whole(daemon.address("x")) == list(OLD)
    assert site.publish(tmp_path / "empty", "x@2", "--timeout", "1s") == 2
    assert "no daemon has noticed" in capsys.readouterr().err
    assert list(site.descriptions.iterdir()) == []


def test_a_job_comes_back_to_its_generation_after_a_restart(
    tmp_path: Path, old_records: Path, new_records: Path
) -> None:
    site = DaemonSite(tmp_path / "site", free_ports(2, "127.0.0.1")[0])
    site.configure(x=old_records)
    with ExitStack() as stack:
        daemon = stack.enter_context(site.start())
        first = iter(stack.enter_context(load(daemon.address("x"))))
        seen = numbers(first, 3)
        assert site.publish(new_records, "x@2") == 0
        second = iter(stack.enter_context(load(daemon.address("x"))))
        of_new = numbers(second, 3)
        daemon.kill()
        again = stack.enter_context(site.start())
        assert sorted(seen + numbers(first)) == list(OLD)
        assert sorted(of_new + numbers(second)) == list(NEW)
        assert whole(again.address("x")) == list(NEW)


def test_a_job_whose_dataset_was_removed_while_the_daemon_was_away_is_told(
    tmp_path: Path, old_records: Path, new_records: Path
) -> None:
    site = DaemonSite(tmp_path / "site", free_ports(2, "127.0.0.1")[0])
    site.configure(x=old_records)
    with ExitStack() as stack:
        daemon = stack.enter_context(site.start())
        batches = iter(stack.enter_context(load(daemon.address("x"), timeout="3s")))
        numbers(batches, 3)
        site.configure(y=new_records)
        daemon.kill()
        stack.enter_context(site.start())
        with pytest.raises(EmlioError, match="there is no dataset 'x' at this daemon, available: y"):
            numbers(batches)


def test_a_rank_that_joins_late_gets_the_generation_of_its_job(
    site: DaemonSite, new_records: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMLIO_JOB", "training")
    with site.start() as daemon, load(daemon.address("x"), rank=0, world_size=2) as one:
        batches = iter(one)
        seen = numbers(batches, 1)
        assert site.publish(new_records, "x@2") == 0
        with load(daemon.address("x"), rank=1, world_size=2) as other:
            seen += numbers(iter(other))
        seen += numbers(batches)
        assert sorted(seen) == list(OLD)
        monkeypatch.setenv("EMLIO_JOB", "another")
        assert whole(daemon.address("x"), rank=0, world_size=1) == list(NEW)


# ---- several daemons ----------------------------------------------------------------------------------------------------


@pytest.fixture
def pair(tmp_path: Path, old_records: Path) -> Iterator[tuple[DaemonSite, DaemonSite, DaemonProcess, DaemonProcess]]:
    """Two daemons with copies."""
    sites = [DaemonSite(tmp_path / name) for name in ("a", "b")]
    for site in sites:
        site.configure(x=old_records)
    with sites[0].start() as one, sites[1].start() as other:
        yield sites[0], sites[1], one, other


def test_copies_that_get_a_generation_one_after_the_other_give_the_newest_that_both_have(
    pair: tuple[DaemonSite, DaemonSite, DaemonProcess, DaemonProcess],
    new_records: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site, late, one, other = pair
    address = one.address("x", other)
    assert site.publish(new_records, "x@2") == 0
    assert whole(address) == list(OLD)
    monkeypatch.setenv("EMLIO_JOB", "training")
    with load(address, rank=0, world_size=2) as first:
        batches = iter(first)
        seen = numbers(batches, 1)
        assert late.publish(new_records, "x@2") == 0
        with load(address, rank=1, world_size=2) as second:
            seen += numbers(iter(second))
        assert sorted(seen + numbers(batches)) == list(OLD)
    monkeypatch.delenv("EMLIO_JOB")
    assert whole(address) == list(NEW)


def test_copies_without_a_common_generation_are_an_error_that_names_what_each_has(
    pair: tuple[DaemonSite, DaemonSite, DaemonProcess, DaemonProcess], old_records: Path, new_records: Path
) -> None:
    site, _, one, other = pair
    site.configure()
    assert site.publish(new_records, "x@2") == 0
    one.send_signal(signal.SIGHUP)
    one.wait_for_log("dataset x was removed")
    with pytest.raises(DatasetError, match=f"one generation of 'x' in common: {one.peer} has 2, {other.peer} has 1"):
        whole(one.address("x", other))


def test_a_daemon_that_is_added_gives_the_generation_that_the_job_reads(
    pair: tuple[DaemonSite, DaemonSite, DaemonProcess, DaemonProcess], new_records: Path
) -> None:
    _, site, one, other = pair
    with load(one.address("x")) as loader:
        batches = iter(loader)
        seen = numbers(batches, 1)
        assert site.publish(new_records, "x@2") == 0
        loader.use_daemons(other.address("x"))
        other.wait_for_log("(rank 0/1 of x,", SOON_S)
        one.wait_for_log("ended: ", SOON_S)
        assert sorted(seen + numbers(batches)) == list(OLD)
