"""The benchmark's contenders with a model, collected data, and the training of a model from it, without processes."""

from pathlib import Path
from random import Random

import msgspec
import pytest

from emlio.errors import ConfigError
from emlio.learned.model import Model
from emlio.receiver.tuning.choice import Rule
from emlio.receiver.tuning.learned import COLUMNS
from emlio.receiver.tuning.log import Line
from emlio.receiver.tuning.snapshot import Snapshot
from emlio.receiver.tuning.state import Limits, RuleState
from emlio.receiver.tuning.tuning import Tuning
from emlio_bench.cli import main
from emlio_bench.harness.environment import read_environment
from emlio_bench.tuning.contenders import Draw, rule_of
from emlio_bench.tuning.rows import Head, Run, changes_of, read_runs, write_run
from emlio_bench.tuning.train import GroupScore, Trained
from emlio_testing.models import tree_model

MIB = 1 << 20
S = 1_000_000_000
LIMITS = Limits(least_window_bytes=128 * MIB, most_window_bytes=256 * MIB, lanes=0.4)


def _waiting(number: int) -> Snapshot:
    return Snapshot(
        at_ns=number * S // 2,
        received_bytes=number * 10**8,
        wait_ns=number * S // 4,
        round_trip_ns=30_000_000,
        lanes=12,
    )


def _decided(rule: Rule | None, looks: int, window_bytes: int = 128 * MIB) -> list[Tuning]:
    state, found = RuleState(tuning=Tuning(window_bytes=window_bytes)), list[Tuning]()
    assert rule is not None
    for number in range(looks):
        state, decision = rule(state, _waiting(number), LIMITS)
        found += [decision.tuning] if decision is not None else []
    return found


def test_dials_score_weighs_size_and_number_of_messages_and_is_carried_out_at_once(tmp_path: Path) -> None:
    tree_model("message_bytes").save(tmp_path / "larger.npz")
    dial = rule_of("DIAL", str(tmp_path / "larger.npz"))
    # Messages of 4 and 8 MiB are likely to bring more than 2, with 8 to 64 of them in flight. The best of the first size has
    # 0.9 * (1 + 0) + 1, that of the second one 0.9 * (1 + 1) + 24 / 56.
    assert _decided(dial, 3) == [Tuning(window_bytes=256 * MIB, message_bytes=8 * MIB)]


def test_parts_of_the_learned_rule_are_replaced(tmp_path: Path) -> None:
    tree_model("message_bytes").save(tmp_path / "larger.npz")
    for name in ("learned", "random above tau"):
        (first, *_) = _decided(rule_of(name, str(tmp_path / "larger.npz")), 6)
        assert first.message_bytes >= 4 * MIB
    assert _decided(rule_of("stump"), 6) == [], "the window is far above the product"


def test_drawn_settings_are_held_and_written_down_with_what_was_seen(tmp_path: Path) -> None:
    draw = Draw(Random(3), 2 * S)
    changes = _decided(draw, 400)
    assert len(changes) == 100
    assert {each.lanes for each in changes} > {1, 2, 4, 8}
    assert all(16 * MIB <= each.window_bytes <= 256 * MIB for each in changes)
    assert len(draw.lines) == 400
    head = Head(environment="a test", seed=3, machine=read_environment(None))
    path = tmp_path / "data.jsonl"
    for _ in range(2):
        write_run(path, Run(head, tuple(draw.lines)))
    for appended in (False, True):
        path.write_bytes(path.read_bytes() + b'{"run"')  # a collection that was ended
        if appended:
            write_run(path, Run(head, tuple(draw.lines)))
        runs = list(read_runs(path))
        assert [(run.head, run.lines) for run in runs] == (2 + appended) * [(head, tuple(draw.lines))]
    rows, gains = changes_of(runs[0].lines)
    assert rows.shape == (len(gains), len(COLUMNS))
    assert len(gains) == 98, "the first has nothing before it, the last one nothing after it"
    assert gains == pytest.approx(1.0)


def _line(at: float, received: int, tuning: Tuning | None = None, wait: float = 0.5) -> Line:
    seen = Snapshot(at_ns=round(at * S), received_bytes=received, wait_ns=round(wait * at * S))
    return Line(limits=LIMITS, snapshot=seen, tuning=tuning)


def test_a_gain_leaves_out_what_was_on_its_way_and_changes_for_which_no_user_waited() -> None:
    one, two = (Tuning(window_bytes=window * MIB) for window in (64, 128))
    rates, total, lines = [1, 1, 1, 1, 9, 3, 3, 3, 9], 0, list[tuple[float, int, Tuning | None]]()
    for step, rate in enumerate(rates):
        lines.append((step / 2, total, {0: one, 4: two, 8: one}.get(step)))
        total += rate * 10**6
    rows, gains = changes_of([_line(*each) for each in lines])
    assert gains.tolist() == pytest.approx([3.0])
    assert rows[0, COLUMNS.index("window_bytes")] == 1
    assert not len(changes_of([_line(*each, wait=0.0) for each in lines])[1])


@pytest.mark.parametrize(
    ("text", "told"), [("{}\n", "head of a run must come first"), ("x\n", "line 1: must be collected data")]
)
def test_what_is_no_collected_data_is_refused(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "data").write_text(text)
    with pytest.raises(ConfigError, match=told):
        list(read_runs(tmp_path / "data"))
    with pytest.raises(ConfigError, match="must be readable"):
        list(read_runs(tmp_path / "none"))
    with pytest.raises(ConfigError, match="must be writable"):
        write_run(tmp_path, Run(Head(environment="", seed=0, machine=read_environment(None)), ()))


def test_the_command_trains_of_files_and_reports_environments_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, model = tmp_path / "data.jsonl", tmp_path / "model.npz"
    for place in range(4):
        head = Head(environment=f"place {place}", seed=place, machine=read_environment(None))
        write_run(data, Run(head, tuple(_simulated(place))))
    assert main(["tune-model", "train", str(data), "--out", str(model)]) == 0
    said = capsys.readouterr().out
    assert all(f"place {place}" in said for place in range(4))
    trained = Model.load(model)
    assert trained.environments == tuple(f"place {place}" for place in range(4))
    (first, *_) = _decided(rule_of("learned", str(model)), 6, 64 * MIB)
    assert first.window_bytes > 64 * MIB
    assert main(["tune-model", "train", str(data), "--without", "place 3", "--out", str(model)]) == 0
    assert Model.load(model).environments == tuple(f"place {place}" for place in range(3))
    assert main(["tune-model", "train", str(tmp_path / "none"), "--out", str(model)]) == 2
    (tmp_path / "same.jsonl").symlink_to(data)
    held = data.read_bytes()
    for words, told in (
        ([str(data), "--out", str(data)], "must not replace a file that is none"),
        ([str(data), str(tmp_path / "same.jsonl"), "--out", str(model)], "must be given once"),
    ):
        capsys.readouterr()
        assert main(["tune-model", "train", *words]) == 2
        assert told in capsys.readouterr().err
    assert data.read_bytes() == held


def test_a_collection_that_cannot_be_is_refused_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "first.py"
    for text in ("import os\n", "one line", '{"run":{"environment":1}}\n'):
        out.write_text(text)
        assert main(["tune-model", "collect", "--out", str(out)]) == 2
        assert "must be a new file, or one of collected data" in capsys.readouterr().err
        assert out.read_text() == text
    for minutes in ("nan", "-1", "0"):
        assert main(["tune-model", "collect", "--out", str(out), "--minutes", minutes]) == 2
        assert "--minutes must be above 0" in capsys.readouterr().err


def test_a_report_says_what_its_columns_are_and_when_nothing_was_chosen() -> None:
    model = tree_model("message_bytes")
    for chosen in (0, 3):
        score = GroupScore(group="all", rows=9, gained=0.5, chosen=chosen, precision=1.0, auc=0.9, brier=0.1)
        page = Trained(model=model, scores=(score,)).table()
        assert all(f"{word}: " in page for word in ("gained", "chosen", "precision", "AUC", "Brier"))
        assert ("No change was chosen" in page) is not bool(chosen)


def _simulated(seed: int) -> list[Line]:
    """Return the lines of a path whose rate is that of a window, and whose user waits."""
    draw = Draw(Random(seed), 2 * S)
    state, total = RuleState(tuning=Tuning(window_bytes=64 * MIB)), 0
    for number in range(800):
        state, _ = draw(state, msgspec.structs.replace(_waiting(number), received_bytes=total), LIMITS)
        total += state.tuning.window_bytes
    return draw.lines
