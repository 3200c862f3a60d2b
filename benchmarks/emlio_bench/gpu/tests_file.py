"""The file that pytest writes about its tests.

Covers: recognising it, its table. Does not cover: running tests.
"""

from pathlib import Path
from xml.etree import ElementTree

from emlio.errors import ConfigError
from emlio_bench.harness.table import Table

__all__ = ["is_tests_file", "tests_table"]


def is_tests_file(file: Path) -> bool:
    """Return whether a part's results are tests."""
    return file.suffix == ".xml"


def tests_table(file: Path) -> Table:
    """Return the tests of pytest's JUnit file.

    Raises:
        ConfigError: it is no such file.
    """
    try:
        cases = list(ElementTree.parse(file).iter("testcase"))
    except (OSError, ElementTree.ParseError) as error:
        raise ConfigError(f"{file} must be a JUnit file of pytest: {error}") from error
    return Table(header=("test", "outcome", "s", "why"), rows=tuple(map(_row, cases)), names=2)


def _row(case: ElementTree.Element) -> tuple[str, ...]:
    name = case.get("name", "").replace("_", " ")
    for kind, outcome in (("failure", "failed"), ("error", "failed"), ("skipped", "skipped")):
        if (found := case.find(kind)) is not None:
            return name, outcome, case.get("time", ""), found.get("message", "").partition("\n")[0]
    return name, "passed", case.get("time", ""), ""
