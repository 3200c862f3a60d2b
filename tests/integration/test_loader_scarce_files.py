"""A daemon or a loader whose process has no descriptors left for shards: a job goes on when there are some again."""

import errno
import os
from pathlib import Path
from threading import Thread

import pytest

from emlio import EmlioLoader
from emlio.errors import ClosedError, DatasetError, PeerLostError
from emlio.store import folder as folder_module
from emlio.store.opened import open_files
from emlio_testing.datasets import make_dataset
from emlio_testing.processes import settles
from emlio_testing.serving import daemon_of, peer_of, raw_loader

_RECORDS = 60


class _Scarce:
    """Lets no shard be opened for so many times."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.refusals = 0
        self._open = folder_module.open_beneath
        monkeypatch.setattr(folder_module, "open_beneath", self._refuse)
        monkeypatch.setattr(folder_module.Folder, "open_indexed", lambda *_, **__: None)  # opens none at once
        monkeypatch.setattr(open_files, "PAUSES_S", (0.01,))

    def _refuse(self, folder: int, name: str, flags: int) -> int:
        if self.refusals and name.endswith(".tfrecord"):
            self.refusals -= 1
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), name)
        return self._open(folder, name, flags)


@pytest.fixture
def scarce(monkeypatch: pytest.MonkeyPatch) -> _Scarce:
    return _Scarce(monkeypatch)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    make_dataset(tmp_path / "numbers", records=_RECORDS, shards=2, payload=100)
    return tmp_path / "numbers"


def _ids(loader: EmlioLoader) -> list[int]:
    return [identity for batch in loader for identity in batch["__id__"].tolist()]


def test_a_job_goes_on_at_a_daemon_that_had_no_descriptors_for_a_while(data: Path, scarce: _Scarce) -> None:
    with daemon_of({"numbers": data}) as daemon:
        scarce.refusals = 20
        with raw_loader(f"{peer_of(daemon)}/numbers") as loader:
            assert sorted(_ids(loader)) == list(range(_RECORDS))
            assert loader.stats().lost_daemons >= 1
        assert scarce.refusals == 0


def test_a_daemon_that_never_has_descriptors_is_given_up_after_the_timeout(
    data: Path, scarce: _Scarce, caplog: pytest.LogCaptureFixture
) -> None:
    with daemon_of({"numbers": data}) as daemon:
        scarce.refusals = 1 << 30
        with (
            raw_loader(f"{peer_of(daemon)}/numbers", timeout="1s") as loader,
            pytest.raises(PeerLostError, match=daemon.endpoint.removeprefix("tcp://")),
        ):
            _ids(loader)
    # The error itself gives the reason or, just after a new attempt, says that the daemon is silent.
    assert "reached its limit" in caplog.text


def test_a_loader_of_its_own_disk_says_what_it_lacks(data: Path, scarce: _Scarce) -> None:
    with raw_loader(data) as loader:
        scarce.refusals = 1 << 30
        with pytest.raises(DatasetError, match=r"this process has reached its limit of .* open files"):
            _ids(loader)


def test_closing_a_loader_does_not_wait_for_descriptors(
    data: Path, scarce: _Scarce, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_files, "PAUSES_S", (3600.0,))
    with raw_loader(data) as loader:
        scarce.refusals = before = 1 << 30
        ended = list[Exception]()

        def use() -> None:
            try:
                _ids(loader)
            except ClosedError as error:
                ended.append(error)

        thread = Thread(target=use)
        thread.start()
        assert settles(lambda: scarce.refusals < before, 20)
        loader.close()
        thread.join(20)
        assert len(ended) == 1
