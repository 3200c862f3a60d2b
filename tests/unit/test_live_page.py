"""The live page of a daemon: its document, the rates that are kept, and what the page may load."""

import json
import re
from importlib.resources import files
from itertools import pairwise
from typing import Any

import pytest

from emlio.daemon.metrics.live import LivePage
from emlio.wire.control import StatusReply
from emlio.wire.status import DatasetStatus, JobStatus, MemoryStatus, RankStatus, UserWaits
from emlio_testing.clock import ManualClock

S = 1_000_000_000


class Daemon:
    """Sends 1 MB in each second to a rank that waits for records half of the time."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.asked = 0
        self.answers = True

    def ask(self) -> StatusReply | None:
        self.asked += 1
        if not self.answers:
            return None
        now_ns = self.clock.monotonic_ns()
        sent = now_ns // 1000
        rank = RankStatus(
            job=0, rank=0, session=1, host="gpu1", pid=7, state="streaming", waits_for="", age_ns=now_ns, silent_ns=0,
            lanes=1, sent_bytes=sent, unread_bytes=0, held_bytes=0, blocked_ns=0, withheld_ns=0, starved_ns=now_ns // 2,
            epoch=0, slot=0, user=UserWaits(records_ns=S, making_ns=0, busy_ns=S),
        )  # fmt: skip
        dataset = DatasetStatus(
            name="images", generation=1, current=True, shards=1, records=10, size_bytes=10, sessions=1, sent_bytes=sent
        )
        return StatusReply(
            nonce=0, daemon="store1", process="p", software="0.1.0", up_ns=now_ns, draining=False, lanes=1,
            heartbeat_timeout_ns=10 * S, memory=MemoryStatus(held_bytes=0, most_bytes=1, process_bytes=1),
            dataset_count=1, job_count=1, rank_count=1, datasets=[dataset],
            jobs=[JobStatus(name="run", dataset="images", generation=1, world_size=1, sessions=1)],
            ranks=[rank], failures=[],
        )  # fmt: skip


def _live() -> tuple[LivePage, Daemon, ManualClock]:
    clock = ManualClock()
    clock.advance(100 * S)
    daemon = Daemon(clock)
    return LivePage(daemon.ask, clock), daemon, clock


def _document(live: LivePage) -> dict[str, Any]:
    page = live.answer()
    assert (page.status, page.kind) == ("200 OK", "application/json")
    found: dict[str, Any] = json.loads(page.text)
    return found


def test_the_document_has_rates_between_two_looks_and_says_who_holds_up_a_job() -> None:
    live, _, clock = _live()
    live.answer()
    clock.advance(S)
    found = _document(live)
    (daemon,) = found["daemons"]
    assert daemon["jobs"][0]["bytes_per_s"] == pytest.approx(1e6)
    (job,) = found["blames"]
    assert (job["blame"]["stage"], job["blame"]["host"], job["blame"]["rank"]) == (
        "reading at the daemons",
        "store1",
        0,
    )


def test_totals_are_kept_each_five_seconds_for_ten_minutes_whether_anyone_looks_or_not() -> None:
    live, _, clock = _live()
    for _ in range(4000):
        clock.advance(S // 2)
        live.tick()
    history = _document(live)["history"]
    assert len(history) == 120
    steps = [after["up_s"] - before["up_s"] for before, after in pairwise(history)]
    assert set(steps) == {5.0}
    assert history[-1]["sent_bytes"] == {"images": pytest.approx(history[-1]["up_s"] * 1e6, rel=1e-3)}


def test_many_that_look_at_once_ask_the_daemon_twice_a_second() -> None:
    live, daemon, clock = _live()
    for _ in range(1000):
        clock.advance(S // 100)
        _document(live)
    assert daemon.asked <= 21


def test_a_daemon_that_does_not_answer_is_told_from_one_that_is_idle_and_seldom_asked() -> None:
    live, daemon, clock = _live()
    daemon.answers = False
    assert live.answer().status.startswith("503")
    for _ in range(100):
        clock.advance(S // 2)
        live.tick()  # by the thread that accepts connections: health checks must not wait for it
    assert daemon.asked <= 12


def test_the_page_loads_nothing_from_elsewhere_and_writes_no_html_of_what_it_is_told() -> None:
    page = _live()[0].page()
    assert page.kind == "text/html"
    assert dict(page.headers)["Content-Security-Policy"].startswith("default-src 'none'")
    text = files("emlio.daemon.metrics").joinpath("page.html").read_text(encoding="utf-8")
    assert page.text == text
    outside = re.findall(r"""(?:src|href)=["'](?!data:)|https?://(?!www\.w3\.org/2000/svg)""", text)
    assert outside == []
    for unsafe in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
        assert unsafe not in text


def _luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_its_colours_can_be_told_apart_by_day_and_by_night() -> None:
    text = files("emlio.daemon.metrics").joinpath("page.html").read_text(encoding="utf-8")
    schemes = [
        dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", block)) for block in re.findall(r":root \{(.*?)\}", text, re.DOTALL)
    ]
    assert len(schemes) == 2
    for colours in schemes:
        for ink in ("ink", "dim", "good", "warn", "bad", "blue"):
            for paper in ("paper", "card"):
                light, dark = sorted((_luminance(colours[ink]), _luminance(colours[paper])), reverse=True)
                assert (light + 0.05) / (dark + 0.05) >= 4.5, f"{ink} on {paper} (WCAG 2.2, AA)"
