"""`emlio-bench mixtures`, quickly: EMLIO reads both mixtures over a link, and the others are named that cannot."""

from pathlib import Path

import msgspec
import pytest

from emlio_bench.cli import main
from emlio_bench.formats.outcome import epoch_seconds
from emlio_bench.harness.plot import blank_figure, png_bytes
from emlio_bench.harness.results import RESULTS, read_results
from emlio_bench.link.emulated import why_not
from emlio_bench.mixtures.outcome import MixturesResults, is_faultless
from emlio_bench.mixtures.subjects import SUBJECTS


@pytest.fixture(scope="module", autouse=True)
def fonts() -> None:
    """matplotlib keeps font files open for as long as a process lives: from here on they are no test's."""
    png_bytes(blank_figure(3, 2, title="A title in bold")[0])


@pytest.mark.slow
def test_both_mixtures_are_read_as_planned_and_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reason = why_not()
    if reason is not None:
        pytest.skip(f"an emulated link {reason}")
    out = tmp_path / "out"
    argv = ["--tiny", "--rtt", "5ms", "--no-install", "--cache", str(tmp_path / "none"), "--out", str(out)]
    assert main(["mixtures", *argv]) == 0
    text = capsys.readouterr().out
    results = msgspec.json.decode((out / RESULTS).read_bytes(), type=MixturesResults)
    assert [(run.contest, run.subject) for run in results.runs] == [(mix.name, "emlio") for mix in results.mixes]
    assert all(is_faultless(one, mix) for one, mix in zip(results.draws, results.mixes, strict=True))
    assert [one.distinct for one in results.draws] == [(72, 36, 12), (40, 36, 12)]
    assert all(epoch_seconds(run) > 0.005 and not run.epochs[0].ids for run in results.runs)
    # Any 50 samples in a row: off by less than a twentieth of them.
    assert max(float(abs(one).max()) for contest in results.contests for one in results.windows(contest, "emlio")) < 4
    missing = {one.subject for one in results.entrants if one.missing is not None}
    assert missing == set(SUBJECTS) - {"emlio"}
    assert "in a batch of 16: largest" in text
    page = (out / "report.md").read_text(encoding="utf-8")
    assert "* mosaic needs its environment, mosaic, which is not made" in page
    assert (out / "deviations.png").stat().st_size > 10_000
    # Other commands find its figures.
    found = {figure.name for figure in read_results(out / RESULTS).figures}
    assert "each record once, emlio: largest deviation in a window" in found
