"""Tables in a page of results."""

from pathlib import Path

import pytest

from emlio.errors import ConfigError
from emlio_bench.cli import main
from emlio_bench.harness.document import check_page, put_into

PAGE = "# Results\n\n```text\nold 1\n\nold 2\n```\n\nWhy.\n\n```text\nanother\n```\n"


def test_new_tables_take_the_place_of_old_ones_and_nothing_else_changes(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    check_page(page)
    assert page.read_text() == PAGE
    put_into(page, "a\\1  b\n----\n1  2\n")
    assert page.read_text() == PAGE.replace("old 1\n\nold 2", "a\\1  b\n----\n1  2")


def test_a_block_may_be_empty_at_first(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```text\n```\n")
    put_into(page, "1\n")
    assert page.read_text() == "```text\n1\n```\n"


@pytest.mark.parametrize("text", ["no block\n", "```python\n```\n", "indented ```text\n```\n", "```text\nnever ends\n"])
def test_a_page_without_a_block_is_refused(tmp_path: Path, text: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    with pytest.raises(ConfigError, match=r"page\.md: must have a block for tables"):
        put_into(page, "1\n")
    assert page.read_text() == text


def test_a_page_is_looked_at_before_anything_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "data"
    assert main(["delivery", "--quick", "--into", str(tmp_path / "none.md"), "--data", str(data)]) == 2
    assert "none.md: must be a page" in capsys.readouterr().err
    assert not data.exists()


def test_a_benchmark_writes_what_it_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    assert main(["costs", "--only", "plan", "--quick", "--repeats", "1", "--into", str(page)]) == 0
    assert page.read_text() == PAGE.replace("old 1\n\nold 2\n", capsys.readouterr().out)
