"""Every system reads a small corpus over an emulated link that holds nothing back, and each record comes once.

Environments are not made here: a system is skipped where `emlio-bench race` has not made its own. EMLIO_RACE_CACHE names the
folder they lie in, where that is not the usual one.
"""

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import msgspec
import pytest

from emlio_bench.harness.contest import Corpus
from emlio_bench.link.contract import LinkSpec
from emlio_bench.link.emulated import EmulatedLink, why_not
from emlio_bench.processes.child import Child
from emlio_bench.race.needs.environments import cache_folder
from emlio_bench.race.records.order import Epoch, Finished, RaceOrder
from emlio_bench.race.systems.limits import BareSockets, Iperf3
from emlio_bench.race.systems.others import (
    WebDataset,
    dali_files,
    grain,
    hf_datasets,
    litdata,
    mosaic,
    pytorch_files,
    spdl,
)
from emlio_bench.race.systems.ours import Local, PaperWay, Remote
from emlio_bench.race.systems.system import Setting, System
from emlio_bench.race.systems.tfdata_service import TfDataService

SLOW_S = 120.0
LIMIT_NS = 120_000_000_000
CORPUS = Corpus(records=300, record_bytes=3000)
EPOCHS = 2
BATCH = 16


CACHE = cache_folder(Path(os.environ["EMLIO_RACE_CACHE"]) if "EMLIO_RACE_CACHE" in os.environ else None, os.environ)


@pytest.fixture(scope="module", autouse=True)
def links_are_possible() -> None:
    reason = why_not()
    if reason is not None:
        pytest.skip(f"an emulated link {reason}")


@pytest.fixture(scope="module")
def forms(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("forms")


def run(system: System, setting: Setting, forms: Path, tmp_path: Path) -> tuple[list[Epoch], Finished]:
    prepared = system.prepare(CORPUS, forms)
    with EmulatedLink(LinkSpec(rtt_ns=0)) as link, system.serve(prepared, link) as url:
        order = RaceOrder(
            url=url,
            corpus=CORPUS,
            batch=BATCH,
            epochs=EPOCHS,
            seed=1,
            step_ns=0,
            limit_ns=LIMIT_NS,
            decode=False,
            folder=str(tmp_path),
            options=dict(setting.options),
        )
        with Child(system.name, link.training.command(system.command(order))) as consumer:
            lines = consumer.rest(SLOW_S).splitlines()
        if system.name != "emlio-local":  # nobody reads past the link
            assert link.counts().to_training.wire_bytes > CORPUS.payload_bytes
    epochs = [msgspec.json.decode(line, type=Epoch) for line in lines[:-1]]
    return epochs, msgspec.json.decode(lines[-1], type=Finished)


def check_exact(epochs: list[Epoch], finished: Finished) -> None:
    assert [epoch.epoch for epoch in epochs] == list(range(EPOCHS))
    for epoch in epochs:
        assert not epoch.cut
        assert epoch.is_exact(CORPUS)
        assert epoch.distinct == CORPUS.records
        assert epoch.payload_bytes == CORPUS.payload_bytes
        assert epoch.batches >= CORPUS.records // BATCH
        assert epoch.begun_ns < epoch.first_batch_ns <= epoch.ended_ns
        assert 0 < epoch.wait_ns <= epoch.ended_ns - epoch.begun_ns
    assert finished.cpu_ns > 0
    assert finished.peak_rss_bytes > 1 << 20


@pytest.mark.parametrize(
    "system", [pytest.param(Remote(), id="emlio"), pytest.param(Local(), id="emlio-local", marks=pytest.mark.slow)]
)
def test_ours_reads_each_record_once(system: System, forms: Path, tmp_path: Path) -> None:
    for setting in system.settings(0):
        epochs, finished = run(system, setting, forms, tmp_path)
        check_exact(epochs, finished)
        assert finished.cache_bytes == 0


def skip_without(system: System) -> None:
    reason = system.lacks() or system.not_made() or system.why_no_server()
    if reason is not None:
        pytest.skip(f"{system.name} {reason}")


def test_the_papers_way_reads_each_record_once(forms: Path, tmp_path: Path) -> None:
    system = PaperWay()
    skip_without(system)
    for setting in system.settings(0):
        epochs, finished = run(system, setting, forms, tmp_path)
        check_exact(epochs, finished)


def test_iperf_says_bytes_and_no_records(forms: Path, tmp_path: Path) -> None:
    system = Iperf3()
    skip_without(system)
    eight = dataclasses.replace(system.settings(0)[1], options=(("streams", "8"), ("seconds", "1"), ("left_out", "0")))
    epochs, _ = run(system, eight, forms, tmp_path)
    assert len(epochs) == EPOCHS
    for epoch in epochs:
        assert epoch.payload_bytes > 1_000_000
        assert epoch.ended_ns - epoch.begun_ns > 500_000_000
        assert epoch.records == 0


def test_bare_sockets_say_bytes_and_no_records(forms: Path, tmp_path: Path) -> None:
    system = BareSockets()
    short = dataclasses.replace(system.settings(0)[0], options=(("seconds", "0.5"), ("left_out", "0.1")))
    epochs, _ = run(system, short, forms, tmp_path)
    assert len(epochs) == EPOCHS
    for epoch in epochs:
        assert epoch.payload_bytes > 10_000_000
        assert 500_000_000 <= epoch.ended_ns - epoch.begun_ns < 5_000_000_000
        assert epoch.records == 0


def chosen(system: System, *names: str) -> list[Setting]:
    settings = {setting.name: setting for setting in system.settings(30_000_000)}
    return [settings[name] for name in names]


def test_webdataset_reads_each_record_once(forms: Path, tmp_path: Path) -> None:
    system = WebDataset(cache=CACHE)
    skip_without(system)
    for setting in chosen(system, "default", "tuned"):
        epochs, finished = run(system, setting, forms, tmp_path)
        check_exact(epochs, finished)
        assert finished.cache_bytes == 0


def test_mosaic_reads_each_record_once_and_leaves_them_on_the_disk(forms: Path, tmp_path: Path) -> None:
    system = mosaic(CACHE)
    skip_without(system)
    shared = set(os.listdir("/dev/shm"))
    (setting,) = chosen(system, "2 workers")
    epochs, finished = run(system, setting, forms, tmp_path)
    check_exact(epochs, finished)
    assert finished.cache_bytes >= CORPUS.payload_bytes
    assert not [name for name in os.listdir("/dev/shm") if name not in shared and name.startswith("0000")]


def test_litdata_reads_each_record_once_and_leaves_them_on_the_disk(forms: Path, tmp_path: Path) -> None:
    system = litdata(CACHE)
    skip_without(system)
    for setting in chosen(system, "default", "tuned"):
        folder = tmp_path / setting.name
        folder.mkdir()
        epochs, finished = run(system, setting, forms, folder)
        check_exact(epochs, finished)
        assert finished.cache_bytes >= CORPUS.payload_bytes


def check_unmounted(tmp_path: Path) -> None:
    assert str(tmp_path) not in Path("/proc/self/mounts").read_text(encoding="utf-8")
    assert not list(tmp_path.parent.glob(f"{tmp_path.name}*-mount"))


def test_pytorch_reads_each_file_once_over_a_mount(forms: Path, tmp_path: Path) -> None:
    system = pytorch_files(CACHE)
    skip_without(system)
    for setting in chosen(system, "default", "tuned mount"):
        epochs, finished = run(system, setting, forms, tmp_path)
        check_exact(epochs, finished)
        assert finished.cache_bytes == 0
        check_unmounted(tmp_path)


@pytest.mark.parametrize("form", ["file", "tfrecord"])
def test_dali_reads_each_record_once_over_a_mount(
    form: Literal["file", "tfrecord"], forms: Path, tmp_path: Path
) -> None:
    system = dali_files(form, CACHE)
    skip_without(system)
    for setting in chosen(system, "default", "tuned"):
        epochs, finished = run(system, setting, forms, tmp_path)
        check_exact(epochs, finished)
        assert finished.cache_bytes == 0
        check_unmounted(tmp_path)


def test_hugging_face_datasets_reads_each_record_once_from_either_form(forms: Path, tmp_path: Path) -> None:
    system = hf_datasets(CACHE)
    skip_without(system)
    for setting in chosen(system, "default", "tuned", "tar files"):
        epochs, finished = run(system, setting, forms, tmp_path)
        check_exact(epochs, finished)
        assert finished.cache_bytes < CORPUS.record_bytes


@pytest.mark.parametrize("make", [spdl, grain])
def test_loaders_of_threads_read_each_record_once_over_a_mount(
    make: Callable[[Path], System], forms: Path, tmp_path: Path
) -> None:
    system = make(CACHE)
    skip_without(system)
    for setting in chosen(system, "default", "tuned"):
        epochs, finished = run(system, setting, forms, tmp_path)
        check_exact(epochs, finished)
        assert finished.cache_bytes == 0
        check_unmounted(tmp_path)


def test_tf_data_service_reads_each_record_once(forms: Path, tmp_path: Path) -> None:
    system = TfDataService(cache=CACHE)
    skip_without(system)
    for setting in chosen(system, "default", "tuned"):
        epochs, finished = run(system, setting, forms, tmp_path)
        check_exact(epochs, finished)
        assert finished.cache_bytes == 0
