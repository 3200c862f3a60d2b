"""The live page in a real browser, without a window: as on a desk and as on a phone, by day and by night."""

import re
import shutil
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from emlio import EmlioLoader
from emlio.daemon.config import DaemonConfig, DatasetSource, Endpoint
from emlio.daemon.service import Daemon
from emlio_testing.datasets import make_dataset

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(180),
    pytest.mark.skipif(BROWSER is None, reason="needs a browser: apt-get install chromium"),
]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A daemon with a job, whose name must not become part of the page."""
    folder = tmp_path_factory.mktemp("page")
    make_dataset(folder / "images", records=300, shards=2, payload=8000)
    source = DatasetSource(name="images", directory=folder / "images")
    config = DaemonConfig(data=(source,), bind=Endpoint(host="127.0.0.1", port=0), metrics=("127.0.0.1", 0))
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        daemon = stack.enter_context(Daemon(config))
        patch.setenv("EMLIO_JOB", "<b>run-7</b>")
        options: dict[str, Any] = {"batch_size": 10, "raw": True, "to": "numpy", "tune": "off"}
        loader = stack.enter_context(EmlioLoader(f"{daemon.endpoint.replace('tcp', 'emlio')}/images", **options))
        next(iter(loader))
        time.sleep(0.5)
        assert daemon.metrics_url is not None
        yield daemon.metrics_url.removesuffix("metrics")


def _browse(*words: str) -> str:
    assert BROWSER is not None
    usual = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=5000"]
    done = subprocess.run([BROWSER, *usual, *words], capture_output=True, text=True, timeout=90, check=True)
    return done.stdout


def test_it_shows_the_daemon_the_job_and_what_holds_it_up(url: str) -> None:
    page = _browse("--dump-dom", url)
    shown = re.sub(r"<[^>]+>", " ", page[page.index("<main>") : page.index("</main>")])
    for text in ("serving", "images@1", "of 1 rank", "held up by", "Next:", "records in memory", "nothing"):
        assert text in shown
    assert "&lt;b&gt;run-7&lt;/b&gt;" in page, "names come from others, and are text"
    assert "<b>run-7" not in page


@pytest.mark.parametrize("dark", [False, True], ids=["by day", "by night"])
@pytest.mark.parametrize("width", [1280, 500])
def test_it_fits_its_window(url: str, width: int, dark: bool, tmp_path: Path) -> None:
    out = tmp_path / "page.png"
    night = ["--blink-settings=preferredColorScheme=0"] if dark else []
    _browse(f"--window-size={width},1200", f"--screenshot={out}", *night, url)
    assert struct.unpack(">II", out.read_bytes()[16:24]) == (width, 1200)
    assert out.stat().st_size > 20_000, "it is not empty"
