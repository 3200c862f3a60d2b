from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from threading import Thread

from emlio.energy.job.folder import recorder_socket, shared_folder
from emlio.energy.recording.edge_server import listen

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def folder_of(parent: Path, job: str) -> Path:
    with shared_folder(parent, job, NOON) as folder:
        return folder


def test_those_of_one_job_share_a_folder_while_one_of_them_has_its_recorder(tmp_path: Path) -> None:
    first = folder_of(tmp_path, "a")
    assert first == tmp_path / "emlio-energy-20260301-120000"
    with listen(recorder_socket(first)):
        assert folder_of(tmp_path, "a") == first
        assert folder_of(tmp_path, "b") == tmp_path / "emlio-energy-20260301-120000-2"
    assert folder_of(tmp_path, "a") == tmp_path / "emlio-energy-20260301-120000-3", "a job of the same name, later"


def test_who_comes_while_another_looks_waits_for_him(tmp_path: Path) -> None:
    found: list[Path] = []
    with ExitStack() as stack:
        with shared_folder(tmp_path, "a", NOON) as first:
            thread = Thread(target=lambda: found.append(folder_of(tmp_path, "a")))
            thread.start()
            stack.enter_context(listen(recorder_socket(first)))
            assert not found
        thread.join()
    assert found == [first]


def test_what_others_left_there_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "emlio-energy-notes").write_text("mine")
    (tmp_path / "emlio-energy-20260301-120000").mkdir()
    assert folder_of(tmp_path, "a").name == "emlio-energy-20260301-120000-2"
