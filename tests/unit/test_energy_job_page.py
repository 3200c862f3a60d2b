from html.parser import HTMLParser
from pathlib import Path

from emlio.energy.job.job_energy import read_job
from emlio.energy.job.note import JobNote
from emlio.energy.report.job_page import WORDS, job_page
from emlio_testing.energy_jobs import make_epoch, make_job, make_storage
from emlio_testing.energy_series import SECOND_NS, make_device

NOTE = JobNote(
    command=("python", "-c", "<script>alert('&')</script>"),
    node="gpu-1",
    boot="boot-1",
    begun_real_ns=0,
    begun_ns=SECOND_NS,
    file="gpu-1.sqlite",
    recording=1,
    ended_ns=26 * SECOND_NS,
    status=0,
)
_ALONE = {"meta", "br"}


class _Page(HTMLParser):
    """What a browser would see: tags that are closed in order, texts, and what is fetched from elsewhere."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.fetched: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.fetched += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in _ALONE:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def _page(tmp_path: Path, note: JobNote | None = NOTE, picture: str = "<svg></svg>") -> tuple[str, _Page]:
    epochs = [make_epoch(0, 2, 11, storage=(make_storage(12),)), make_epoch(1, 12, 20, storage=(make_storage(22),))]
    text = job_page(read_job([make_job(tmp_path / "job", epochs=epochs, note=note)]), picture, without="no matplotlib")
    return text, _Page(text)


def test_the_page_is_whole_and_fetches_nothing(tmp_path: Path) -> None:
    text, page = _page(tmp_path)
    assert page.fetched == []
    assert "@import" not in text
    assert "url(" not in text
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in text


def test_it_has_the_headline_all_tables_the_picture_and_what_the_words_mean(tmp_path: Path) -> None:
    _, page = _page(tmp_path)
    assert "2 epochs on 1 compute and 1 storage node: 17.00 s, 2.635 kJ, 1.317 J/sample" in page.texts
    captions = [text for text in page.texts if text in ("epochs", "nodes") or text.startswith("stages of")]
    assert captions == ["epochs", *(["nodes", "stages of gpu-1: blocked", "stages of gpu-1: cpu-share"] * 2)]
    assert page.tags.count("svg") == 1
    assert {word for word, _ in WORDS} <= set(page.texts)


def test_each_table_can_be_moved_sideways_so_that_a_narrow_screen_shows_it(tmp_path: Path) -> None:
    text, page = _page(tmp_path)
    assert text.count('<div class="wide"><table>') == page.tags.count("table")
    assert ".wide { overflow-x: auto;" in text


def test_what_stands_in_a_command_is_text_and_no_markup(tmp_path: Path) -> None:
    _, page = _page(tmp_path)
    assert "script" not in page.tags
    assert any("<script>alert(" in text for text in page.texts)


def test_where_there_is_no_picture_it_says_why(tmp_path: Path) -> None:
    _, page = _page(tmp_path, picture="")
    assert "no matplotlib" in page.texts


def test_a_figure_that_cannot_be_right_is_told_before_all_others(tmp_path: Path) -> None:
    folder = make_job(
        tmp_path / "job", devices=[make_device(rated_watts=10)], watts=[100], epochs=[make_epoch(0, 1, 11)]
    )
    text = job_page(read_job([folder]), "")
    assert text.index('<p class="warning">epoch 0: gpu-1, CPU: cannot be right') < text.index("<table>")


def test_a_page_without_a_command_is_one_too(tmp_path: Path) -> None:
    _, page = _page(tmp_path, note=None)
    assert not any(text.startswith("command:") for text in page.texts)
