"""Half of the shards on the training host, half at the storage: who reads both."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from emlio_bench.harness.contest import Contest, Corpus
from emlio_bench.race.quantity import Quantity
from emlio_bench.race.records.halves import in_halves
from emlio_bench.race.systems.others import dali_files
from emlio_bench.race.systems.ours import Local, Remote
from tests.integration.bench.race_job import run_over_link

CORPUS = Corpus(records=3000, record_bytes=2000)
CONTEST = Contest(name="sharded", words="here and there", corpus=CORPUS, rtt_ns=2_000_000, batch=16, halves=True)


def test_a_loader_reads_half_of_its_records_over_the_link(tmp_path: Path) -> None:
    run = run_over_link(Remote(), CONTEST, tmp_path)
    assert run.failure is None
    assert run.words["exact"] == "yes"
    assert 0.3 < run.value(Quantity.WIRE_SHARE) < 0.7


@pytest.mark.skipif(find_spec("nvidia.dali") is None, reason="needs nvidia-dali")
def test_dali_reads_shards_of_two_folders(tmp_path: Path) -> None:
    run = run_over_link(dali_files("tfrecord", tmp_path, tmp_path / "mount"), CONTEST, tmp_path)
    assert run.failure is None
    assert run.words["exact"] == "yes"


def test_only_those_who_read_shards_of_two_places_take_part(tmp_path: Path) -> None:
    files = dali_files("file", tmp_path)
    assert [system.claim.halves for system in (Remote(), Local(), files)] == [True, False, False]


def test_every_file_of_a_shard_lies_in_one_half(tmp_path: Path) -> None:
    whole = Remote().prepare(CORPUS, tmp_path)
    halves = in_halves(whole)
    storage, training = (sorted(path.name for path in half.iterdir()) for half in (halves.storage, halves.training))
    numbered = [name for name in storage + training if any(letter.isdigit() for letter in name)]
    assert len(storage) == len(training) > 1
    assert sorted(numbered) == sorted(path.name for path in whole.iterdir() if path.name in numbered)
    assert {*storage, *training} == {path.name for path in whole.iterdir() if path.is_file()}
    assert in_halves(whole) == halves
