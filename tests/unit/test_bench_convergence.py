from pathlib import Path

import numpy as np
import pytest

from emlio.errors import ConfigError, DatasetError
from emlio_bench.cli import main
from emlio_bench.convergence import digits as convergence_digits
from emlio_bench.convergence import run as convergence
from emlio_bench.convergence import training as convergence_training
from emlio_bench.convergence.digits import DigitFiles, Digits, split_digits
from emlio_bench.convergence.run import choose_ways, compare, count_other_losses
from emlio_bench.convergence.training import Epoch, Trained, TrainingOrder
from emlio_bench.convergence.ways import LinkUse, Run
from emlio_bench.harness.report import missed_bounds

MS = 1_000_000
FILES = DigitFiles(shards=Path("s"), arrays=Path("a"), records=60, record_bytes=6000)
ORDER = TrainingOrder(arrays="a", shards="s", address=None, epochs=2, batch_size=32, seed=1, order_seed=1)
STEP_LOSSES = (0.5, 0.25, 0.125, 0.0625)


def run_of(
    losses: tuple[float, ...] = STEP_LOSSES, accuracy: float = 0.99, weights: str = "w", link: LinkUse | None = None
) -> Run:
    half = len(losses) // 2
    epochs = tuple(
        Epoch(losses=part, waits_ns=tuple(MS for _ in part), accuracy=accuracy)
        for part in (losses[:half], losses[half:])
    )
    trained = Trained(parameters={"1.weight": weights, "1.bias": "b"}, training_ns=100 * MS, torch="2")
    return Run(epochs=epochs, trained=trained, link=link)


def missed(quick: bool = False, **others: Run) -> tuple[str, ...]:
    runs = {"memory": run_of(), **others}
    return missed_bounds(compare(runs, FILES, ORDER, 30 * MS, quick=quick, left_out=""))


def next_float(value: float) -> float:
    return float(np.nextafter(np.float32(value), np.float32(1)))


def test_equal_trainings_keep_all_bounds_and_another_order_must_differ() -> None:
    link = LinkUse(rtt_ns=(30 * MS, 31 * MS), to_training_bytes=20_000)
    assert missed(loopback=run_of(), link=run_of(link=link), reordered=run_of((0.4, 0.3, 0.2, 0.1), weights="v")) == ()
    names = missed(reordered=run_of())
    assert names == (
        "steps with another loss, from memory in another order",
        "other weight tensors at the end, from memory in another order",
    )


def test_the_last_bit_of_one_loss_or_weight_is_a_difference() -> None:
    other = run_of((0.5, 0.25, next_float(0.125), 0.0625))
    assert count_other_losses(run_of(), other) == 1
    assert missed(loopback=other) == ("steps with another loss, over loopback",)
    assert missed(loopback=run_of(weights="v")) == ("other weight tensors at the end, over loopback",)


def test_a_loss_of_minus_zero_is_another_and_one_that_is_no_number_is_the_same() -> None:
    assert count_other_losses(run_of((0.0, 1.0)), run_of((-0.0, 1.0))) == 1
    nan = float("nan")
    assert count_other_losses(run_of((nan, 1.0)), run_of((nan, 1.0))) == 0


def test_steps_that_only_one_training_has_count() -> None:
    assert count_other_losses(run_of(), run_of(STEP_LOSSES[:2])) == 2
    assert missed(loopback=run_of(STEP_LOSSES[:2])) == ("steps with another loss, over loopback",)


def test_a_training_must_tell_most_digits_right_unless_it_was_too_short() -> None:
    assert missed(loopback=run_of(accuracy=0.96)) == ("test accuracy at the end, over loopback",)
    assert missed(quick=True, loopback=run_of(accuracy=0.5)) == ()


@pytest.mark.parametrize(
    ("link", "name"),
    [
        (LinkUse(rtt_ns=(30 * MS, 29 * MS), to_training_bytes=20_000), "round trip of the link, before and after"),
        (LinkUse(rtt_ns=(30 * MS, 30 * MS), to_training_bytes=11_999), "carried by the link, read ahead included"),
    ],
)
def test_a_link_that_is_short_or_was_not_used_shows(link: LinkUse, name: str) -> None:
    assert missed(link=run_of(link=link)) == (name,)


def test_the_split_is_always_the_same_and_every_digit_is_in_one_part() -> None:
    numbers = np.arange(1797)
    digits = Digits(pixels=np.repeat(numbers[:, None], 64, axis=1).astype(np.float32), labels=numbers)
    (training, test), (again, _) = split_digits(digits), split_digits(digits)
    assert (len(training.labels), len(test.labels)) == (1437, 360)
    assert sorted([*training.labels, *test.labels]) == numbers.tolist()
    assert training.labels.tolist() == again.labels.tolist() != sorted(training.labels)
    assert (training.pixels[:, 0] == training.labels).all()


def test_pixels_of_another_shape_are_refused() -> None:
    with pytest.raises(DatasetError, match="64 for each of 2 labels"):
        Digits(pixels=np.zeros((2, 63), np.float32), labels=np.zeros(2, np.int64))


def test_without_a_link_all_else_is_done_unless_the_link_was_asked_for() -> None:
    ways, said = choose_ways(None, lambda: "needs root")
    assert ways == ("memory", "loopback", "reordered")
    assert "needs root" in said
    with pytest.raises(ConfigError, match="needs root"):
        choose_ways(("memory", "link"), lambda: "needs root")
    assert choose_ways(None, lambda: None) == (("memory", "loopback", "link", "reordered"), "")


def test_whether_there_can_be_a_link_is_not_tried_where_none_is_wanted() -> None:
    def fail() -> str | None:
        raise AssertionError("nobody asked")

    assert choose_ways(("memory", "loopback"), fail) == (("memory", "loopback"), "")


@pytest.mark.parametrize(("module", "named"), [(convergence_digits, "scikit-learn"), (convergence_training, "PyTorch")])
def test_what_is_not_installed_is_named_before_anything_runs(
    module: object, named: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for known in (convergence_digits, convergence_training):
        monkeypatch.setattr(known, "find_spec", lambda name, here=known is not module: name if here else None)
    assert main(["convergence", "--quick"]) == 2
    assert named in capsys.readouterr().err


def test_a_link_that_was_asked_for_and_cannot_be_exits_with_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for known in (convergence_digits, convergence_training):
        monkeypatch.setattr(known, "find_spec", lambda name: name)
    monkeypatch.setattr(convergence, "why_not", lambda: "needs root, for network namespaces")
    assert main(["convergence", "--quick", "--ways", "memory,link"]) == 2
    assert "needs root" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--ways", "loopback"], "must have memory"),
        (["--ways", "memory,nfs"], "--ways"),
        (["--json", "r.json", "--append"], "--append"),
        (["--epochs", "0"], "--epochs"),
    ],
)
def test_settings_that_cannot_be_are_refused(argv: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convergence", *argv]) == 2
    assert said in capsys.readouterr().err
