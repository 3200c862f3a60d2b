"""Cells of a notebook: what they show, and what is left of one that is run again or interrupted.

IPython is not needed: a cell is code that is run in one namespace, and a kernel keeps the last error. What a kernel offers for
display is replaced by a recorder.
"""

import _thread
import io
import logging
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from emlio import EmlioLoader
from emlio.daemon.config import DaemonConfig, DatasetSource, Endpoint
from emlio.daemon.service import Daemon
from emlio.progress import Progress
from emlio_testing.datasets import make_dataset
from emlio_testing.processes import settles

_CELL = """
from emlio import EmlioLoader
loader = EmlioLoader(address, batch_size=4, raw=True, to="numpy", transform=transform, threads=2)
for batch in loader:
    seen.append(len(batch["record"]))
"""


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    make_dataset(tmp_path / "x", records=20, shards=2)
    bind = Endpoint(host="127.0.0.1", port=0)
    with Daemon(DaemonConfig(data=(DatasetSource(name="x", directory=tmp_path / "x"),), bind=bind)) as daemon:
        yield f"{daemon.endpoint.replace('tcp', 'emlio')}/x"


class _Kernel:
    """Runs cells in one namespace and keeps the last error, as IPython does."""

    def __init__(self, **names: Any) -> None:
        self.names: dict[str, Any] = names
        self.last: BaseException | None = None

    def run(self, cell: str) -> None:
        try:
            exec(cell, self.names)
        except KeyboardInterrupt as error:
            self.last = error

    def forget(self) -> None:
        """Forget everything, as at the kernel's end."""
        self.last = None
        self.names.clear()


class _Log(logging.Handler):
    """Counts the daemon's sessions."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.began = self.ended = 0

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        self.began += text.endswith(" began")
        self.ended += " ended: " in text

    @property
    def open(self) -> int:
        return self.began - self.ended


@pytest.fixture
def sessions() -> Iterator[_Log]:
    log, logger = _Log(), logging.getLogger("emlio.daemon")
    before = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(log)
    yield log
    logger.removeHandler(log)
    logger.setLevel(before)


def _receivers() -> int:
    return sum(thread.name == "emlio-receive" for thread in threading.enumerate())


def _as_it_comes(sample: Any) -> Any:
    return sample


def test_of_a_cell_that_is_run_again_only_the_last_loader_is_left(address: str, sessions: _Log) -> None:
    kernel = _Kernel(address=address, transform=_as_it_comes, seen=[])
    for _ in range(3):
        kernel.run(_CELL)
        assert kernel.last is None
    assert kernel.names["seen"] == [4] * 15
    assert settles(lambda: _receivers() == 1 and sessions.open == 1, 30.0)
    kernel.forget()
    assert settles(lambda: _receivers() == 0 and sessions.open == 0, 30.0)


@pytest.mark.parametrize("where", ["loop", "wait", "get"])
def test_a_cell_that_was_interrupted_and_run_again_leaves_nothing_of_the_first(
    address: str, sessions: _Log, where: str
) -> None:
    blocked, go_on = threading.Event(), threading.Event()

    def transform(sample: Any) -> Any:
        if where == "wait":
            blocked.set()
            go_on.wait(10.0)
        return sample

    def interrupted(sample: Any) -> Any:
        raise KeyboardInterrupt

    cell = _CELL
    if where == "loop":
        cell += "    stop()\n"
    elif where == "get":
        cell = cell.partition("for ")[0] + "loader.get([1, 2])\n"
    first = interrupted if where == "get" else transform
    kernel = _Kernel(address=address, transform=first, seen=[], stop=_interrupt)
    thread = threading.Thread(target=lambda: blocked.wait(10.0) and _thread.interrupt_main())
    if where == "wait":
        thread.start()
    kernel.run(cell)
    go_on.set()
    assert isinstance(kernel.last, KeyboardInterrupt)
    kernel.names.update(transform=_as_it_comes, stop=lambda: None)
    kernel.run(_CELL)
    assert kernel.names["seen"][-5:] == [4] * 5
    assert settles(lambda: _receivers() == 1 and sessions.open == 1, 30.0), (_receivers(), sessions.open)
    kernel.forget()
    assert settles(lambda: _receivers() == 0, 30.0)
    if where == "wait":
        thread.join()


def _interrupt() -> None:
    raise KeyboardInterrupt


# ---- what is shown ------------------------------------------------------------------------------------------------


class _Shown:
    """A kernel's display: what each place showed, in order."""

    def __init__(self) -> None:
        self.places: list[list[Any]] = []

    def display(self, thing: Any, *, display_id: bool) -> Any:
        assert display_id
        place = [thing]
        self.places.append(place)
        return SimpleNamespace(update=place.append)


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> _Shown:
    found = _Shown()
    ipython: Any = ModuleType("IPython")
    ipython.get_ipython = lambda: SimpleNamespace(kernel=object())
    display: Any = ModuleType("IPython.display")
    display.display = found.display
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    return found


def test_progress_has_one_place_in_a_cell_for_each_epoch(
    address: str, shown: _Shown, capsys: pytest.CaptureFixture[str]
) -> None:
    with EmlioLoader(address, batch_size=4, raw=True, to="numpy", progress=True) as loader:
        for _ in range(2):
            assert sum(len(batch["record"]) for batch in loader) == 20
    assert len(shown.places) == 2
    last = shown.places[1][-1]
    assert '<progress max="1" value="1.000"></progress> 100%' in last._repr_html_()
    assert repr(last).startswith("epoch 1 ")
    assert capsys.readouterr().err == ""


def test_a_label_is_escaped_and_an_unknown_end_has_no_bar(shown: _Shown) -> None:
    with Progress("<b>", None) as line:
        line.add(3)
    html = shown.places[0][-1]._repr_html_()
    assert "&lt;b&gt;" in html
    assert "progress" not in html


def test_without_a_kernel_nothing_is_shown(shown: _Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["IPython"], "get_ipython", lambda: SimpleNamespace())
    with Progress("work", 3) as line:
        line.add(3)
    monkeypatch.delitem(sys.modules, "IPython")
    with Progress("work", 3) as line:
        line.add(3)
    other = io.StringIO()
    with Progress("work", 3, stream=other) as line:
        line.add(3)
    assert (shown.places, other.getvalue()) == ([], "")


def _html(figures: Any) -> str:
    """The HTML that a notebook shows."""
    html: str = figures._repr_html_()
    return html


def test_figures_are_a_table_in_a_notebook(address: str) -> None:
    with EmlioLoader(address, batch_size=4, raw=True, to="numpy") as loader:
        before = _html(loader.stats())
        assert "no batch was handed out yet" in before
        assert sum(1 for _ in loader) == 5
        for figures in (loader.stats(), loader.epoch_stats()):
            html = _html(figures)
            assert html.startswith("<table>")
            assert ">records<" in html.replace("</td>", "<")
            assert ">20</td>" in html
            assert figures.verdict in html
