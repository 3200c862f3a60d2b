"""The check of size and style finds what it is for, and nothing else."""

import ast
import re
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def tidy() -> Any:
    path = Path(__file__).parents[2] / "scripts" / "tidy"
    spec = spec_from_loader("tidy", SourceFileLoader("tidy", str(path)))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_tokens_do_not_depend_on_layout_comments_and_docstrings(tidy: Any) -> None:
    short = "def f(a, b):\n    return a + b\n"
    long = '"""Module."""\n\n# why\ndef f(\n    a, b\n):\n    """Add.\n\n    Twice."""\n\n    return a + b  # why\n'
    counts = [tidy.count_tokens(text, ast.parse(text)) for text in (short, long)]
    assert counts == [12, 12]


def test_a_body_may_have_as_many_lines_as_the_limit_besides_its_docstring(tidy: Any) -> None:
    text = 'def f(\n    a,\n    b,\n):\n    """Long.\n\n    Text."""\n    x = 1\n    y = 2\n    return x\n'
    assert list(tidy.long_functions("m.py", ast.parse(text), 3)) == []
    assert list(tidy.long_functions("m.py", ast.parse(text), 2)) == ["m.py:1: f has 3 lines, the limit is 2"]


@pytest.mark.parametrize(
    "user", ["x = dead", "x.dead()", "f(dead=1)", 'x = f"{dead}"', 'x = getattr(y, "dead")', 'entry = "m.n:dead"']
)
def test_what_is_named_anywhere_is_not_dead(tidy: Any, user: str) -> None:
    made = '__all__ = ["dead"]\ndef dead(): ...\n'
    trees = {"emlio/a.py": ast.parse(made), "benchmarks/b.py": ast.parse("")}
    assert len(list(tidy.dead_definitions(trees, ["emlio"], set()))) == 1
    assert list(tidy.dead_definitions(trees, ["emlio"], {"dead"})) == []
    assert list(tidy.dead_definitions({**trees, "benchmarks/b.py": ast.parse(user)}, ["emlio"], set())) == []


def test_words_are_found_as_words(tidy: Any) -> None:
    words = re.compile(r"\b(?:nobody)\b", re.IGNORECASE)
    found = list(tidy.banned_words("a.md", "somebodynobody\nNobody is here", words))
    assert [line.split(": ")[0] for line in found] == ["a.md:2"]


def test_a_budget_is_neither_exceeded_nor_far_too_large_nor_missing(tidy: Any) -> None:
    sizes = {"a": 10_000, "b": 10_001, "c": 9_000, "d": 5}
    found = list(tidy.over_budget(sizes, {"a": 10_000, "b": 10_000, "c": 10_000, "gone": 500}))
    assert [line.partition(":")[0] for line in found] == ["b", "c", "d", "gone"]
