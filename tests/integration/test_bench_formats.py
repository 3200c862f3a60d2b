"""`emlio-bench formats`, quickly: every format is written, indexed, served and read, each record once."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from sample_race import CONTEST, ENVIRONMENT, make_entrant, make_run

from emlio_bench.cli import main
from emlio_bench.formats.contests import form_fields, pairs
from emlio_bench.formats.outcome import BESIDE, FormatsResults, epoch_seconds
from emlio_bench.formats.plot import draw_formats
from emlio_bench.formats.report import formats_parts
from emlio_bench.formats.settings import FormatsSettings
from emlio_bench.harness.contest import Contest, Corpus, Entrant
from emlio_bench.harness.page import markdown_page
from emlio_bench.harness.plot import blank_figure, png_bytes
from emlio_bench.harness.results import RESULTS, read_results
from emlio_bench.link.emulated import why_not
from emlio_bench.race.records.stored_forms import PICTURE_FORMS, TOKEN_FORMS, StoredForm, form_folder

CORPUS = Corpus(records=37, record_bytes=64)


@pytest.fixture(scope="module", autouse=True)
def fonts() -> None:
    """matplotlib keeps font files open for as long as a process lives: from here on they are no test's."""
    png_bytes(blank_figure(3, 2, title="A title in bold")[0])


def measured(argv: list[str], out: Path) -> FormatsResults:
    assert main(["formats", "--tiny", "--out", str(out), *argv]) == 0
    return msgspec.json.decode((out / RESULTS).read_bytes(), type=FormatsResults)


@pytest.mark.slow
def test_all_formats_are_read_over_loopback_and_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = measured(["--ways", "loopback"], tmp_path)
    text = capsys.readouterr().out
    names = [form.name for form in (*PICTURE_FORMS, *TOKEN_FORMS)]
    assert [run.subject for run in results.runs] == names
    assert all(run.failure is None and not run.cut for run in results.runs)
    for contest in results.contests:
        for name in results.subjects(contest):
            (run,) = results.of(contest, name)
            assert run.epochs[0].is_exact(contest.corpus)
            assert run.epochs[0].payload_bytes == contest.corpus.payload_bytes
            assert run.finished is not None
            assert min(run.finished.cpu_ns, run.storage_cpu_ns) > 0
    assert [start.subject for start in results.starts] == names
    assert "/ tfrecord" in text
    assert "/ token-records" in text
    assert (tmp_path / "report.md").read_text(encoding="utf-8").count("| yes |") == len(names)
    assert (tmp_path / "formats.png").stat().st_size > 10_000
    # Other commands find its figures.
    found = {figure.name: figure.values for figure in read_results(tmp_path / RESULTS).figures}
    (run,) = results.of(results.contests[0], "tar")
    assert found["pictures, loopback, tar: first epoch"] == (epoch_seconds(run),)


def test_a_format_is_read_over_a_link(tmp_path: Path) -> None:
    reason = why_not()
    if reason is not None:
        pytest.skip(f"an emulated link {reason}")
    data = tmp_path / "data"
    argv = ["--ways", "link", "--rtt", "5ms", "--formats", "token-records,tokens", "--data", str(data)]
    results = measured(argv, tmp_path / "out")
    assert [run.subject for run in results.runs] == ["token-records", "tokens"]
    assert all(epoch_seconds(run) > 0.005 for run in results.runs)
    assert [path.name for path in sorted((data / "forms").iterdir())] == ["token-records", "tokens"]
    assert not list(data.rglob("*.unseen"))


def test_ratios_are_of_runs_in_one_round() -> None:
    (field,) = form_fields(FormatsSettings(formats=("tfrecord", "tar"), ways=("loopback",)))
    seconds = {"tfrecord": (4.0, 2.0, 3.0), "tar": (8.0, 1.0, 4.5)}
    results = made(field.contest, [entry.entrant for entry in field.entries], seconds)
    (table,) = (table for part in formats_parts(results) for table in part.tables if table.header[0] == "format")
    assert [row[:3] for row in table.rows] == [
        ("tfrecord", "3.00 (2.00..4.00)", "-"),
        ("tar", "4.50 (1.00..8.00)", "1.50 (0.50..2.00)"),
    ]


def test_a_loader_that_was_cut_gives_a_bound_and_one_that_lost_records_says_so() -> None:
    contest = replace(CONTEST, name=BESIDE)
    entrants = [make_entrant(other.name) for other, _ in pairs(Path())] + [
        make_entrant(ours.name, family="ours") for _, ours in pairs(Path())
    ]
    results = made(contest, entrants, {"emlio, tar": (3.0,), "webdataset": (100.0,), "emlio, mds": (3.0,)})
    lossy = make_run(contest, "mosaic", seconds=6.0, lost=1, left_bytes=7_000_000)
    results = replace(results, runs=(*results.runs, lossy), entrants=(*entrants, make_entrant("x", missing="needs y")))
    text = markdown_page("", formats_parts(results, draw_formats(results)))
    assert "| webdataset | > 45.0 | &lt; 0.07 |" in text
    assert "| mosaic | 6.00 | 0.50 |" in text
    assert "| 7.00 | no: 1 of 1 runs |" in text
    assert "| cut |" in text
    assert "* x needs y" in text
    assert "(beside.svg)" in text


def made(contest: Contest, entrants: list[Entrant], seconds: dict[str, tuple[float, ...]]) -> FormatsResults:
    return FormatsResults(
        environment=ENVIRONMENT,
        settings=(),
        contests=(contest,),
        entrants=tuple(entrants),
        runs=tuple(
            make_run(replace(contest, epochs=1), subject, round=number, seconds=value)
            for subject, values in seconds.items()
            for number, value in enumerate(values)
        ),
    )


@pytest.mark.parametrize("form", [*PICTURE_FORMS, *TOKEN_FORMS], ids=lambda form: form.name)
def test_a_form_is_written_once_and_alike(form: StoredForm, tmp_path: Path) -> None:
    folders = [form_folder(form, CORPUS, tmp_path / where) for where in ("one", "one", "other")]
    contents = [
        {path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
        for folder in folders
    ]
    assert folders[0] == folders[1]
    assert contents[0] == contents[2]
    assert contents[0]


def test_what_the_others_are_compared_with_must_be_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["formats", "--tiny", "--formats", "tar", "--out", str(tmp_path)]) == 2
    assert "--formats must have tfrecord" in capsys.readouterr().err
