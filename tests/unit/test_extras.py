"""Advice on what to install works where this copy of EMLIO came from."""

import importlib.metadata
import re
import tomllib
from pathlib import Path

import pytest

from emlio.extras import how_to_install

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.mark.parametrize("extra", ["dali", "images", "metrics", "nvml", "objects", "parquet", "plot", "torch", "tune"])
def test_the_requirements_of_an_extra_are_named(extra: str) -> None:
    needed = " ".join(f'"{one}"' for one in PROJECT["optional-dependencies"][extra])
    assert how_to_install(extra) == f"pip install {needed}"


def test_without_metadata_the_checkout_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def lacks(name: str) -> list[str]:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "requires", lacks)
    assert how_to_install("torch") == 'pip install ".[torch]" in the checkout of EMLIO'


def test_no_code_and_no_page_installs_emlio_by_name() -> None:
    by_name = re.compile(r"pip install\s+[\"']?emlio\b(?!-)")
    folders = ("emlio", "daemon", "receiver", "planner", "energy", "benchmarks", "docs", "deploy")
    paths = [
        path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".md", ".yaml")
    ]
    found = [str(path.relative_to(ROOT)) for path in paths if by_name.search(path.read_text(encoding="utf-8"))]
    assert found == []
