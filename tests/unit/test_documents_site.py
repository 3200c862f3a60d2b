"""The documentation site: links that leave docs/ lead to pages of the site, or are named."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mkdocs", reason="not installed: MkDocs")
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def site() -> Any:
    spec = importlib.util.spec_from_file_location("documents_site", ROOT / "docs" / "site.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("place", "text", "shown"),
    [
        ("guide/loader.md", "[a](../operate/daemon.md#two-ports)", "[a](../operate/daemon.md#two-ports)"),
        ("guide/loader.md", "[a](../../README.md#try-it)", "[a](../project/README.md#try-it)"),
        ("operate/daemon.md", "[u](../../deploy/systemd/README.md)", "[u](../project/deploy/systemd/README.md)"),
        ("operate/daemon.md", "[rules](../../deploy/prometheus/rules.yml)", "rules (`deploy/prometheus/rules.yml`)"),
        ("project/README.md", "![p](docs/results/race.png)", "![p](../results/race.png)"),
        ("project/deploy/helm/README.md", "[s](../../docs/operate/daemon.md)", "[s](../../../operate/daemon.md)"),
        ("guide/loader.md", "[a](https://x.org/y) [b](#here)", "[a](https://x.org/y) [b](#here)"),
        ("guide/loader.md", "[over two\nlines](../../README.md)", "[over two\nlines](../project/README.md)"),
    ],
)
def test_links_are_those_of_the_site(site: Any, place: str, text: str, shown: str) -> None:
    assert site.rewritten(text, place) == shown


def test_code_is_left_alone(site: Any) -> None:
    text = "a\n\n```sh\n[x](../../scripts/test)\n```\n\n    [y](../../scripts/test)\n"
    assert site.rewritten(text, "guide/loader.md") == text


def test_each_page_is_in_the_navigation(site: Any) -> None:
    import re

    listed = set(re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text(encoding="utf-8")))
    there = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert there == listed
