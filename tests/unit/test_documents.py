"""Documents: shown commands are accepted by their parsers, blocks and tables are whole, links lead
somewhere, and the index has every page. What README shows is run by test_readme.
"""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from emlio.cli import parse_arguments as parse_emlio
from emlio.daemon.cli import parse_arguments as parse_daemon
from emlio.status.verdict import NEXT_STEPS

ROOT = Path(__file__).resolve().parents[2]
INDEX = ROOT / "docs" / "README.md"
ALL_PAGES = sorted(
    path for folder in ("", "docs/**/", "deploy/**/", "benchmarks/**/") for path in ROOT.glob(f"{folder}*.md")
)
PAGES = [path for path in ALL_PAGES if "results" not in path.parts]
PARSERS = {"emlio": parse_emlio, "emlio-daemon": parse_daemon}
_START = re.compile(r"(?:\w+\$ )?((?:emlio|emlio-daemon|emlio-bench|pip|scripts/\w+) .*)")


def _named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def _blocks(text: str) -> list[list[str]]:
    """The lines of each indented block and of each fenced one, without the indent."""
    found: list[list[str]] = []
    fenced = inside = False
    for line, before in zip(text.splitlines(), ["", *text.splitlines()], strict=False):
        if line.startswith("```"):
            fenced = inside = not fenced
            if fenced:
                found.append([])
        elif fenced:
            found[-1].append(line)
        elif line.startswith("    ") and (inside or not before.strip()):
            if not inside:
                found.append([])
            inside = True
            found[-1].append(line[4:])
        else:
            inside = inside and not line.strip()
    return found


def _lines(page: Path) -> list[str]:
    return [line for block in _blocks(page.read_text(encoding="utf-8")) for line in block]


def _commands(page: Path) -> list[list[str]]:
    """The words of the shown commands of EMLIO that stand on a line of their own."""
    shown = [match[1] for line in _lines(page) if (match := _START.fullmatch(line)) is not None]
    words = [shlex.split(command, comments=True) for command in shown]
    return [one for one in words if one[0] in PARSERS]


@pytest.mark.parametrize("page", [page for page in PAGES if _commands(page)], ids=_named)
def test_every_shown_command_is_accepted_by_its_parser(page: Path) -> None:
    for program, *words in _commands(page):
        PARSERS[program](words)


def test_the_documents_show_commands_of_every_kind() -> None:
    shown = {tuple(words[:2]) for page in PAGES for words in _commands(page)}
    assert {("emlio", name) for name in ("convert", "synth", "index", "inspect", "plan", "keygen", "energy")} <= shown
    assert "emlio-daemon" in {words[0] for words in shown}


def test_a_line_of_a_block_has_one_entry() -> None:
    """Wrapping a document again must not join the lines of a block."""
    merged = [
        f"{page.name}: {line}"
        for page in PAGES
        for line in _lines(page)
        if line.count("HKDF-Expand-SHA256(") > 1
        or (line.startswith("emlio ") and re.search(r" #.* emlio [a-z]+ [/~]", line))
        or re.search(r"\S (?:token|name|nonce|header|stamp) {1,2}(?:of|number|HKDF|msgpack|20 bytes)\b", line)
    ]
    assert merged == []


def _links(page: Path) -> Iterator[tuple[Path, str]]:
    """The file and the heading of each relative link."""
    for place, heading in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", page.read_text(encoding="utf-8")):
        if not place.startswith(("http:", "https:")):
            yield (page.parent / place).resolve() if place else page, heading


def _headings(page: Path) -> set[str]:
    """Return the anchor of each heading of the page, as GitHub makes it."""
    lines = re.findall(r"^#+ (.+)$", re.sub(r"(?ms)^```.*?^```", "", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-") for line in lines}


@pytest.mark.parametrize("page", ALL_PAGES, ids=_named)
def test_every_relative_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    for target, heading in _links(page):
        assert target.exists(), target
        assert not heading or target.suffix != ".md" or heading in _headings(target), f"{target}#{heading}"


def test_the_index_links_to_every_page() -> None:
    """Reports of single runs are linked from the page of their study."""
    pages = {path for path in ALL_PAGES if path.is_relative_to(INDEX.parent)} - {
        INDEX,
        *INDEX.parent.glob("results/*/*.md"),
    }
    assert pages - {target for target, _ in _links(INDEX)} == set()


@pytest.mark.parametrize("page", PAGES, ids=_named)
def test_the_rows_of_a_table_have_as_many_cells_as_its_head(page: Path) -> None:
    head = 0
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        cells = re.sub(r"`[^`]*`", "", line).replace(r"\|", "").count("|") if line.startswith("|") else 0
        if cells and head:
            assert cells == head, f"{page.name}:{number}"
        head = cells


def test_the_columns_of_the_shown_report_are_aligned() -> None:
    """A row's last figure ends where its heading does."""
    blocks = _blocks((ROOT / "docs" / "operate" / "energy.md").read_text(encoding="utf-8"))
    (report,) = [block for block in blocks if "nodes" in block]
    for heading in ("nodes", "stages of train-1: blocked"):
        at = report.index(heading)
        table = report[at + 1 : at + 5]
        assert len({len(row) for row in table}) == 1, table


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=_named)
def test_documents_use_the_usual_words(page: Path) -> None:
    unusual = r"served as they lie|told apart|goes on with another number|as it lies there|^## (Who may come in|What does not go)"
    assert re.search(unusual, page.read_text(encoding="utf-8"), re.MULTILINE) is None


def test_the_first_claim_names_steps_and_what_a_first_epoch_pays() -> None:
    summary = re.search(r'^description = "(.*)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    assert summary is not None
    assert "behind training steps" in summary[1]
    first = (ROOT / "README.md").read_text(encoding="utf-8").partition("\n## ")[0]
    assert all(words in first for words in ("training steps", "0.59 s", "1.42 s", "4.30 s"))


def test_the_page_on_performance_has_the_next_step_of_each_verdict() -> None:
    page = " ".join((ROOT / "docs" / "guide" / "performance.md").read_text(encoding="utf-8").split())
    named = [name for step in NEXT_STEPS.values() for name in re.findall(r"--\w+|\b\w+=(?:'\w+')?|emlio \w+", step)]
    assert "--readers" in named
    assert [name for name in named if name not in page] == []
