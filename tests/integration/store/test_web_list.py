"""A dataset behind a web server, with a list of its files."""

import re
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer
from threading import Thread
from typing import Any

import pytest

from emlio import EmlioLoader
from emlio.errors import DatasetError
from emlio.index.opening import DatasetPath, open_dataset
from emlio_testing.datasets import make_dataset

pytest.importorskip("obstore", reason="no client for buckets: obstore is not installed")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("web") / "numbers"
    make_dataset(folder, records=60, shards=3)
    names = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
    (folder / "list.txt").write_text("# the files\n" + "\n".join(names) + "\n")
    (folder / "evil.txt").write_text("../../etc/passwd\n")
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[int]:
    class Handler(SimpleHTTPRequestHandler):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments, directory=str(folder.parent))

        def do_GET(self) -> None:
            wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
            path = Path(self.translate_path(self.path))
            if wanted is None or not path.is_file():
                super().do_GET()
                return
            data = path.read_bytes()
            part = data[int(wanted[1]) : int(wanted[2]) + 1]
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {wanted[1]}-{int(wanted[1]) + len(part) - 1}/{len(data)}")
            self.send_header("Content-Length", str(len(part)))
            self.send_header("Last-Modified", self.date_time_string(path.stat().st_mtime))
            self.end_headers()
            self.wfile.write(part)

        def log_message(self, format: str, *arguments: Any) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield int(server.server_address[1])
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True, scope="module")
def obstore_has_what_it_keeps(server: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The library's threads and their descriptors are this process's until its end."""
    path = DatasetPath.parse(f"http://127.0.0.1:{server}/numbers/list.txt")
    open_dataset("d", path.directory, tmp_path_factory.mktemp("warm")).close()


def test_a_list_of_files_is_a_dataset(server: int, folder: Path, tmp_path: Path) -> None:
    path = DatasetPath.parse(f"http://127.0.0.1:{server}/numbers/list.txt")
    with open_dataset("d", path.directory, tmp_path) as dataset, open_dataset("d", folder, tmp_path) as local:
        assert dataset.entries == local.entries


def test_a_loader_reads_it_without_a_daemon(server: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    address = f"http://127.0.0.1:{server}/numbers/list.txt"
    with EmlioLoader(address, batch_size=7, raw=True, ids=True, to="numpy", drop_last=False) as loader:
        ids = [number for batch in loader for number in batch["__id__"].tolist()]
    assert sorted(ids) == list(range(60))


def test_a_list_must_stay_below_its_folder(server: int, tmp_path: Path) -> None:
    path = DatasetPath.parse(f"http://127.0.0.1:{server}/numbers/evil.txt")
    with pytest.raises(DatasetError, match="relative names"):
        open_dataset("d", path.directory, tmp_path)


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("greets", [True, False])
def test_what_is_no_web_server_ends_the_opening_at_once(scheme: str, greets: bool, tmp_path: Path) -> None:
    class Handler(BaseRequestHandler):
        def handle(self) -> None:
            if greets:  # as a daemon does
                self.request.sendall(b"\xff\0\0\0\0\0\0\0\1\x7f")
            asked.append(self.request.recv(1000))

    asked = list[bytes]()
    with ThreadingTCPServer(("127.0.0.1", 0), Handler) as other:
        thread = Thread(target=other.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        path = DatasetPath.parse(f"{scheme}://127.0.0.1:{other.server_address[1]}/numbers")
        try:
            with pytest.raises(DatasetError, match="the address of a daemon would begin with emlio://"):
                open_dataset("d", path.directory, tmp_path)
        finally:
            other.shutdown()
            thread.join()
    assert len(asked) == 1


def test_a_missing_list_is_named(server: int, tmp_path: Path) -> None:
    path = DatasetPath.parse(f"http://127.0.0.1:{server}/numbers/nothing.txt")
    with pytest.raises(DatasetError, match=r"numbers/nothing\.txt: there is no such"):
        open_dataset("d", path.directory, tmp_path)
