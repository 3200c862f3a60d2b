"""The report of a benchmark that is no race, in all its forms."""

from pathlib import Path

import pytest

from emlio.errors import ConfigError
from emlio_bench.cli import main
from emlio_bench.harness.page import DATA_ID, PAGE, html_page, markdown_page
from emlio_bench.harness.report import REPORT, Part, render, result_parts, text_page
from emlio_bench.harness.results import RESULTS, SCHEMA, Figure, read_results, write_results
from emlio_bench.harness.table import Table
from tests.unit.test_bench_results import interleaved, run

RESULT = interleaved([(4, 2, 1)] * 2)


def test_the_command_writes_all_forms_into_a_folder_named_after_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_results(RESULT, tmp_path / "delivery.json")
    assert main(["report", str(tmp_path / "delivery.json")]) == 0
    folder = tmp_path / "delivery"
    assert {path.name for path in folder.iterdir()} == {PAGE, REPORT, RESULTS}
    assert read_results(folder / RESULTS) == RESULT
    said = capsys.readouterr().out
    assert said.startswith(render(RESULT))
    assert str(folder) in said


def test_an_older_file_is_refused_by_report_and_compare(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "old.json"
    path.write_text('{"benchmark": "delivery", "environment": {}, "settings": [], "schema": 1}', encoding="utf-8")
    for argv in (["report", str(path)], ["compare", str(path), str(path)]):
        assert main(argv) == 2
        assert f"results must have schema {SCHEMA}, got 1" in capsys.readouterr().err


def test_every_form_has_the_tables_the_doubts_and_the_data() -> None:
    results = run(*RESULT.samples, figures=(Figure(name="wait", unit="ms", values=(3.0,), at_most=2.0),))
    parts = result_parts(results)
    for form in (text_page(parts), markdown_page("EMLIO", parts), html_page("EMLIO", parts, results)):
        for words in ("100 kB records", "a processor, 2 cores", "only 2 round(s)", "MISSED"):
            assert words in form
    assert f'id="{DATA_ID}"' in html_page("EMLIO", parts, results)


def test_two_bounds_of_a_figure_are_two_words() -> None:
    results = run(figures=(Figure(name="ratio", unit="", values=(1.0,), at_least=0.97, at_most=1.03),))
    assert ">= 0.97, <= 1.03" in render(results)


def test_a_part_without_contents_is_left_out() -> None:
    parts = (Part(heading="nothing"), Part(heading="words", text="some"))
    assert text_page(parts) == "some"
    assert markdown_page("title", parts) == "# title\n\n## words\n\nsome\n"


def test_an_empty_column_is_no_part_of_a_text_table() -> None:
    table = Table(header=("name", "empty", "value"), rows=(("a", "", "1"), ("long", "", "20")))
    assert table.text() == "name  value\n-----------\na         1\nlong     20"
    assert Table(header=("", ""), rows=(("a", "b"),), names=2).text() == "a  b"


def test_cells_of_others_are_no_markup() -> None:
    table = Table(header=("name",), rows=(("<b>|*x_\ny",),))
    assert table.markdown().splitlines()[-1] == "| &lt;b>\\|\\*x\\_ y |"
    assert "&lt;b&gt;|*x_" in table.html()


def test_results_go_where_files_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(ConfigError, match="must go where files can be written"):
        write_results(RESULT, tmp_path / "file" / "r.json")
