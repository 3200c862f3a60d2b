"""Pictures that are decoded on their way to a consumer: from a daemon, from this host's disks, by DALI's own reader."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from emlio_bench.race.corpus import PICTURES, Corpus
from emlio_bench.race.file_forms import as_files
from emlio_bench.race.outcome import Contest
from emlio_bench.race.subjects.dali_local import DaliLocal
from emlio_bench.race.subjects.ours import Local, Remote
from emlio_bench.race.system import System
from tests.integration.race_job import run_over_relay

CORPUS = Corpus(records=40, record_bytes=94_000, kind=PICTURES)
CONTEST = Contest(name="pictures", words="decoded", corpus=CORPUS, rtt_ns=2_000_000, batch=16, decode=True)


@pytest.fixture(scope="module")
def forms(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("forms")


@pytest.mark.skipif(find_spec("nvidia.dali") is None, reason="needs nvidia-dali")
@pytest.mark.parametrize(
    "system",
    [
        pytest.param(Remote(), id="emlio"),
        pytest.param(Local(), id="emlio-local", marks=pytest.mark.slow),
        pytest.param(DaliLocal(), id="dali-local"),
    ],
)
def test_each_picture_is_decoded_once(system: System, forms: Path) -> None:
    run = run_over_relay(system, CONTEST, forms)
    assert run.failure is None
    assert [epoch.is_exact(CORPUS) for epoch in run.epochs] == [True, True]
    assert [epoch.payload_bytes for epoch in run.epochs] == [CORPUS.payload_bytes] * 2
    assert [epoch.batches for epoch in run.epochs] == [3, 3]


def test_pictures_as_files_are_the_same_pictures_under_their_numbers(forms: Path) -> None:
    files = sorted(as_files(CORPUS, forms).rglob("*.jpg"))
    assert [int(path.stem) for path in files] == list(range(CORPUS.records))
    for path in files:
        assert path.read_bytes()[:2] == b"\xff\xd8"
        assert path.read_bytes()[-2:] == b"\xff\xd9"
