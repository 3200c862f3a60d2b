import json
from dataclasses import replace
from pathlib import Path

import pytest

from emlio.errors import ConfigError
from emlio_bench.harness.environment import Environment
from emlio_bench.link.accuracy import LinkReport, judge
from emlio_bench.link.contract import LinkKind
from emlio_bench.link.spec import LinkSpec
from emlio_bench.race.corpus import Corpus
from emlio_bench.race.folder import RaceFolder
from emlio_bench.race.order import Epoch, Finished
from emlio_bench.race.outcome import Contest, Energy, Entrant, Race, Run

WORLD = Environment(
    kernel="6.1.0",
    cpu="a processor",
    cores=2,
    memory_bytes=1 << 34,
    python="CPython 3.11.7",
    pyzmq="27.1.0",
    libzmq="4.3.5",
    numpy="2.4.0",
    iperf3=None,
    emlio="0.1.0",
    commit="0123456789ab",
    tcp_wmem="4096 16384 4194304",
    tcp_rmem="4096 131072 6291456",
    tcp_congestion_control="cubic",
)
CONTEST = Contest(name="read-30ms", words="read", corpus=Corpus(records=100, record_bytes=1000), rtt_ns=30_000_000)
ENTRANT = Entrant(
    subject="emlio",
    setting="default",
    words="everything automatic",
    family="ours",
    shuffles="all",
    exact=True,
    leaves_on_disk="nothing",
)
RACE = Race(
    environment=WORLD,
    settings=(("epochs", "2"),),
    begun="2026-01-01T00:00:00+00:00",
    contests=(CONTEST,),
    entrants=(ENTRANT,),
)
EPOCH = Epoch(
    epoch=0,
    begun_ns=1,
    first_batch_ns=2,
    ended_ns=3,
    records=100,
    payload_bytes=100_000,
    wait_ns=1,
    batches=2,
    blocks=1.0,
    distinct=100,
    cut=False,
    ids_crc=7,
)
FINISHED = Finished(cpu_ns=5, peak_rss_bytes=6, peak_pss_bytes=7, cache_bytes=8)


def link_report() -> LinkReport:
    return judge(LinkSpec(rtt_ns=30_000_000), LinkKind.EMULATED, [30_100_000, 30_200_000])


def run(number: int) -> Run:
    return Run(
        contest=CONTEST.name,
        subject="emlio",
        setting="default",
        round=number,
        place=0,
        epochs=(EPOCH,),
        finished=FINISHED,
        to_training_bytes=110_000,
        energy=Energy(joules=12.5, method="estimated"),
    )


def test_a_folder_without_a_race_has_none(tmp_path: Path) -> None:
    assert RaceFolder(tmp_path / "nothing").read() is None


def test_what_was_added_is_read_as_it_was(tmp_path: Path) -> None:
    folder = RaceFolder(tmp_path / "race")
    assert folder.begin(RACE) == RACE
    folder.add_link(CONTEST.name, link_report())
    folder.add_run(run(0))
    folder.add_run(run(1))
    assert folder.read() == replace(RACE, links=((CONTEST.name, link_report()),), runs=(run(0), run(1)))


def test_the_same_race_goes_on_with_those_who_can_take_part_now(tmp_path: Path) -> None:
    folder = RaceFolder(tmp_path)
    folder.begin(RACE)
    folder.add_run(run(0))
    joined = replace(RACE, begun="2026-01-02T00:00:00+00:00", entrants=(ENTRANT, replace(ENTRANT, subject="another")))
    went_on = folder.begin(joined)
    assert went_on == replace(joined, begun=RACE.begun, runs=(run(0),))
    assert folder.read() == went_on


def test_who_has_run_stays_in_the_race(tmp_path: Path) -> None:
    folder = RaceFolder(tmp_path)
    folder.begin(RACE)
    folder.add_run(run(0))
    newcomer = replace(ENTRANT, subject="another")
    assert folder.begin(replace(RACE, entrants=(newcomer,))).entrants == (newcomer, ENTRANT)


@pytest.mark.parametrize(
    "other",
    [
        replace(RACE, settings=(("epochs", "3"),)),
        replace(RACE, contests=(replace(CONTEST, rtt_ns=1),)),
        replace(RACE, environment=replace(WORLD, kernel="6.2.0")),
    ],
    ids=["settings", "contests", "environment"],
)
def test_another_race_does_not_go_on(tmp_path: Path, other: Race) -> None:
    folder = RaceFolder(tmp_path)
    folder.begin(RACE)
    folder.add_run(run(0))
    with pytest.raises(ConfigError, match="must go on as it began"):
        folder.begin(other)
    assert folder.read() == replace(RACE, runs=(run(0),))


def test_a_race_of_the_schema_before_is_read_and_what_it_does_not_say_is_not_known(tmp_path: Path) -> None:
    folder = RaceFolder(tmp_path)
    folder.begin(replace(RACE, schema=1))
    folder.add_link(CONTEST.name, link_report())
    folder.add_run(run(0))
    for name, field in (("runs.jsonl", "in_flight"), ("links.jsonl", "own_ns")):
        said = json.loads((tmp_path / name).read_text(encoding="utf-8"))
        del (said[1] if isinstance(said, list) else said)[field]
        (tmp_path / name).write_text(json.dumps(said) + "\n", encoding="utf-8")
    older = folder.read()
    assert older is not None
    assert older.schema == 1
    assert older.runs[0].in_flight is None
    assert older.links[0][1].own_ns == 0


def test_a_line_that_a_kill_cut_is_left_out_and_written_over(tmp_path: Path) -> None:
    folder = RaceFolder(tmp_path)
    folder.begin(RACE)
    folder.add_run(run(0))
    folder.add_run(run(1))
    path = tmp_path / "runs.jsonl"
    path.write_bytes(path.read_bytes()[:-10])
    assert folder.begin(RACE).runs == (run(0),)
    folder.add_run(run(2))
    assert folder.begin(RACE).runs == (run(0), run(2))


def test_something_else_is_no_race(tmp_path: Path) -> None:
    (tmp_path / "race.json").write_text('{"benchmark": "delivery"}', encoding="utf-8")
    with pytest.raises(ConfigError, match="must be JSON of schema 2"):
        RaceFolder(tmp_path).read()


def test_a_race_of_another_schema_is_refused() -> None:
    with pytest.raises(ConfigError, match="schema 1 or 2, got 3"):
        replace(RACE, schema=3)


def test_an_entrant_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match="each contest and entrant once"):
        replace(RACE, entrants=(ENTRANT, ENTRANT))
