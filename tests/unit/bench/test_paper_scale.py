"""The number of records of the paper's figures, and their time."""

import pytest
from sample_race import MS

from emlio.errors import ConfigError
from emlio_bench.paper.figures import FIGURES, RESNET, RTTS_NS, VGG, Task, figures_of
from emlio_bench.paper.scale import Scale, expected_ns, limit_ns, records_of, too_short

MINUTE_NS = 60_000_000_000
FAR_NS = 30 * MS
RESNET_TASK = next(task for figure in FIGURES for task in figure.tasks if task.name == "resnet")


def sizes(scale: Scale, within_ns: int = 90 * MINUTE_NS, rounds: int = 1) -> dict[Task, int]:
    return records_of(FIGURES, RTTS_NS, scale, within_ns=within_ns, rounds=rounds)


def test_tiny_is_two_batches_and_full_is_the_papers_number() -> None:
    assert {task.name: count // task.batch for task, count in sizes(Scale.TINY).items()}["large-one"] == 2
    assert sizes(Scale.FULL)[RESNET_TASK] == round(RESNET.requests)
    real = records_of(figures_of((5, 9), real=True), RTTS_NS, Scale.FULL, within_ns=1, rounds=1)
    assert sorted(real.values()) == sorted(round(training.requests) for training in (RESNET, VGG))


@pytest.mark.parametrize("within_ns", [60 * MINUTE_NS, 90 * MINUTE_NS, 600 * MINUTE_NS])
def test_what_fits_ends_within_the_time_and_uses_most_of_it(within_ns: int) -> None:
    found = sizes(Scale.FIT, within_ns)
    reading_ns = sum(
        expected_ns(task, records, rtt_ns) * task.rounds
        for task, records in found.items()
        for rtt_ns in task.rtts_ns or RTTS_NS
    )
    assert 0.3 * within_ns < reading_ns < within_ns
    for task, records in found.items():
        assert records % task.batch == 0
        assert records >= 2 * task.batch


def test_more_rounds_have_fewer_records() -> None:
    assert sizes(Scale.FIT, rounds=2)[RESNET_TASK] < sizes(Scale.FIT)[RESNET_TASK]


def test_too_little_time_is_refused_with_the_least() -> None:
    with pytest.raises(ConfigError, match=r"--within must leave time .* got 1 min 0 s; choose fewer figures"):
        sizes(Scale.FIT, MINUTE_NS)
    with pytest.raises(ConfigError, match="got 1 min 0 s; give more time"):
        records_of(figures_of((5,)), RTTS_NS, Scale.FIT, within_ns=MINUTE_NS, rounds=1)


def test_tasks_with_the_least_number_of_batches_are_told() -> None:
    real = figures_of((5, 9), real=True)
    # 10 runs start in 90 s.
    found = records_of(real, (FAR_NS,), Scale.FIT, within_ns=95_000_000_000, rounds=1)
    assert {count // task.batch for task, count in found.items()} == {2}
    told = too_short(found, Scale.FIT) or ""
    assert told.startswith("--within is too short for more than 2 batches of resnet-real, vgg-real")
    assert too_short(sizes(Scale.FIT), Scale.FIT) is None
    assert too_short(sizes(Scale.TINY), Scale.TINY) is None


def test_limits_leave_the_slowest_several_times_its_time() -> None:
    slowest_ns = limit_ns(RESNET_TASK, 5120, FAR_NS)
    assert slowest_ns > 3 * 5120 * 1.5 * FAR_NS
    assert limit_ns(RESNET_TASK, 64, 0) == MINUTE_NS
