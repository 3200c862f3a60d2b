import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sample_race import CONTEST, MS, keep_race, make_contest, make_entrant, make_link, make_race, make_run, sample_race

from emlio_bench.cli import main
from emlio_bench.harness.contest import Energy
from emlio_bench.harness.page import DATA_ID, PAGE, Picture, html_page, markdown_page
from emlio_bench.harness.plot import NARROW, WIDE
from emlio_bench.harness.report import REPORT
from emlio_bench.harness.results import RESULTS, Results
from emlio_bench.race.report.commands import write_race_report
from emlio_bench.race.report.document import TITLE, race_parts
from emlio_bench.race.report.doubts import estimates, race_doubts
from emlio_bench.race.report.plots import draw_race, drawings
from emlio_bench.race.report.verdict import verdict
from emlio_bench.race.report.verdict_words import first_paragraph


def race_page(race: Results, pictures: Sequence[Picture] = ()) -> str:
    return html_page(TITLE, race_parts(race, pictures), race)


def render_race(race: Results, pictures: Sequence[Picture] = ()) -> str:
    return markdown_page(TITLE, race_parts(race, pictures))


_ALONE = {"meta", "br"}
EVIL = "<script>alert('|')</script>"


class Page(HTMLParser):
    """What a browser would see: tags that are closed in order, texts, ids, what is fetched from elsewhere, the data."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.ids: list[str] = []
        self.fetched: list[str] = []
        self.data = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        known = dict(attrs)
        self.fetched += [
            value for name in ("src", "href", "xlink:href") if (value := known.get(name)) and value[0] != "#"
        ]
        self.ids += [value for value in [known.get("id")] if value]
        if tag not in _ALONE:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in _ALONE:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.data += data
        else:
            self.texts.append(data)


@pytest.fixture(scope="module")
def race() -> Results:
    return sample_race((0, 1 * MS, 30 * MS))


@pytest.fixture(scope="module", autouse=True)
def pictures(race: Results) -> tuple[Picture, ...]:
    """For every test: matplotlib keeps font files open for as long as a process lives, and so they are no test's."""
    return draw_race(race)


@pytest.fixture(scope="module")
def page(race: Results, pictures: tuple[Picture, ...]) -> str:
    return race_page(race, pictures)


def tables_of(markdown: str) -> Iterator[list[str]]:
    block: list[str] = []
    for line in [*markdown.splitlines(), ""]:
        if line.startswith("|"):
            block.append(line)
        elif block:
            yield block
            block = []


# ---- the page -------------------------------------------------------------------------------------------------------


def test_the_page_is_whole_and_fetches_nothing(page: str) -> None:
    seen = Page(page)
    assert seen.fetched == []
    assert "@import" not in page
    assert not re.search(r"url\((?!#)", page)
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in page
    assert "prefers-color-scheme: dark" in page


def test_the_first_paragraph_comes_first(race: Results, page: str) -> None:
    texts = [text for text in Page(page).texts if text.strip()]
    first = texts.index(first_paragraph(race, verdict(race)))
    assert texts[first - 1] == TITLE
    assert page.index("</h1>") < page.index('<p class="first">') < page.index("<h2>")


def test_each_table_moves_sideways_in_a_box_of_its_own(page: str) -> None:
    assert page.count('<div class="box"><table>') == Page(page).tags.count("table") > 8
    assert ".box { overflow-x: auto;" in page


def test_our_rows_are_marked_in_both_tables_of_a_contest_and_among_who_took_part(race: Results, page: str) -> None:
    assert page.count('<tr class="ours">') == 2 * len(race.contests) + 1


def test_pictures_are_there_for_desk_and_phone_with_ids_of_their_own(page: str, pictures: tuple[Picture, ...]) -> None:
    seen = Page(page)
    assert seen.tags.count("svg") == 2 * len(pictures)
    assert len(set(seen.ids)) == len(seen.ids)
    used = set(re.findall(r'(?:xlink:href="#|url\(#)([^")]+)', page))
    assert used <= set(seen.ids)


def test_ink_and_paper_of_pictures_are_the_pages(page: str) -> None:
    drawn = "".join(re.findall(r"<svg.*?</svg>", page, re.DOTALL))
    assert "var(--ink)" in drawn
    assert not re.search("#333333|#ffffff|#000000", drawn)


def test_all_data_are_in_the_page(race: Results, page: str) -> None:
    assert f'<script type="application/json" id="{DATA_ID}">' in page
    assert msgspec.convert(json.loads(Page(page).data), Results) == race


def test_what_others_wrote_is_text_and_no_markup() -> None:
    race = make_race(
        [replace(CONTEST, words=EVIL)],
        [replace(make_entrant("emlio", family="ours"), words=EVIL), make_entrant("grain", missing=EVIL)],
        [make_run(CONTEST, "emlio"), make_run(CONTEST, "emlio", round=1, failure=EVIL)],
    )
    seen = Page(race_page(race))
    assert seen.tags.count("script") == 1
    assert msgspec.convert(json.loads(seen.data), Results) == race
    assert "<script" not in render_race(race)


# ---- Markdown -------------------------------------------------------------------------------------------------------


def test_every_row_of_every_markdown_table_has_its_columns(race: Results, pictures: tuple[Picture, ...]) -> None:
    found = list(tables_of(render_race(race, pictures)))
    assert len(found) > 8
    for table in found:
        assert len({re.sub(r"\\\|", "", line).count("|") for line in table}) == 1


def test_all_settings_of_a_contest_stand_in_its_complete_table(race: Results) -> None:
    for contest in race.contests:
        (part,) = (one for one in race_parts(race) if one.heading == contest.name)
        chosen, limit = part.tables
        (complete,) = part.folded
        entrants = [one for one in race.entrants if one.missing is None and one.family != "limit"]
        assert len(complete.rows) == len(entrants)
        assert len(chosen.rows) < len(complete.rows)
        assert len(limit.rows) == 2
        assert f"[Details]({PAGE}): {complete.title}." in render_race(race)


def test_what_is_quoted_is_marked_and_who_could_not_take_part_is_told(race: Results) -> None:
    said = render_race(race)
    for system in ("Cassandra-DALI", "DALI over NFSv4"):
        assert system in said.partition("Quoted, not measured here")[2]
    assert "needs its environment, jax, which is not made" in said


# ---- doubts ---------------------------------------------------------------------------------------------------------


def doubts_of(race: Results) -> str:
    return "\n".join(race_doubts(race))


def test_a_calm_race_of_three_rounds_leaves_no_doubt() -> None:
    runs = [make_run(CONTEST, "emlio", round=number) for number in range(3)]
    assert race_doubts(make_race([CONTEST], [make_entrant("emlio", family="ours")], runs)) == ()


def test_doubts_name_what_was_amiss() -> None:
    runs = [
        make_run(CONTEST, "emlio", seconds=1.0),
        make_run(CONTEST, "emlio", round=1, seconds=2.0),
        make_run(CONTEST, "litdata", failure="no room"),
        replace(make_run(CONTEST, "emlio", round=1, seconds=1.2), dropped_packets=1200),
    ]
    race = make_race([CONTEST], [make_entrant("emlio", family="ours"), make_entrant("litdata")], runs)
    race = replace(race, links=((CONTEST.name, make_link(CONTEST, rtt_ns=40 * MS)),))
    said = doubts_of(race)
    assert "round trip 40.1 ms where 30 ms was asked for" in said
    assert "only 2 round(s)" in said
    assert "litdata (default): 1 of 1 runs failed: no room" in said
    assert "dropped 1,200 packets" in said
    assert "wandered by 83%" in said
    assert "the link was not measured" in doubts_of(replace(race, links=()))


def test_a_cut_run_needs_no_second() -> None:
    runs = [make_run(CONTEST, "emlio", seconds=90.0)]
    assert race_doubts(make_race([CONTEST], [make_entrant("emlio", family="ours")], runs)) == ()


def test_estimates_are_told() -> None:
    run = make_run(CONTEST, "emlio", memory_bytes=0, joules=40.0)
    said = "\n".join(estimates(make_race([CONTEST], [make_entrant("emlio", family="ours")], [run])))
    assert "estimate ±30 %" in said


# ---- pictures -------------------------------------------------------------------------------------------------------


def test_several_round_trips_give_curves_and_one_gives_bars(race: Results) -> None:
    curves = next(one for one in drawings(race) if one.name == "g0-epochs")
    assert "N x RTT" in curves.caption
    assert [one.name for one in drawings(sample_race())] == [
        "five-loaders",
        "g0-first-epoch",
        "g0-first-batch",
        "g0-training-cpu",
        "g0-in-flight",
        "g0-energy",
        "g0-energy-by-stage",
    ]


def test_bytes_in_flight_are_told_in_megabytes_the_mean_beside_the_most() -> None:
    drawing = next(one for one in drawings(sample_race()) if one.name == "g0-in-flight")
    # 600 MB in 0.89 s, half of 30 ms of it: 10 MB.
    words = [words.get_text() for words in words_of(drawing.on(WIDE))]
    assert any(re.fullmatch(r"(9\.\d+|10\.\d) / (2[89]|3[01])\.\d", word) for word in words)


def test_a_race_in_which_nothing_was_gauged_has_no_picture_of_it(race: Results) -> None:
    older = replace(race, runs=tuple(replace(run, in_flight=None) for run in race.runs))
    assert "in-flight" not in " ".join(one.name for one in drawings(older))


def test_our_energy_is_told_by_stage() -> None:
    contest = replace(make_contest(), step_ns=50 * MS)
    race = make_race(
        [contest], [make_entrant("emlio", family="ours")], [make_run(contest, "emlio", joules=80.0, later_s=2.0)]
    )
    drawing = next(one for one in drawings(race) if one.name == "g0-energy-by-stage")
    words = [words.get_text() for words in words_of(drawing.on(WIDE))]
    assert [word for word in words if word.endswith(" J")] == ["4.00 J", "76.0 J"]
    assert {"train", "read"} <= set(words)


def test_a_race_without_energy_says_so_in_a_line_and_has_no_picture_of_it(race: Results) -> None:
    without = replace(race, runs=tuple(replace(run, energy=None) for run in race.runs))
    assert "energy" not in " ".join(one.name for one in drawings(without))
    assert "Energy was not recorded, so there are no bars of it." in render_race(without, undrawn(without))
    older = replace(
        race,
        runs=tuple(
            replace(run, energy=None if run.energy is None else Energy(joules=run.energy.joules, method="estimated"))
            for run in race.runs
        ),
    )
    assert "by stage, so there are no bars of that" in render_race(older, undrawn(older))
    assert "no bars of" not in render_race(race, undrawn(race))


def undrawn(race: Results) -> tuple[Picture, ...]:
    return tuple(Picture(name=one.name, caption=one.caption, wide="", narrow="") for one in drawings(race))


def words_of(figure: Any) -> Iterator[Any]:
    """All that is written in a picture; ticks beyond an axis' ends are not."""
    yield from (*figure.texts, *figure.legends)
    for axes in figure.axes:
        yield from (axes.xaxis.label, axes.yaxis.label, *axes.texts)
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            yield from (
                label
                for place, label in zip(axis.get_ticklocs(), axis.get_ticklabels(), strict=True)
                if low <= place <= high
            )


@pytest.mark.parametrize("narrow", [False, True])
def test_no_word_of_a_picture_lies_outside_it(narrow: bool) -> None:
    for drawing in (*drawings(sample_race((0, 30 * MS))), *drawings(sample_race())):
        figure = drawing.on(NARROW if narrow else WIDE)
        figure.draw_without_rendering()
        width, height = figure.bbox.width, figure.bbox.height
        for word in words_of(figure):
            box = word.get_window_extent()
            inside = box.x0 >= -1 and box.x1 <= width + 1 and box.y0 >= -1 and box.y1 <= height + 1
            assert inside, (drawing.name, getattr(word, "get_text", str)(), box, width, height)


def test_every_axis_has_its_unit() -> None:
    for drawing in drawings(sample_race((0, 30 * MS))):
        for axes in drawing.on(WIDE).axes:
            assert re.search("second|joule|MB|ms", axes.get_xlabel())


def test_the_same_race_gives_the_same_pictures(pictures: tuple[Picture, ...], race: Results) -> None:
    again = [drawing.picture() for drawing in drawings(race)[:2]]
    assert [(one.wide, one.narrow) for one in again] == [(one.wide, one.narrow) for one in pictures[:2]]
    assert all(len(one.wide) < 80_000 for one in pictures)


# ---- files and the command ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a race whose report was written by the command."""
    folder = tmp_path_factory.mktemp("reported") / "race"
    keep_race(sample_race(), folder)
    assert main(["report", str(folder)]) == 0
    return folder


def test_a_report_is_written_beside_its_race(reported: Path) -> None:
    assert {PAGE, REPORT, RESULTS, "g0-first-epoch.svg", "g0-first-epoch.png"} <= {
        path.name for path in reported.iterdir()
    }


def test_every_picture_that_markdown_shows_is_a_file(reported: Path) -> None:
    shown = re.findall(r"^!\[.*\]\((.*)\)$", (reported / REPORT).read_text(encoding="utf-8"), re.MULTILINE)
    assert len(shown) == 7
    assert all((reported / name).stat().st_size for name in shown)


def test_a_report_may_be_written_elsewhere_and_is_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    few = make_race([CONTEST], [make_entrant("emlio", family="ours")], [make_run(CONTEST, "emlio")])
    keep_race(few, tmp_path / "race")
    assert main(["report", str(tmp_path / "race")]) == 0
    said = capsys.readouterr().out
    assert first_paragraph(few, verdict(few)) in said
    assert PAGE in said
    assert main(["report", str(tmp_path / "race" / RESULTS), "--out", str(tmp_path / "other")]) == 0
    assert (tmp_path / "other" / PAGE).read_bytes() == (tmp_path / "race" / PAGE).read_bytes()


def test_a_folder_without_a_race_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path)]) == 2
    assert "results must be readable" in capsys.readouterr().err


def test_a_race_without_runs_still_has_a_report(tmp_path: Path) -> None:
    race = replace(make_race([make_contest()], [make_entrant("emlio", family="ours")], []), links=())
    written = write_race_report(race, tmp_path)
    assert len(written) == 3
    assert "No run has ended yet." in written[0].read_text(encoding="utf-8")
