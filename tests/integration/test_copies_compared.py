"""Copies of a shard at several daemons that differ where no sample of its bytes is: predicates must hold for the same records.

Covers: copies compared before the plan, of a daemon that joins, of one that comes back, of a directory; bits sent once. Does
not cover: what predicates mean (test_loader_predicates), changed files at one daemon (test_predicates_kept).
"""

import json
import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from emlio import EmlioLoader, Weights
from emlio.daemon.config import DaemonConfig, DatasetSource, Endpoint
from emlio.daemon.service import Daemon
from emlio.errors import DatasetError, PeerLostError
from emlio.session.questions import QuestionsAnswered
from emlio.wire.questions import AskMatches, Question
from emlio_testing.loader_arguments import loader_arguments
from emlio_testing.processes import settles
from emlio_testing.proxy import free_ports

_RECORDS = 1000
_LABELS = [number % 2 for number in range(_RECORDS)]
_CORRECTED = [1 - label if 400 < number < 460 else label for number, label in enumerate(_LABELS)]
"""Corrected where no sample of the file is."""

_CHOICES: dict[str, dict[str, Any]] = {
    "subset": {"subset": "y == 1"},
    "weights": {"weights": Weights({0: 0, 1: 1}, column="y"), "samples": 500},
}


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def _folder(path: Path, labels: list[int] = _LABELS, *shards: str) -> Path:
    path.mkdir(exist_ok=True)
    for shard in shards or ("a",):
        lines = (json.dumps({"y": label, "pad": shard * 10_000}) + "\n" for label in labels)
        (path / f"{shard}.jsonl").write_text("".join(lines))
    return path


def _serving(folder: Path, port: int = 0) -> Daemon:
    return Daemon(
        DaemonConfig(
            data=(DatasetSource(name="data", directory=folder),),
            bind=Endpoint(host="127.0.0.1", port=port),
            cache_dir=folder.parent / f"cache-{folder.name}",
            message_size=65536,
            memory=1 << 20,
        )
    )


@contextmanager
def _daemon(folder: Path, port: int = 0) -> Iterator[int]:
    """A daemon; tells its port."""
    with _serving(folder, port) as daemon:
        yield _port(daemon)


def _port(daemon: Daemon) -> int:
    return int(daemon.endpoint.rpartition(":")[2])


def _loader(*ports: int, **options: Any) -> EmlioLoader:
    usual: dict[str, Any] = {
        "batch_size": 10, "to": "numpy", "epochs": 1, "prefetch": "1MiB", "heartbeat": "1s", "timeout": "20s",
    }  # fmt: skip
    hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
    return EmlioLoader(f"emlio://{hosts}/data", **loader_arguments(**(usual | options)))


def _labels(batches: Iterator[Any]) -> list[int]:
    found = list[int]()
    _take(batches, found)
    return found


def _take(batches: Iterator[Any], into: list[int]) -> None:
    """Add the labels of the batches that come, also before an error."""
    for batch in batches:
        into.extend(map(int, batch["y"]))


@pytest.mark.parametrize("choice", _CHOICES)
def test_ranks_get_an_error_where_copies_have_other_matches(tmp_path: Path, choice: str) -> None:
    with _daemon(_folder(tmp_path / "one")) as one, _daemon(_folder(tmp_path / "other", _CORRECTED)) as other:
        for rank in range(2):
            with pytest.raises(DatasetError, match="holds for different records") as told:
                _loader(one, other, rank=rank, world_size=2, **_CHOICES[choice])
            assert all(
                word in str(told.value) for word in ("'a.jsonl' of 'data'", f":{one} ", f":{other} ", "sha256sum")
            )


@pytest.mark.parametrize("choice", _CHOICES)
def test_equal_copies_are_asked_for_the_bits_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, choice: str) -> None:
    asked: list[bool] = []
    ask = QuestionsAnswered.ask

    def noted(self: QuestionsAnswered, question: Question) -> None:
        ask(self, question)
        assert isinstance(question.about, AskMatches)
        asked.append(question.about.digests is True)

    monkeypatch.setattr(QuestionsAnswered, "ask", noted)
    with (
        _daemon(_folder(tmp_path / "one")) as one,
        _daemon(_folder(tmp_path / "other")) as other,
        _loader(one, other, **_CHOICES[choice]) as loader,
    ):
        assert sorted(_labels(iter(loader))) == [1] * sum(_LABELS)
    questions = {"subset": 1, "weights": 2}[choice]
    assert sorted(asked) == [False] * questions + [True] * 2 * questions


def test_daemons_with_some_shards_in_common_answer_for_all(tmp_path: Path) -> None:
    both, mixed = _folder(tmp_path / "both", _LABELS, "a", "b"), _folder(tmp_path / "mixed", _LABELS, "b")
    _folder(mixed, [1] * 100, "c")
    with _daemon(both) as one, _daemon(mixed) as other, _loader(one, other, subset="y == 1") as loader:
        assert sorted(_labels(iter(loader))) == [1] * (2 * sum(_LABELS) + 100)


def test_a_daemon_that_joins_with_another_copy_sends_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    late = free_ports(2, "127.0.0.1")[0]
    with ExitStack() as stack:
        with _daemon(_folder(tmp_path / "one")) as one:
            loader = stack.enter_context(_loader(one, subset="y == 1", timeout="4s"))
            batches = iter(loader)
            seen = _labels(next(batches) for _ in range(5))
            stack.enter_context(_daemon(_folder(tmp_path / "other", _CORRECTED), late))
            loader.use_daemons(f"emlio://127.0.0.1:{one},127.0.0.1:{late}/data")
            assert settles(lambda: "holds for different records" in caplog.text, 20)
        with pytest.raises(PeerLostError):  # the first daemon is gone, and the other one does not stand in for it
            _take(batches, seen)
    assert set(seen) == {1}
    assert len(seen) < sum(_LABELS)


def test_a_daemon_that_joins_with_the_same_copy_stands_in(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "emlio.receiver")
    late = free_ports(2, "127.0.0.1")[0]
    with ExitStack() as stack:
        with _daemon(_folder(tmp_path / "one")) as one:
            loader = stack.enter_context(_loader(one, subset="y == 1"))
            batches = iter(loader)
            seen = _labels(next(batches) for _ in range(5))
            stack.enter_context(_daemon(_folder(tmp_path / "other"), late))
            loader.use_daemons(f"emlio://127.0.0.1:{one},127.0.0.1:{late}/data")
            seen += _labels(next(batches) for _ in range(5))
        seen += _labels(batches)
    assert seen == [1] * sum(_LABELS)


@pytest.mark.parametrize("labels", [_LABELS, _CORRECTED], ids=["same", "corrected"])
def test_a_daemon_that_comes_back_must_have_the_same_matches(tmp_path: Path, labels: list[int]) -> None:
    port = free_ports(2, "127.0.0.1")[0]
    folder = _folder(tmp_path / "one")
    with ExitStack() as stack:
        with _daemon(folder, port):
            batches = iter(stack.enter_context(_loader(port, subset="y == 1", timeout="4s")))
            seen = _labels(next(batches) for _ in range(5))
        _folder(folder, labels)
        stack.enter_context(_daemon(folder, port))
        if labels is _LABELS:
            seen += _labels(batches)
            assert len(seen) == sum(_LABELS)
        else:
            with pytest.raises(DatasetError, match="now and when the job began"):
                _take(batches, seen)
    assert set(seen) == {1}


def test_a_daemon_whose_copy_changes_while_it_sends_hands_out_nothing_wrong(tmp_path: Path) -> None:
    other = _folder(tmp_path / "other", _LABELS, "a", "b")
    with (
        _daemon(_folder(tmp_path / "one", _LABELS, "a", "b")) as one,
        _serving(other) as changed,
        _loader(one, _port(changed), subset="y == 1") as loader,
    ):
        batches = iter(loader)
        seen = _labels(next(batches) for _ in range(5))
        _folder(other, _CORRECTED, "a", "b")
        changed.reload()
        _take(batches, seen)
    assert seen == [1] * 2 * sum(_LABELS)


def test_a_directory_here_is_compared_with_daemons(tmp_path: Path) -> None:
    here = _folder(tmp_path / "here", _CORRECTED)
    with _daemon(_folder(tmp_path / "one")) as one:
        with pytest.raises(DatasetError, match="holds for different records"):
            _loader(one, subset="y == 1", local=str(here))
        _folder(here)
        with _loader(one, subset="y == 1", local=str(here)) as loader:
            assert _labels(iter(loader)) == [1] * sum(_LABELS)
