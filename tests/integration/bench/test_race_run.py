"""Rounds of a race: systems that behave in every way, over an emulated link."""

import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import msgspec
import pytest

from emlio.errors import DatasetError
from emlio_bench.harness.contest import Contest, Corpus, Family
from emlio_bench.harness.results import Run, read_results
from emlio_bench.link.accuracy import measure_link
from emlio_bench.link.contract import Link, LinkKind, LinkSpec
from emlio_bench.race.quantity import Quantity
from emlio_bench.race.records.order import RaceOrder, consumer_command
from emlio_bench.race.run.joules import Joules
from emlio_bench.race.run.kept import KeptResults
from emlio_bench.race.run.measure import Job, run_once
from emlio_bench.race.run.one_machine import OneMachine, children
from emlio_bench.race.run.turns import Field, Turns
from emlio_bench.race.systems.entries import entry_of
from emlio_bench.race.systems.ours import Remote
from emlio_bench.race.systems.system import Claim, Setting, System, setting

CORPUS = Corpus(records=200, record_bytes=2000)
CONTEST = Contest(
    name="read", words="read", corpus=CORPUS, rtt_ns=2_000_000, batch=16, epochs=2, limit_ns=20_000_000_000
)
SPEC = LinkSpec(rtt_ns=CONTEST.rtt_ns)
SIDE = OneMachine(LinkKind.EMULATED)

SAYS = """
import json, sys, time
order, folder = json.loads(sys.argv[1]), None
now = time.monotonic_ns()
for number in range(order["epochs"]):
    records = order["corpus"]["records"]
    print(json.dumps({"epoch": number, "begun_ns": now, "first_batch_ns": now + 1, "ended_ns": now + 2, "records": records,
        "payload_bytes": records * order["corpus"]["record_bytes"], "wait_ns": 1, "batches": 1, "blocks": 1.0,
        "distinct": records, "cut": %s, "ids_crc": 0}), flush=True)
print(json.dumps({"cpu_ns": 1, "peak_rss_bytes": 1, "peak_pss_bytes": 1, "cache_bytes": 0}), flush=True)
"""


NO_CLAIM = Claim(shuffles="nothing", exact=None, leaves_on_disk="nothing")


@dataclass(frozen=True, kw_only=True)
class Actor(System):
    """A system that reads nothing and says what it is told to."""

    script: str
    name: str = "actor"
    family: Family = "files"
    claim: Claim = NO_CLAIM
    reader: str = ""
    ran: list[int] = field(default_factory=list)
    broken: bool = False

    def settings(self, rtt_ns: int) -> tuple[Setting, ...]:
        return (setting("default", "as it is"),)

    def prepare(self, corpus: Corpus, folder: Path) -> Path:
        if self.broken:
            raise DatasetError("a writer must write, this one does not")
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    @contextmanager
    def serve(self, prepared: Path, link: Link) -> Generator[str, None, None]:
        yield f"nothing://{link.storage.address}"

    def command(self, order: RaceOrder) -> list[str]:
        self.ran.append(order.seed)
        return [sys.executable, "-c", self.script, msgspec.json.encode(order).decode()]


@dataclass(frozen=True, kw_only=True)
class Sleepy(Remote):
    """EMLIO, with a consumer that is slow enough to be cut."""

    def command(self, order: RaceOrder) -> list[str]:
        return consumer_command(None, "read_emlio", msgspec.structs.replace(order, step_ns=200_000_000))


def job(system: System, tmp_path: Path, contest: Contest = CONTEST) -> Job:
    return Job(
        contest=contest,
        system=system,
        setting=system.settings(0)[0],
        prepared=system.prepare(CORPUS, tmp_path / "forms"),
        spec=SPEC,
        round=3,
        place=1,
        seed=7,
    )


def test_a_run_is_metered_at_both_ends_and_leaves_nothing(tmp_path: Path) -> None:
    before = children()
    run = run_once(job(Remote(), tmp_path), SIDE)
    assert run.failure is None
    assert (run.scenario, run.subject, run.setting, run.round, run.place) == ("read", "emlio", "default", 3, 1)
    assert run.words["exact"] == "yes"
    assert run.value(Quantity.TRAINING_CPU) > 0
    assert run.value(Quantity.STORAGE_CPU) > 0
    assert 1 <= run.value(Quantity.WIRE_SHARE) < 3
    assert run.value(Quantity.ELAPSED) > run.value(Quantity.FIRST_EPOCH) > 0
    assert 0 <= run.value(Quantity.IN_FLIGHT) < run.value(Quantity.PEAK_IN_FLIGHT) < 3 * CORPUS.payload_bytes
    assert Quantity.ENERGY not in run.values
    assert children() == before


def test_the_energy_of_a_run_is_that_of_its_steps_and_that_of_waiting(tmp_path: Path) -> None:
    before = children()
    with Joules(tmp_path / "energy", cpu_watts="10:20") as joules:
        assert 0 <= joules.rest(5.1, tries=1) <= 1
        run = run_once(job(Remote(), tmp_path, replace(CONTEST, step_ns=20_000_000)), SIDE, joules)
    assert run.failure is None
    assert children() == before
    if Quantity.ENERGY not in run.values:  # of parts that are unknown beside a known whole, the next line fails
        pytest.skip(f"this machine's energy can be neither read nor estimated: {run.words}")
    step, wait = run.value(Quantity.STEP_ENERGY), run.value(Quantity.WAIT_ENERGY)
    # Where the recorder missed readings on a busy machine, its power at rest is not known.
    if Quantity.REST_ENERGY in run.values:
        # All of it, where this machine had more to do before the run.
        assert 0 < run.value(Quantity.REST_ENERGY) <= run.value(Quantity.ENERGY)
        assert run.value(Quantity.COMPUTE_ENERGY) > 0
        assert run.value(Quantity.STORAGE_ENERGY) > 0
    # 13 batches an epoch, each with its step; what a moment draws differs, so it is no exact share.
    seconds = (run.value(Quantity.FIRST_EPOCH) + run.value(Quantity.LATER_EPOCHS)) / 2
    assert step / (step + wait) == pytest.approx(13 * 0.02 / seconds, abs=0.3)


def test_an_epoch_that_takes_too_long_is_cut_and_the_last(tmp_path: Path) -> None:
    run = run_once(job(Sleepy(), tmp_path, replace(CONTEST, limit_ns=300_000_000)), SIDE)
    assert run.failure is None
    assert run.cut
    assert 0 < run.value(Quantity.RECORDS) < CORPUS.records
    assert run.values[Quantity.FIRST_EPOCH].beyond == ">"
    assert run.value(Quantity.FIRST_EPOCH) > 0.3


STUCK = """
import contextlib, time

@contextlib.contextmanager
def open_source(order):
    def batches(number):
        yield [bytes(2000)]
        time.sleep(600)
    yield batches
"""


def test_an_epoch_whose_next_batch_never_comes_is_cut_too(tmp_path: Path) -> None:
    (tmp_path / "stuck.py").write_text(STUCK, encoding="utf-8")

    class Stuck(Actor):
        def command(self, order: RaceOrder) -> list[str]:
            return ["env", f"PYTHONPATH={tmp_path}", *consumer_command(None, "stuck", order)]

    run = run_once(job(Stuck(script=""), tmp_path, replace(CONTEST, limit_ns=300_000_000)), SIDE)
    assert run.failure is None
    assert run.cut
    assert run.value(Quantity.RECORDS) == 1
    assert run.value(Quantity.FIRST_EPOCH) > 2
    assert run.value(Quantity.WAIT_SHARE) > 0.9
    assert Quantity.TRAINING_CPU in run.values


def test_a_consumer_that_fails_is_a_result_with_its_own_words(tmp_path: Path) -> None:
    run = run_once(job(Actor(script="raise SystemExit('no bucket of that name')"), tmp_path), SIDE)
    assert run.failure is not None
    assert "no bucket of that name" in run.failure
    assert set(run.values) == {Quantity.ELAPSED}


def hold(
    folder: Path,
    rounds: int,
    *systems: Actor,
    told: Callable[[str], None] = lambda _: None,
    within_ns: int | None = None,
    contests: Sequence[Contest] = (CONTEST,),
) -> Sequence[Run]:
    entries = tuple(entry_of(system) for system in systems)
    kept = KeptResults(folder / "race", "race", (), contests, [entry.entrant for entry in entries])
    look_at = partial(measure_link, pings=3, streams=(), iperf=None)
    turns = Turns(kept, OneMachine(LinkKind.EMULATED, look_at), told)
    fields = [Field(contest=contest, entries=entries) for contest in contests]
    turns.hold(turns.prepare(fields, folder / "forms", rounds), rounds, within_ns)
    done = read_results(folder / "race")
    assert done == kept.results
    assert [name for name, _ in done.links] == [contest.name for contest in contests]
    return done.runs


def test_systems_take_turns_and_another_one_begins_each_round(tmp_path: Path) -> None:
    actors = [Actor(script=SAYS % "False", name=name) for name in ("one", "two")]
    told: list[str] = []
    runs = hold(tmp_path, 2, *actors, told=told.append)
    assert [(run.subject, run.round, run.place) for run in runs] == [
        ("one", 0, 0),
        ("two", 0, 1),
        ("two", 1, 0),
        ("one", 1, 1),
    ]
    assert [actor.ran for actor in actors] == [[1, 2], [1, 2]], "each round has a seed of its own"
    assert sum(line.startswith("[") for line in told) == 4


def test_contests_take_turns_too_so_that_they_can_be_compared(tmp_path: Path) -> None:
    actor = Actor(script=SAYS % "False")
    near, far = (replace(CONTEST, name=name, rtt_ns=rtt_ns) for name, rtt_ns in (("near", 0), ("far", 2_000_000)))
    runs = hold(tmp_path, 2, actor, contests=(near, far))
    assert [(run.scenario, run.round) for run in runs] == [("near", 0), ("far", 0), ("near", 1), ("far", 1)]


def test_a_round_that_would_end_too_late_is_not_begun(tmp_path: Path) -> None:
    actor, told = Actor(script=SAYS % "False"), list[str]()
    assert len(hold(tmp_path, 3, actor, told=told.append, within_ns=1)) == 1
    assert told[-1] == "no round 2, which would end too late"
    assert len(hold(tmp_path, 3, actor, within_ns=3_600_000_000_000)) == 3


def test_a_race_goes_on_where_it_was(tmp_path: Path) -> None:
    first, later = Actor(script=SAYS % "False"), Actor(script=SAYS % "False")
    hold(tmp_path, 1, first)
    assert len(hold(tmp_path, 3, later)) == 3
    assert (first.ran, later.ran) == ([1], [2, 3])
    assert len(hold(tmp_path, 3, later)) == 3
    assert later.ran == [2, 3]


@pytest.mark.parametrize(
    ("script", "runs"), [(SAYS % "True", 1), ("raise SystemExit('always')", 2)], ids=["cut once", "failed twice"]
)
def test_what_would_say_nothing_new_is_not_run_again(tmp_path: Path, script: str, runs: int) -> None:
    actor = Actor(script=script)
    assert len(hold(tmp_path, 5, actor)) == runs
    assert len(actor.ran) == runs
    assert len(hold(tmp_path, 5, actor)) == runs


def test_who_cannot_make_its_data_fails_and_the_others_run(tmp_path: Path) -> None:
    runs = hold(tmp_path, 1, Actor(script="", name="broken", broken=True), Actor(script=SAYS % "False"))
    assert [(run.subject, run.failure is None) for run in runs] == [("broken", False), ("actor", True)]
    assert runs[0].failure == "a writer must write, this one does not"
