"""The choice of a rank's generation, and the closing of generations that no rank can get.

Covers: the rules, with datasets that have no files. Does not cover: files, threads, sockets (e2e/test_generations).
"""

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from emlio.daemon.datasets.generations import Generations
from emlio.daemon.datasets.served import ServedDataset
from emlio.dataset_name import DatasetName
from emlio.errors import ConfigError, RefusedError
from emlio.wire.control import Hello
from emlio.wire.limits import MAX_GENERATIONS
from emlio_testing.reading import made_up
from emlio_testing.session_pair import example_hello

S = 1_000_000_000
LINGER_NS = 20 * S


def made(name: str, digest: str = "d") -> ServedDataset:
    """A generation of one record, which differs from others by its digest."""
    return ServedDataset(made_up(name, {"s": (0, 1)}, digest=digest))


def hello(dataset: str = "x", job: str = "job", **said: object) -> Hello:
    return msgspec.structs.replace(example_hello(), dataset=dataset, job=job, **said)


@pytest.fixture
def generations() -> Generations:
    """x@1 and x@3."""
    found = Generations(linger_ns=LINGER_NS)
    found.add(made("x", "one"))
    found.add(made("x@3", "three"))
    return found


def number_of(generations: Generations, said: Hello) -> int:
    return generations.choose(said).generation


def test_of_generations_alike_a_rank_gets_the_one_that_it_read_or_names() -> None:
    found = Generations(linger_ns=LINGER_NS)
    found.add(made("x", "same"))
    found.add(made("x@2", "same"))
    held = made("x", "same").catalog.fingerprint
    assert number_of(found, hello(held=held, generation=1)) == 1
    assert number_of(found, hello(held=held, generation=2)) == 2
    assert number_of(found, hello("x@1", held=held)) == 1
    assert number_of(found, hello(held=held)) == 2


# ---- names --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "name", "number"), [("x", "x", None), ("x@1", "x", 1), ("a.b-c@12", "a.b-c", 12)])
def test_a_name_may_have_a_generation(text: str, name: str, number: int | None) -> None:
    assert DatasetName.parse(text) == DatasetName(name, number)
    assert str(DatasetName.parse(text)) == text
    assert DatasetName.without_generation(text) == name


@pytest.mark.parametrize("text", ["x@", "x@0", "x@01", "x@-1", "x@two", "x@1@2", "x@1234567890", "x@\u0661"])
def test_a_generation_is_a_number_from_1_on(text: str) -> None:
    with pytest.raises(ConfigError, match="generation must be a number from 1 on"):
        DatasetName.parse(text)
    assert DatasetName.without_generation(text) == "x"


# ---- what a rank gets ---------------------------------------------------------------------------------------------------


def test_a_name_is_the_newest_generation_and_a_number_a_certain_one(generations: Generations) -> None:
    assert number_of(generations, hello()) == 3
    assert number_of(generations, hello("x@1")) == 1
    assert generations.numbers("x") == [1, 3]
    with pytest.raises(RefusedError, match="no dataset 'x@2' at this daemon, available: x@1, x@3") as refused:
        generations.choose(hello("x@2"))
    assert refused.value.code == "unknown-dataset"
    with pytest.raises(RefusedError, match=r"no dataset 'y' at this daemon, available: x$"):
        generations.choose(hello("y"))


def test_the_first_rank_of_a_job_decides_while_the_job_has_a_session(generations: Generations) -> None:
    first, second = hello(rank=0), hello(rank=1)
    given = generations.choose(first)
    generations.enter(first, given)
    generations.add(made("x@4", "four"))
    assert generations.choose(second) is given
    assert number_of(generations, hello(job="another")) == 4
    generations.enter(second, given)
    generations.leave(first, given)
    assert generations.choose(first) is given
    generations.leave(second, given)
    assert number_of(generations, first) == 4


def test_the_generation_of_a_job_outlives_its_removal(generations: Generations) -> None:
    first, second = hello(rank=0), hello(rank=1)
    given = generations.choose(first)
    generations.enter(first, given)
    generations.retire("x", 3)
    assert generations.choose(second) is given
    assert number_of(generations, hello(job="another")) == 1
    generations.retire("x", 1)
    assert generations.choose(second) is given
    with pytest.raises(RefusedError, match="no dataset 'x' at this daemon any more, available: none"):
        generations.choose(hello(job="another"))


def test_a_rank_that_names_a_generation_decides_for_itself_alone(generations: Generations) -> None:
    one = hello("x@1", rank=0)
    generations.enter(one, generations.choose(one))
    assert number_of(generations, hello(rank=1)) == 3


def test_a_rank_that_comes_back_gets_what_it_had_whatever_it_is_called_now(generations: Generations) -> None:
    had = made("x", "one").catalog.fingerprint
    assert number_of(generations, hello(held=had)) == 1
    generations.add(made("x@1", "one, with more"))
    assert generations.choose(hello("x", held=had)).catalog.fingerprint == had
    assert generations.choose(hello("x@1")).catalog.fingerprint != had
    assert number_of(generations, hello(held="something else")) == 3
    assert number_of(generations, hello(held="something else", generation=1)) == 1


def test_a_rank_that_comes_back_first_decides_for_its_job(generations: Generations) -> None:
    back = hello(rank=0, held=made("x", "one").catalog.fingerprint)
    generations.enter(back, generations.choose(back))
    assert number_of(generations, hello(rank=1)) == 1


def test_a_rank_that_knows_the_generation_of_its_job_gets_it_if_it_is_there(generations: Generations) -> None:
    assert number_of(generations, hello(generation=1)) == 1
    assert number_of(generations, hello(generation=2)) == 3


def test_a_dataset_that_is_being_opened_is_to_be_asked_for_again(generations: Generations) -> None:
    generations.opening |= {DatasetName("y"), DatasetName("x", 4)}
    for asked in ("y", "y@1", "x@4"):
        with pytest.raises(RefusedError, match=r"is being opened at this daemon\. Retry later") as refused:
            generations.choose(hello(asked))
        assert refused.value.code == "no-session", "a rank calls again after that"
    with pytest.raises(RefusedError) as refused:
        generations.choose(hello("y@2"))
    assert refused.value.code == "unknown-dataset"
    assert number_of(generations, hello()) == 3, "the newest that is open"


def test_a_client_hears_of_nothing_that_it_may_not_read(generations: Generations) -> None:
    generations.add(made("secret@2"))
    generations.opening.add(DatasetName("hidden"))
    generations.add(made("gone"))
    generations.retire("gone", 1)
    for asked in ("secret", "secret@1", "secret@2", "hidden", "gone", "never"):
        with pytest.raises(RefusedError) as refused:
            generations.choose(hello(asked), ["x"])
        assert str(refused.value) == f"there is no dataset {asked!r} at this daemon, available: x"
    with pytest.raises(RefusedError, match="available: none for this key"):
        generations.choose(hello("x"), [])


def test_a_welcome_names_as_many_generations_as_fit(generations: Generations) -> None:
    for number in range(4, 100):
        generations.add(made(f"x@{number}"))
    assert generations.numbers("x") == list(range(100 - MAX_GENERATIONS, 100))
    assert number_of(generations, hello("x@1")) == 1


# ---- closing ------------------------------------------------------------------------------------------------------------


def test_a_generation_that_was_never_read_is_closed_at_once(generations: Generations) -> None:
    assert generations.take_unused(0) == []
    assert generations.deadline_ns() is None
    (unused,) = [one for one in generations.all if one.generation == 1]
    generations.retire("x", 1)
    assert generations.deadline_ns() == 0
    assert generations.take_unused(5) == [unused]
    assert generations.deadline_ns() == 5 + S
    assert generations.take_unused(5 + S - 1) == []
    assert generations.take_unused(5 + S) == [unused], "what could not be closed is tried again"
    generations.closed(unused)
    assert generations.deadline_ns() is None
    assert unused not in generations.all


def test_a_generation_that_was_read_waits_for_a_rank_that_lost_its_connection(generations: Generations) -> None:
    rank = hello()
    read = generations.choose(rank)
    generations.enter(rank, read)
    generations.retire("x", 3)
    assert generations.take_unused(100 * S) == []
    assert generations.deadline_ns() is None, "only the end of its session can change anything"
    generations.leave(rank, read)
    assert generations.take_unused(200 * S) == []
    assert generations.deadline_ns() == 200 * S + LINGER_NS
    back = hello(held=read.catalog.fingerprint)
    assert generations.choose(back) is read
    generations.enter(back, read)
    assert generations.take_unused(300 * S) == []
    generations.leave(back, read)
    assert generations.take_unused(400 * S) == []
    assert generations.take_unused(400 * S + LINGER_NS) == [read]
    assert generations.choose(back).generation == 1, "what is being closed is given to nobody"


def test_a_closed_generation_is_given_to_no_rank_of_its_job(generations: Generations) -> None:
    first, other = hello(rank=0), hello("x@1", rank=1)
    read = generations.choose(first)
    generations.enter(first, read)
    generations.enter(other, generations.choose(other))
    generations.leave(first, read)
    generations.retire("x", 3)
    generations.take_unused(0)
    assert generations.take_unused(LINGER_NS) == [read]
    assert number_of(generations, hello(rank=2)) == 1


class AnyOrder(RuleBasedStateMachine):
    """Whatever comes and goes: what has a session is open, all ranks of a job that name no generation have one."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ns = 0
        self.count = 0
        self.generations = Generations(linger_ns=LINGER_NS)
        self.sessions: list[tuple[Hello, ServedDataset]] = []

    @rule(number=st.integers(1, 3))
    def add(self, number: int) -> None:
        self.count += 1
        self.generations.add(made(f"x@{number}", f"digest {self.count}"))

    @rule(number=st.integers(1, 3))
    def retire(self, number: int) -> None:
        self.generations.retire("x", number)

    @rule(job=st.sampled_from("ab"), number=st.sampled_from([None, 1, 2]))
    def join(self, job: str, number: int | None) -> None:
        said = hello(str(DatasetName("x", number)), job)
        try:
            served = self.generations.choose(said)
        except RefusedError:
            return
        self.generations.enter(said, served)
        self.sessions.append((said, served))

    @rule(number=st.integers(0, 20))
    def leave(self, number: int) -> None:
        if self.sessions:
            self.generations.leave(*self.sessions.pop(number % len(self.sessions)))

    @rule(seconds=st.integers(0, 30))
    def wait(self, seconds: int) -> None:
        self.now_ns += seconds * S
        for unused in self.generations.take_unused(self.now_ns):
            assert all(served is not unused for _, served in self.sessions)
            self.generations.closed(unused)

    @invariant()
    def what_is_read_is_open(self) -> None:
        assert all(served in self.generations.all for _, served in self.sessions)
        assert all(served.sessions == sum(one is served for _, one in self.sessions) for served in self.generations.all)

    @invariant()
    def the_ranks_of_a_job_have_one_generation(self) -> None:
        for job in "ab":
            given = {id(served) for said, served in self.sessions if said.job == job and said.dataset == "x"}
            assert len(given) <= 1


AnyOrder.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestAnyOrder = AnyOrder.TestCase


def test_what_was_read_counts_for_all_generations_and_also_once_they_are_closed(
    generations: Generations, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = {"disk_bytes": 30, "shared_bytes": 12}
    for name, count in read.items():
        monkeypatch.setattr(type(generations.all[0].files), name, property(lambda _, count=count: count))
    assert generations.read_bytes() == {"x": (60, 24)}
    generations.retire("x", 1)
    (unused,) = generations.take_unused(0)
    generations.closed(unused)
    assert len(generations.all) == 1
    assert generations.read_bytes() == {"x": (60, 24)}
