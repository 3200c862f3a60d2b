"""`emlio tune show`: several logs and folders, who decided, the settings at the end."""

from pathlib import Path

import msgspec
import pytest

from emlio.cli import main
from emlio.receiver.tuning.choice import Rule, TuneChoice, shipped
from emlio.receiver.tuning.log import TuningLog
from emlio.receiver.tuning.rule import decide
from emlio.receiver.tuning.snapshot import Snapshot
from emlio.receiver.tuning.state import Decision, Limits, RuleState
from emlio.receiver.tuning.tuner import Tuner
from emlio.receiver.tuning.tuning import Tuning

MIB = 1 << 20
S = 1_000_000_000
LIMITS = Limits(least_window_bytes=128 * MIB, most_window_bytes=256 * MIB)
JOULES = Limits(least_window_bytes=128 * MIB, most_window_bytes=256 * MIB, governs=True, waits=1 - 0.98)


def _larger(state: RuleState, *_: object) -> tuple[RuleState, Decision]:
    tuning = msgspec.structs.replace(state.tuning, window_bytes=state.tuning.window_bytes + MIB)
    return msgspec.structs.replace(state, tuning=tuning), Decision(tuning=tuning, reason="more")


def _log(path: Path, rule: Rule = decide, *, own: bool = False, model: str = "", limits: Limits = LIMITS) -> Path:
    looks = iter(range(100))
    tuner = Tuner(
        Tuning(window_bytes=128 * MIB),
        lambda: Snapshot(at_ns=next(looks) * S),
        TuningLog(path, own=own, model=model),
        rule,
    )
    for number in range(3):
        tuner.turn(number * S, limits)
    tuner.close()
    return path


def test_the_last_line_is_the_settings_at_the_end_and_can_be_given_as_tune(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = _log(tmp_path / "tune-a.jsonl", _larger, own=True)
    assert main(["tune", "show", str(log)]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0] == "begins with window_bytes 134,217,728, credit_parts 16; decided by a rule of one's own"
    (tmp_path / "best").write_text(told[-1])
    assert TuneChoice.parse(tmp_path / "best").frozen == Tuning(window_bytes=131 * MIB) == TuneChoice.parse(log).frozen


@pytest.mark.parametrize(
    ("limits", "model", "who"),
    [
        (LIMITS, "", "auto"),
        (JOULES, "", "Joules(0.98)"),
        (LIMITS, shipped().words, f"learned, model {shipped().words[:17]}"),
    ],
)
def test_it_says_who_decided(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], limits: Limits, model: str, who: str
) -> None:
    log = _log(tmp_path / "log", shipped() if model else decide, model=model, limits=limits)
    assert main(["tune", "show", str(log)]) == 0
    assert capsys.readouterr().out.splitlines()[0].endswith(f"decided by {who}")


def test_several_logs_and_folders_are_shown_one_after_the_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    single = _log(tmp_path / "single")
    names = [tmp_path / "logs" / name for name in ("tune-a.jsonl.before", "tune-a.jsonl", "tune-b.jsonl")]
    for name in names[:2]:
        _log(name)
    names[2].touch()  # of a loader that has not looked yet
    assert main(["tune", "show", str(tmp_path / "logs"), str(single)]) == 0
    told = capsys.readouterr().out.splitlines()
    assert [line for line in told if line.endswith(":")] == [f"{name}:" for name in (*names, single)]
    assert "0 looks, 0 decisions" in told


def test_what_is_no_log_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for text in ('{"window_bytes": 1048576}', '{"window_bytes": 1048576}\n'):
        (tmp_path / "best").write_text(text)
        assert main(["tune", "show", str(tmp_path / "best")]) != 0
        assert "best has settings alone, for tune=" in capsys.readouterr().err
    (tmp_path / "empty").touch()
    assert main(["tune", "show", str(tmp_path / "empty")]) != 0
    assert "empty holds nothing" in capsys.readouterr().err
    (tmp_path / "folder").mkdir()
    assert main(["tune", "show", str(tmp_path / "folder")]) != 0
    assert "must hold files tune-JOB-rankN-PID-K.jsonl" in capsys.readouterr().err
