"""Settings as a value, the `tune` argument, and the log with its replay."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from emlio.errors import ConfigError, EmlioError
from emlio.receiver.tuning import log
from emlio.receiver.tuning.choice import Joules, TuneChoice, shipped
from emlio.receiver.tuning.log import TuningLog, read_log, replayed
from emlio.receiver.tuning.rule import decide
from emlio.receiver.tuning.snapshot import Snapshot, trip_of_path
from emlio.receiver.tuning.state import Decision, Limits, RuleState
from emlio.receiver.tuning.tuner import Tuner
from emlio.receiver.tuning.tuning import BOUNDS, Tuning

MIB = 1 << 20
S = 1_000_000_000
TUNING = Tuning(window_bytes=128 * MIB)
LIMITS = Limits(least_window_bytes=128 * MIB, most_window_bytes=256 * MIB, lanes=0.4)


@pytest.mark.parametrize("name", BOUNDS)
def test_each_setting_has_bounds(name: str) -> None:
    low, high = BOUNDS[name]
    for value in (low, high):
        assert getattr(Tuning(**{"window_bytes": MIB, name: value}), name) == value
    wrong: list[Any] = [low - 1, high + 1, True, "4", 1.5, None]
    for value in wrong:
        with pytest.raises(ConfigError, match=f"{name} of a tuning must be a whole number in .*, got "):
            Tuning(**{"window_bytes": MIB, name: value})


@pytest.mark.parametrize(
    ("window", "message", "senders", "sent"),
    [
        (128 * MIB, 0, 1, 0),  # a daemon's own choice fits
        (16 * MIB, 0, 1, 2 * MIB),
        (16 * MIB, 0, 4, MIB // 2),
        (16 * MIB, MIB, 1, MIB),
        (16 * MIB, 8 * MIB, 1, 2 * MIB),
        (MIB, 0, 100, 64 << 10),
    ],
)
def test_eight_messages_of_all_daemons_fit_the_window(window: int, message: int, senders: int, sent: int) -> None:
    tuning = Tuning(window_bytes=window, message_bytes=message, readers=1)
    wished = tuning.stream(7, 3, senders=senders, data_part=1.0)
    assert (wished.number, wished.message_bytes, wished.lanes, wished.readers) == (7, sent, 3, 1)


def test_words_and_files_are_choices(tmp_path: Path) -> None:
    assert TuneChoice.parse("off") == TuneChoice(way="off")
    assert not TuneChoice.parse("off").is_on
    assert TuneChoice.parse("auto").is_on
    file = tmp_path / "settings.json"
    file.write_bytes(msgspec.json.encode(Tuning(window_bytes=MIB, lanes=2)))
    assert TuneChoice.parse(file).frozen == Tuning(window_bytes=MIB, lanes=2)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "without a line of JSON"),
        ("\n\n", "without a line of JSON"),
        ('{"lanes": 2}', "line 1: window_bytes is required beside lanes"),
        ('{"credit_parts": 1, "lanes": 2}', "line 1: credit_parts of a tuning must be"),
        ('{\n  "window_bytes": 1048576,\n  "lanes": 2\n}\n', "settings must be on one line, these are on 4"),
        ('{"window_bytes": "1GiB"}', "line 1: Expected `int`, got `str`"),
        ("[1]", "line 1: Expected `object`"),
        ('{"window_bytes": 1}', "window_bytes of a tuning must be"),
        ('{"window_bytes": 1048576, "lane": 3}', "unknown field `lane`"),
        ("lanes=3", "line 1: JSON is malformed"),
        ('{"tuning": {"window_bytes": 1048576, "lanes": "a"}}', "line 1: Expected `int`, got `str`"),
        ('{"window_bytes": 1048576}\nx\n{"lanes": 2}', "line 2: JSON is malformed"),
        ('{"window_bytes": 1048576}\n{"window_bytes": 9}\n', "line 2: window_bytes of a tuning"),
    ],
)
def test_a_file_without_settings_is_refused(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "file").write_text(text)
    with pytest.raises(ConfigError, match=told):
        TuneChoice.parse(tmp_path / "file")


def test_settings_and_learned_rules_are_choices() -> None:
    assert TuneChoice.parse(TUNING) == TuneChoice(way="frozen", frozen=TUNING)
    rule = shipped()
    assert TuneChoice.parse(rule) == TuneChoice(way="learned", rule=rule)
    assert TuneChoice.parse(replace(rule, tau=0.5)).way == "own", "a log could not be decided again with 0.8"


def test_likely_mistakes_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"No such file or directory; did you mean 'auto'\?"):
        TuneChoice.parse("atuo")
    with pytest.raises(ConfigError, match=r"got 98; it is a share: 98 % is Joules\(0.98\)"):
        Joules(98)
    path = tmp_path / "read.npz"
    shipped().model.save(path)
    with pytest.raises(
        ConfigError, match=r"which is like a model: give Learned\(model=Model.load\(Path\('.*read.npz'\)\)\)"
    ):
        TuneChoice.parse(path)


class _Looks:
    """Snapshots of a loader that gets more and more, twice a second, whose user waits."""

    def __init__(self) -> None:
        self.now = Snapshot(at_ns=0)

    def __call__(self) -> Snapshot:
        seen = self.now
        self.now = Snapshot(
            at_ns=seen.at_ns + S // 2,
            received_bytes=seen.received_bytes + 10**8,
            batches=seen.batches + 1,
            wait_ns=seen.wait_ns + S // 4,
            credit_ns=seen.credit_ns + S // 4,
            round_trip_ns=30_000_000,
            lanes=4,
        )
        return seen


def test_all_decisions_of_a_log_can_be_decided_again_in_two_files_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "_LINES", 20)
    path, looks = tmp_path / "logs" / "tune.jsonl", _Looks()
    tuner = Tuner(TUNING, looks, TuningLog(path))
    changes = [found for n in range(36) if (found := tuner.turn(n * S // 2, LIMITS)) is not None]
    tuner.close()
    assert sorted(each.name for each in path.parent.iterdir()) == ["tune.jsonl", "tune.jsonl.before"]
    decided = []
    for file in (path.with_name("tune.jsonl.before"), path):
        for line, again, _ in replayed(read_log(file)):
            assert (again.tuning if again is not None else None) == line.tuning
            decided += [line.tuning] if line.tuning is not None else []
    assert decided == changes[-len(decided) :]
    assert decided
    assert TuneChoice.parse(path).frozen == decided[-1]


def test_a_log_that_is_no_log_is_refused(tmp_path: Path) -> None:
    (tmp_path / "log").write_text('{"snapshot": {"at_ns": 0}}\n')
    with pytest.raises(ConfigError, match="must begin with a state"):
        list(replayed(read_log(tmp_path / "log")))
    (tmp_path / "log").write_text("records\n")
    with pytest.raises(ConfigError, match="line 1: must be a line of a tuner's log"):
        list(read_log(tmp_path / "log"))
    with pytest.raises(ConfigError, match="No such file"):
        list(read_log(tmp_path / "none"))
    with pytest.raises(ConfigError, match="must be writable"):
        TuningLog(Path("/proc/none/log"))


def test_a_log_that_cannot_be_written_does_not_end_the_tuner(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    full = TuningLog(tmp_path / "log")
    full._file.close()
    full._file = open("/dev/full", "wb", buffering=0)  # noqa: SIM115  # closed by the tuner
    tuner = Tuner(TUNING, _Looks(), full)
    for n in range(30):
        tuner.turn(n * S // 2, LIMITS)
    assert caplog.text.count("cannot be written any more: No space left on device") == 1


def test_a_tuner_looks_twice_a_second_and_rests_while_nothing_happens() -> None:
    looks = _Looks()
    tuner = Tuner(TUNING, looks)
    assert tuner.is_due(0)
    tuner.turn(0, LIMITS)
    assert tuner.deadline_ns() == S // 2
    assert not tuner.is_due(S // 4)
    assert tuner.is_due(S // 2)
    tuner.turn(S // 2, LIMITS)
    looks.__class__ = type("_Still", (_Looks,), {"__call__": lambda self: self.now})
    for n in range(2, 10):
        tuner.turn(n * S // 2, LIMITS)
    assert tuner.deadline_ns() is None
    assert tuner.is_due(10 * S), "whatever happens next is looked at"


def test_a_state_survives_json() -> None:
    looks, state = _Looks(), RuleState(tuning=TUNING)
    for _ in range(20):
        state, _ = decide(state, looks(), LIMITS)
    assert msgspec.json.decode(msgspec.json.encode(state), type=RuleState) == state


def test_a_governor_is_told_how_much_the_user_may_wait() -> None:
    assert TuneChoice.parse(Joules()) == TuneChoice(way="joules", waits=pytest.approx(0.02))  # type: ignore[arg-type]
    assert TuneChoice.parse(Joules(1)).waits == 0
    wrong: list[Any] = [0.49, 1.01, True, "0.98", None, float("nan")]
    for value in wrong:
        with pytest.raises(ConfigError, match=r"utilisation must be a number in \[0.5, 1\], got "):
            Joules(value)


def test_what_is_no_choice_is_refused() -> None:
    wrong: list[Any] = [Joules, None, 3, True, "", [], "a\0b", b"auto"]
    for value in wrong:
        with pytest.raises(ConfigError, match="must be"):
            TuneChoice.parse(value)


@pytest.mark.parametrize("returned", [None, 3, "ab", (None, None), (RuleState(tuning=TUNING), 3), (1, 2, 3)])
def test_a_rule_of_ones_own_that_returns_something_else_is_named(returned: Any) -> None:
    tuner = Tuner(TUNING, _Looks(), rule=lambda *_: returned)
    with pytest.raises(EmlioError, match="must return a RuleState and a Decision or None, got"):
        tuner.turn(0, LIMITS)


@pytest.mark.parametrize(
    ("tuning", "reason", "told"),
    [
        (TUNING, None, "a Decision of a Tuning and a reason in words"),
        (None, "more", "a Decision of a Tuning and a reason in words"),
        (Tuning(window_bytes=512 * MIB), "more", "limits.most_window_bytes, 268,435,456, got 536,870,912"),
    ],
)
def test_a_decision_that_cannot_be_is_refused_and_what_the_rule_saw_is_in_the_log(
    tmp_path: Path, tuning: Any, reason: Any, told: str
) -> None:
    def rule(state: RuleState, *_: object) -> tuple[RuleState, Decision]:
        return state, Decision(tuning=tuning, reason=reason)

    tuner = Tuner(TUNING, _Looks(), TuningLog(tmp_path / "log", own=True), rule)
    with pytest.raises(EmlioError, match=told):
        tuner.turn(0, LIMITS)
    assert [line.snapshot for line in read_log(tmp_path / "log")] == [None, Snapshot(at_ns=0)]
    tuner.close()


def test_a_rule_whose_state_is_not_what_it_decided_is_told_so() -> None:
    def rule(state: RuleState, *_: object) -> tuple[RuleState, Decision]:
        return state, Decision(tuning=msgspec.structs.replace(state.tuning, lanes=3), reason="three")

    with pytest.raises(
        EmlioError, match=r"a state whose tuning is that of its decision, got .*lanes=0.* and .*lanes=3"
    ):
        Tuner(TUNING, _Looks(), rule=rule).turn(0, LIMITS)


@pytest.mark.parametrize("raised", [ValueError("no"), SystemExit(3)])
def test_whatever_a_rule_raises_is_the_loaders_error_and_what_it_saw_is_in_the_log(
    tmp_path: Path, raised: BaseException
) -> None:
    def rule(*_: object) -> Any:
        raise raised

    tuner = Tuner(TUNING, _Looks(), TuningLog(tmp_path / "log", own=True), rule)
    with pytest.raises(EmlioError, match=f"it failed: {type(raised).__name__}") as caught:
        tuner.turn(0, LIMITS)
    assert caught.value.__cause__ is raised
    assert [line.snapshot for line in read_log(tmp_path / "log")] == [None, Snapshot(at_ns=0)]
    tuner.close()


def test_limits_that_change_are_in_the_log_and_a_rule_of_ones_own_is_not_asked_again(tmp_path: Path) -> None:
    path, looks = tmp_path / "log", _Looks()
    tuner = Tuner(TUNING, looks, TuningLog(path))
    for n in range(12):
        tuner.turn(n * S // 2, msgspec.structs.replace(LIMITS, lanes=0.1 * (n // 4)))
    tuner.close()
    assert sum(line.limits is not None for line in read_log(path)) == 3
    looked = list(replayed(read_log(path)))
    assert all((again.tuning if again is not None else None) == line.tuning and asked for line, again, asked in looked)
    own = Tuner(TUNING, looks, TuningLog(tmp_path / "own", own=True), _larger)
    for n in range(4):
        own.turn(n * S // 2, LIMITS)
    own.close()
    looked = list(replayed(read_log(tmp_path / "own")))
    assert len(looked) == 4
    assert all(again is not None and again.tuning == line.tuning and not asked for line, again, asked in looked)
    with pytest.raises(FileExistsError):
        TuningLog(path)


def _larger(state: RuleState, _: Snapshot, __: Limits) -> tuple[RuleState, Decision]:
    tuning = msgspec.structs.replace(state.tuning, window_bytes=state.tuning.window_bytes + MIB)
    return msgspec.structs.replace(state, tuning=tuning), Decision(tuning=tuning, reason="more")


@pytest.mark.parametrize(
    ("ping_ms", "handshake_ms", "path_ms"),
    [
        (3.0, 0.04, 0.04),  # two busy interpreters on one host
        (34.0, 30.0, 30.0),
        (30.0, 0.04, 30.0),  # the handshake ended at a proxy, or the path is another one now
        (5.04, 0.04, 5.04),
        (1.0, 30.0, 1.0),
        (2.0, None, 2.0),  # this session needed no handshake
        (None, 30.0, None),  # there was no ping, so nothing is known of the path since
    ],
)
def test_a_busy_host_is_not_taken_for_a_long_path(
    ping_ms: float | None, handshake_ms: float | None, path_ms: float | None
) -> None:
    def ns(ms: float | None) -> int | None:
        return None if ms is None else round(ms * 1e6)

    assert trip_of_path(ns(ping_ms), ns(handshake_ms)) == ns(path_ms)
    assert trip_of_path(ns(ping_ms), ns(handshake_ms), idle=0.3) == ns(path_ms)


def test_pings_of_a_host_that_rests_are_believed_though_a_handshake_was_faster() -> None:
    assert trip_of_path(4_000_000, 100_000, idle=0.9) == 4_000_000
    assert trip_of_path(None, 100_000, idle=0.9) is None
