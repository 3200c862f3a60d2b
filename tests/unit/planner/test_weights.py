from collections import Counter
from typing import Any

import numpy as np
import pytest

from emlio.errors import ConfigError
from emlio.planner.choice.choice import Choice
from emlio.planner.choice.fraction import Fraction
from emlio.planner.choice.matching import Numbers, match
from emlio.planner.choice.predicate import parse_predicate
from emlio.planner.choice.record_set import RecordSet
from emlio.planner.choice.record_weights import RecordWeights
from emlio.planner.choice.text import contents_named, read_content
from emlio.planner.choice.wanted import ClassWeights, GivenWeights, Wanted, set_of_ids
from emlio.planner.choice.weighted import Weighted
from emlio.planner.choice.where import Where
from emlio.planner.order import Shuffle
from emlio.planner.plan import Plan, PlanSpec
from emlio.planner.sampling import parse_sampling
from emlio.receiver.assignment.agreement import check_content
from emlio.receiver.setup.subset import Weights, find_sampling
from emlio_testing.planning import catalog_of, order_of

CATALOG = catalog_of(300, 0, 500, 200)
GIVEN = np.where(np.arange(1000) % 10 == 0, 0.0, np.random.default_rng(3).random(1000))
WEIGHTS = RecordWeights.of(GIVEN)


def _plan(samples: int, weights: RecordWeights = WEIGHTS, **given: Any) -> Plan:
    sampling = Weighted(weights=weights, samples=samples)
    return Plan(CATALOG, PlanSpec(**{"batch_size": 7, "seed": 5, "sampling": sampling, **given}))


@pytest.mark.parametrize("samples", [1, 10, 1000, 12_345])
@pytest.mark.parametrize("shuffle", ["global", "block:8:4", "shard", "none"])
def test_each_record_comes_as_often_as_its_weight_says(samples: int, shuffle: str) -> None:
    plan = _plan(samples, shuffle=Shuffle.parse(shuffle))
    for epoch in range(3):
        order = order_of(plan, epoch)
        counts = np.bincount(order, minlength=1000)
        wanted = samples * GIVEN / GIVEN.sum()
        assert len(order) == samples
        assert np.abs(counts - wanted).max() < 1 + 1e-6
        assert counts[GIVEN == 0].sum() == 0
        if shuffle == "none":
            assert order == sorted(order)
        if shuffle == "shard":
            shards = CATALOG.shards_of(np.array(order))
            assert np.count_nonzero(np.diff(shards)) == len(np.unique(shards)) - 1


def test_epochs_differ_and_over_many_the_counts_are_the_weights() -> None:
    plan = _plan(100)
    epochs = [order_of(plan, epoch) for epoch in range(200)]
    assert epochs[0] != epochs[1]
    assert order_of(plan, 7) == epochs[7]
    counts = Counter(number for epoch in epochs for number in epoch)
    found = np.array([counts[number] for number in range(1000)])
    wanted = 200 * 100 * GIVEN / GIVEN.sum()
    assert np.abs(found - wanted).max() < 6 * np.sqrt(wanted.max())


def test_the_other_side_makes_the_same_draws_of_the_text() -> None:
    plan = _plan(777)
    text = str(plan.spec.sampling)
    assert contents_named(text) == (WEIGHTS.digest,)
    sent = read_content(WEIGHTS.content)
    again = parse_sampling(text, {WEIGHTS.digest: sent})
    assert again == plan.spec.sampling
    assert Plan(CATALOG, PlanSpec(batch_size=7, seed=5, sampling=again)).digest == plan.digest
    for wrong in (text.replace("777", "0"), text.replace("samples=777", "samples=x"), text + " repeat=2", text[:-12]):
        with pytest.raises(ConfigError):
            parse_sampling(wrong, {WEIGHTS.digest: sent})
    other = set_of_ids(np.arange(5))
    with pytest.raises(ConfigError, match="must be weights"):
        parse_sampling(f"choice weights={other.digest}:5 samples=3", {other.digest: other})
    with pytest.raises(ConfigError, match="must be a set"):
        parse_sampling(f"choice records={WEIGHTS.digest}:1000", {WEIGHTS.digest: sent})


def test_draws_never_change() -> None:
    weights = RecordWeights.of(np.array([1.0, 0.0, 3.0, 2.0]))
    plan = Plan(catalog_of(2, 2), PlanSpec(batch_size=2, seed=1, sampling=Weighted(weights=weights, samples=12)))
    assert sorted(order_of(plan)) == [0, 0, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3]
    assert order_of(plan) == [3, 0, 2, 2, 2, 2, 2, 0, 3, 2, 3, 3]


def test_many_samples_of_many_records_stay_exact() -> None:
    weights = RecordWeights.of(np.random.default_rng(0).random(1_000_000))
    catalog = catalog_of(*[100_000] * 10)
    epoch = Plan(catalog, PlanSpec(batch_size=256, sampling=Weighted(weights=weights, samples=2**31))).epoch(0)
    last = epoch.ids_at(np.arange(2**31 - 1000, 2**31))
    assert ((last >= 0) & (last < 1_000_000)).all()
    assert epoch.length == 2**31


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([1.0, -0.5], "finite and at least 0, got -0.5 for record 1"),
        ([1.0, float("nan")], "finite and at least 0, got nan for record 1"),
        ([float("inf")], "finite and at least 0"),
        ([0.0, 0.0], "above 0 for at least one record"),
        ([], "1 to 268,435,456 records, got 0"),
    ],
)
def test_wrong_weights_are_refused(given: list[float], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        RecordWeights.of(np.array(given, np.float64))


@pytest.mark.parametrize("content", [b"", b"w", b"w" + bytes(4), b"w" + bytes(7), b"x" + bytes(4)])
def test_bytes_that_are_no_weights_are_refused(content: bytes) -> None:
    with pytest.raises(ConfigError, match=r"weights|4 bytes"):
        RecordWeights(content)


def test_a_small_weight_is_not_rounded_away() -> None:
    weights = RecordWeights.of(np.array([1e-30, 1.0]))
    assert weights.before(np.array([0, 1, 2])).tolist() == [0, 1, 2**32]


def test_weights_of_another_number_of_records_are_refused() -> None:
    with pytest.raises(ConfigError, match="for each of 1,000 records of the dataset, got 2"):
        _plan(5, RecordWeights.of(np.ones(2)))


# ---- a user's choice ------------------------------------------------------------------------------------------------


def _bits(mask: Any) -> Any:
    return np.packbits(np.asarray(mask, np.bool_), bitorder="little")


def _answers(questions: tuple[str, ...], labels: list[int]) -> list[Any]:
    """The answers to questions of the form `label` in {...}."""
    wanted = [{int(one) for one in question[question.index("{") + 1 : -1].split(",")} for question in questions]
    return [_bits([label in chosen for label in labels]) for chosen in wanted]


def test_weights_of_classes_take_few_questions() -> None:
    labels = [int(number) for number in np.random.default_rng(1).integers(0, 100, 1000)]
    weights = {label: float(label % 4) for label in range(100)}
    wanted = find_sampling(None, 1, weights, 5000)
    assert isinstance(wanted, Wanted)
    assert len(wanted.questions) == 7
    settled = wanted.settle(CATALOG, _answers(wanted.questions, labels))
    assert isinstance(settled, Weighted)
    counts = np.bincount(order_of(Plan(CATALOG, PlanSpec(batch_size=7, sampling=settled))), minlength=1000)
    each = np.array([weights[label] for label in labels])
    assert np.abs(counts - 5000 * each / each.sum()).max() < 1 + 1e-6


def test_classes_without_a_weight_are_not_left_out_silently() -> None:
    labels = [number % 3 for number in range(1000)]
    wanted = find_sampling(None, 1, {0: 1.0}, None)
    assert isinstance(wanted, Wanted)
    with pytest.raises(ConfigError, match=r"666 of 1,000 have another class or none. Give '\*'"):
        wanted.settle(CATALOG, _answers(wanted.questions, labels))
    wanted = find_sampling(None, 1, {0: 1.0, "*": 0}, None)
    assert isinstance(wanted, Wanted)
    settled = wanted.settle(CATALOG, _answers(wanted.questions, labels))
    assert set(order_of(Plan(CATALOG, PlanSpec(batch_size=7, sampling=settled)))) == set(range(0, 1000, 3))


def _matched(questions: tuple[str, ...], column: Numbers) -> list[Any]:
    return [_bits(match(parse_predicate(question), {"label": column})) for question in questions]


def test_a_class_given_by_number_and_by_name_does_not_get_the_weight_of_another_one() -> None:
    column = Numbers.of(np.arange(1000) % 3, names={0: "cat", 1: "dog", 2: "rare"})
    wanted = find_sampling(None, 1, {1: 1.0, "dog": 2.0, "rare": 10.0, "*": 1.0}, None)
    assert isinstance(wanted, Wanted)
    with pytest.raises(
        ConfigError, match="weights must name each class once, got 1 and 'dog', which are the same class"
    ):
        wanted.settle(CATALOG, _matched(wanted.questions, column))


def test_classes_may_be_given_by_number_and_others_by_name() -> None:
    column = Numbers.of(np.arange(1000) % 4, names={0: "cat", 1: "dog", 2: "rare"})
    wanted = find_sampling(None, 1, {"cat": 2.0, 1: 1.0, "rare": 4.0, "*": 0.0}, None)
    assert isinstance(wanted, Wanted)
    assert wanted.weights is not None
    weights, absent = wanted.weights.of_records(CATALOG, _matched(wanted.questions, column))
    assert weights[:8].tolist() == [2.0, 1.0, 4.0, 0.0] * 2
    assert absent == ()


def test_classes_that_no_record_has_are_told() -> None:
    column = Numbers.of(np.arange(1000) % 4, names={0: "cat", 1: "dog", 7: "bird"})
    wanted = find_sampling(None, 1, {"cat": 2.0, "bird": 1.0, 9: 3.0, 1: 1.0, "*": 0.0}, None)
    assert isinstance(wanted, Wanted)
    settled = wanted.settle(CATALOG, _matched(wanted.questions, column))
    assert isinstance(settled, Weighted)
    assert settled.absent == (9, "bird")


def test_a_column_is_of_weights_by_class_only() -> None:
    with pytest.raises(ConfigError, match="column must be given with weights by class only, got 'x'"):
        Weights([1, 2], column="x")


def test_weights_apply_within_a_subset() -> None:
    part = Fraction(0, 0.5, seed=1)
    wanted = find_sampling(part, 1, np.ones(1000), None)
    assert isinstance(wanted, Wanted)
    settled = wanted.settle(CATALOG, [])
    assert isinstance(settled, Weighted)
    ids = order_of(Plan(CATALOG, PlanSpec(batch_size=7, sampling=settled)))
    chosen = np.flatnonzero(part.select(CATALOG).has(np.arange(1000))).tolist()
    assert sorted(ids) == chosen  # equal weights, as many draws as records: each once


def test_names_of_classes_are_quoted() -> None:
    weights = ClassWeights({"it's": 1.0, "b": 2.0, 3: 1.0}, "image/class")
    assert weights.questions == ("`image/class` in {3}", '`image/class` in {"it\'s"}', "`image/class` in {'b'}")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"samples": 5}, "samples must be given with weights only"),
        ({"weights": {0: 1.0}, "repeat": 2}, "repeat must be 1 with weights, which draw with replacement"),
        ({"weights": {0: -1.0}}, "at least 0, got -1.0 for class 0"),
        ({"weights": {0: 0.0}}, "above 0 for at least one class"),
        ({"weights": {0.5: 1.0}}, "numbers by class"),
        ({"weights": {0: "much"}}, "numbers by class"),
        ({"weights": [[1.0]]}, "a list of numbers"),
        ({"weights": ["a"]}, "a list of numbers"),
        ({"weights": "missing.npy"}, "weights must be numbers or a .npy file of numbers, got 'missing.npy'"),
    ],
    ids=range(9),
)
def test_what_makes_no_sense_is_refused(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        find_sampling(None, **({"repeat": 1} | arguments))


def test_a_predicate_is_asked_before_the_classes() -> None:
    wanted = find_sampling(Where("size < 5"), 1, {0: 1.0, 1: 2.0, "*": 1.0}, 10)
    assert isinstance(wanted, Wanted)
    assert wanted.questions == ("size < 5", "`label` in {0}", "`label` in {1}")
    assert isinstance(wanted.weights, ClassWeights)
    assert not isinstance(wanted.weights, GivenWeights)


@pytest.mark.parametrize("kind", ["set", "bits", "weights"])
def test_what_no_daemon_takes_is_refused_before_it_is_sent(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sampling = {
        "set": Choice(subset=set_of_ids(np.arange(0, 100_000, 1000))),
        "bits": Choice(subset=set_of_ids(np.arange(6400))),
        "weights": Weighted(weights=RecordWeights.of(np.ones(200)), samples=5),
    }[kind]
    content = sampling.weights if isinstance(sampling, Weighted) else sampling.subset
    assert isinstance(content, RecordSet | RecordWeights)
    assert content.content_bytes == len(content.content) == 801
    check_content(sampling)
    monkeypatch.setattr("emlio.receiver.assignment.agreement.MAX_CONTENT_BYTES", 800)
    with pytest.raises(ConfigError, match="must take at most 0 MiB for daemons"):
        check_content(sampling)
