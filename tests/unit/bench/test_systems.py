import os
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest

from emlio.errors import ConfigError, DatasetError
from emlio.tfrecord import frame
from emlio_bench.harness.contest import Corpus
from emlio_bench.race.consumers.consume import Reading, Tree, consume, records_of
from emlio_bench.race.needs.environments import (
    ENVIRONMENTS,
    cache_folder,
    environment_python,
    find_program,
    why_no_environment,
)
from emlio_bench.race.records.corpus import CORPORA, corpus_of, made_once
from emlio_bench.race.records.order import Epoch
from emlio_bench.race.systems.entries import all_rivals
from emlio_bench.race.systems.others import dali_local, pytorch_files, spdl
from emlio_bench.race.systems.system import DEFAULT, Setting, setting

NOWHERE = Path("/nonexistent-cache")
RIVALS = (*all_rivals(NOWHERE), *all_rivals(NOWHERE, NOWHERE))


def record(number: int, size: int = 20) -> bytes:
    return number.to_bytes(8, "little") + bytes(size - 8)


def batches_of(numbers: list[int], batch: int) -> Iterator[list[bytes]]:
    for first in range(0, len(numbers), batch):
        yield [record(number) for number in numbers[first : first + batch]]


def read(batches: Iterator[list[bytes]], *, number: int = 0, step_ns: int = 0, limit_ns: int = 1 << 62) -> Epoch:
    reading = Reading(number, 0)
    return msgspec.convert(reading.said(cut=reading.read(batches, step_ns, limit_ns)), Epoch)


def epoch_of(numbers: list[int], batch: int = 4) -> Epoch:
    return read(batches_of(numbers, batch), number=3)


# ---- corpora --------------------------------------------------------------------------------------------------------


def test_a_corpus_is_as_large_as_it_was_asked_for() -> None:
    for kind in CORPORA:
        corpus = corpus_of(kind, 600_000_000)
        assert 0 <= 600_000_000 - corpus.payload_bytes < corpus.record_bytes

    with pytest.raises(ConfigError, match="got 'tiny'"):
        corpus_of("tiny", 1000)


def test_a_form_is_made_once_and_never_by_halves(tmp_path: Path) -> None:
    made: list[Path] = []

    def half(target: Path) -> None:
        (target / "one").touch()
        raise DatasetError("in the middle")

    def whole(target: Path) -> None:
        made.append(target)
        (target / "two").touch()

    with pytest.raises(DatasetError, match="in the middle"):
        made_once(tmp_path / "form", half)
    assert not (tmp_path / "form").exists()
    for _ in range(2):
        assert made_once(tmp_path / "form", whole) == tmp_path / "form"
    assert len(made) == 1
    assert [path.name for path in (tmp_path / "form").iterdir()] == ["two"]


# ---- what a consumer says -------------------------------------------------------------------------------------------


def test_an_epoch_in_any_order_is_exact_when_each_record_came_once() -> None:
    corpus = Corpus(records=10, record_bytes=20)
    epoch = epoch_of([7, 3, 0, 9, 1, 2, 8, 4, 6, 5])
    assert epoch.is_exact(corpus)
    assert (epoch.epoch, epoch.records, epoch.distinct, epoch.batches) == (3, 10, 10, 3)
    assert epoch.payload_bytes == corpus.payload_bytes


@pytest.mark.parametrize("numbers", [[0, 1, 2], [0, 1, 2, 2], [0, 1, 2, 3, 3], [0, 1, 2, 4], []])
def test_an_epoch_that_lacks_or_repeats_a_record_is_not_exact(numbers: list[int]) -> None:
    assert not epoch_of(numbers).is_exact(Corpus(records=4, record_bytes=20))


def test_mixing_is_how_many_storage_blocks_a_batch_has() -> None:
    assert epoch_of([0, 1, 639, 2]).blocks == 1.0
    assert epoch_of([0, 640, 1280, 5]).blocks == 3.0
    assert epoch_of([0, 1, 2, 3, 0, 640, 1280, 1920]).blocks == 2.5


def test_waiting_and_steps_are_told_apart() -> None:
    step_ns = 2_000_000
    epoch = read(batches_of([0, 1], 1), step_ns=step_ns)
    assert epoch.ended_ns - epoch.first_batch_ns >= 2 * step_ns
    assert epoch.wait_ns <= epoch.ended_ns - epoch.begun_ns - 2 * step_ns


def test_when_each_step_ran_is_said_beside_an_epoch() -> None:
    step_ns = 2_000_000
    reading = Reading(0, time.monotonic_ns())
    said = reading.said(cut=reading.read(batches_of([0, 1, 2], 1), step_ns, 1 << 62))
    edges = [moment for step in said["steps"] for moment in step]
    assert len(edges) == 6
    assert edges == sorted(edges)
    assert said["begun_ns"] <= edges[0]
    assert edges[-1] <= said["ended_ns"]
    assert all(end - start >= step_ns for start, end in said["steps"])
    assert Reading(0, 0).said(cut=False)["steps"] == []


def test_a_model_learns_in_place_of_a_pause_and_its_losses_are_said() -> None:
    reading = Reading(0, time.monotonic_ns())
    cut = reading.read(batches_of([0, 1, 2], 1), 0, 1 << 62, lambda batch: float(batch[0][0]) + 0.5)
    epoch = msgspec.convert(reading.said(cut=cut), Epoch)
    assert epoch.losses == (0.5, 1.5, 2.5)
    assert len(epoch.learned_ns) == 3
    assert epoch.first_batch_ns - epoch.begun_ns <= epoch.learned_ns[0]
    assert list(epoch.learned_ns) == sorted(epoch.learned_ns)
    assert epoch.learned_ns[-1] <= epoch.ended_ns - epoch.begun_ns
    assert epoch_of([0, 1]).losses == ()


def test_an_epoch_that_passes_its_limit_is_cut_after_the_batch_that_came() -> None:
    asked: list[int] = []

    def endless() -> Iterator[list[bytes]]:
        while True:
            asked.append(len(asked))
            yield [record(asked[-1])]

    epoch = read(endless(), limit_ns=1)
    assert epoch.cut
    assert asked == [0]
    assert (epoch.records, epoch.batches) == (1, 1)
    assert not epoch.is_exact(Corpus(records=4, record_bytes=20))


def test_no_epoch_comes_after_one_that_was_cut(tmp_path: Path) -> None:
    step_ns = 1_000_000
    said: list[dict[str, Any]] = []

    @contextmanager
    def open_source(order: dict[str, Any]) -> Iterator[Callable[[int], Iterator[list[bytes]]]]:
        yield lambda number: batches_of([0, 1, 2, 3], 1)

    reader = ModuleType("reader")
    reader.__dict__["open_source"] = open_source
    order = {
        "epochs": 3,
        "step_ns": step_ns,
        "limit_ns": step_ns // 2,
        "decode": False,
        "decoders": 1,
        "options": {},
        "folder": str(tmp_path),
    }
    consume(reader, order, said.append, Tree())
    assert [(message.get("epoch"), message.get("records"), message.get("cut")) for message in said] == [
        (0, 1, True),
        (None, None, None),
    ]


def test_records_are_found_in_tfrecord_files(tmp_path: Path) -> None:
    for shard in range(2):
        (tmp_path / str(shard)).write_bytes(b"".join(frame(record(2 * shard + number)) for number in range(2)))
    assert list(records_of([str(tmp_path / "0"), str(tmp_path / "1")])) == [record(number) for number in range(4)]


# ---- systems ---------------------------------------------------------------------------------------------------------


def test_every_system_has_its_defaults_first_each_setting_once_and_few_usual_ones() -> None:
    for system in RIVALS:
        names = [one.name for one in system.settings(30_000_000)]
        usual = [one.name for one in system.settings(30_000_000) if one.usual]
        assert len(set(names)) == len(names)
        assert usual[0] == names[0]
        assert len(usual) <= 2
        assert names[0] == DEFAULT or system.family == "limit"
        assert system.environment is None or system.environment in ENVIRONMENTS


def test_a_users_mount_has_the_settings_that_differ_in_more_than_the_mount() -> None:
    found = pytorch_files(NOWHERE, NOWHERE).settings(0)
    assert [(one.name, dict(one.options)["mount"]) for one in found] == [
        ("default", "user"),
        ("16 workers", "user"),
        ("tuned", "user"),
    ]
    assert [one.words for one in spdl(NOWHERE, NOWHERE).settings(0)][-1] == "the user's mount, 64 tasks"


def test_a_system_without_its_environment_says_what_it_needs() -> None:
    told = [system.not_made() or "" for system in RIVALS if system.environment]
    assert all("needs its environment" in one for one in told)


def test_the_version_of_dali_is_told_for_each_cuda_that_emlio_can_be_installed_with() -> None:
    extras = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = {extras["optional-dependencies"][extra][0].partition(">")[0] for extra in ("dali", "dali-cuda13")}
    assert wanted == set(dali_local().claim.packages)


def test_a_setting_with_an_option_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match="each option once"):
        Setting(name="default", words="", options=(("workers", "1"), ("workers", "2")))
    assert setting("default", "", workers=4).options == (("workers", "4"),)

    # ---- environments ---------------------------------------------------------------------------------------------------

    assert cache_folder(Path("/chosen"), {"XDG_CACHE_HOME": "/other"}) == Path("/chosen")
    assert cache_folder(None, {"XDG_CACHE_HOME": "/other"}) == Path("/other/emlio-bench")
    assert cache_folder(None, {}) == Path.home() / ".cache" / "emlio-bench"


def test_every_environment_has_its_pinned_requirements() -> None:
    for name in ENVIRONMENTS:
        assert why_no_environment(name) is None
        path = Path(__file__).resolve().parents[3] / "requirements" / "systems" / f"{name}.txt"
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
        assert lines
        assert all(line.count("==") == 1 for line in lines)


def test_an_environment_of_other_requirements_is_not_taken(tmp_path: Path) -> None:
    folder = tmp_path / "environments" / "torch"
    folder.mkdir(parents=True)
    (folder / "made").write_text("of other requirements\n", encoding="utf-8")
    assert environment_python("torch", tmp_path) is None
    with pytest.raises(ConfigError, match="an environment must be one of"):
        environment_python("fortran", tmp_path)


def test_a_program_in_the_cache_is_found_before_others(tmp_path: Path) -> None:
    assert find_program("sh", tmp_path) != str(tmp_path / "bin" / "sh")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "sh").touch()
    assert find_program("sh", tmp_path) == str(tmp_path / "bin" / "sh")
    assert find_program(f"no-program-{os.getpid()}", tmp_path) is None
