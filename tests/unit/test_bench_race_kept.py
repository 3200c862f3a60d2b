from dataclasses import replace
from pathlib import Path

import pytest

from emlio.errors import ConfigError
from emlio_bench.harness.contest import Contest, Corpus, Energy, Entrant
from emlio_bench.harness.environment import Environment
from emlio_bench.harness.results import RESULTS, SCHEMA, Results, Run, merge, read_results, write_results
from emlio_bench.link.accuracy import LinkReport, judge
from emlio_bench.link.contract import LinkKind
from emlio_bench.link.spec import LinkSpec
from emlio_bench.race.records.order import Epoch, Finished
from emlio_bench.race.run.kept import KeptRace

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
RACE = Results(
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


def begin(folder: Path, race: Results = RACE) -> KeptRace:
    return KeptRace(race, folder)


def test_what_was_added_is_read_as_it_was(tmp_path: Path) -> None:
    kept = begin(tmp_path / "race")
    assert kept.race == RACE
    kept.add_link(CONTEST.name, link_report())
    kept.add_run(run(0))
    kept.add_run(run(1))
    whole = replace(RACE, links=((CONTEST.name, link_report()),), runs=(run(0), run(1)))
    assert kept.race == read_results(tmp_path / "race") == whole


def test_the_same_race_goes_on_with_those_who_can_take_part_now(tmp_path: Path) -> None:
    begin(tmp_path).add_run(run(0))
    joined = replace(RACE, begun="2026-01-02T00:00:00+00:00", entrants=(ENTRANT, replace(ENTRANT, subject="another")))
    went_on = begin(tmp_path, joined).race
    assert went_on == replace(joined, begun=RACE.begun, runs=(run(0),))
    assert read_results(tmp_path) == went_on


def test_who_has_run_stays_in_the_race(tmp_path: Path) -> None:
    begin(tmp_path).add_run(run(0))
    newcomer = replace(ENTRANT, subject="another")
    assert begin(tmp_path, replace(RACE, entrants=(newcomer,))).race.entrants == (newcomer, ENTRANT)


@pytest.mark.parametrize(
    "other",
    [
        replace(RACE, settings=(("epochs", "3"),)),
        replace(RACE, contests=(replace(CONTEST, rtt_ns=1),)),
        replace(RACE, environment=replace(WORLD, kernel="6.2.0")),
    ],
    ids=["settings", "contests", "environment"],
)
def test_another_race_does_not_go_on(tmp_path: Path, other: Results) -> None:
    begin(tmp_path).add_run(run(0))
    with pytest.raises(ConfigError, match="must go on as it began"):
        begin(tmp_path, other)
    assert read_results(tmp_path) == replace(RACE, runs=(run(0),))


def test_a_run_of_many_other_contests_names_a_few_of_them(tmp_path: Path) -> None:
    begin(tmp_path).add_run(run(0))
    others = tuple(replace(CONTEST, name=f"other-{number}") for number in range(9))
    with pytest.raises(ConfigError, match="read-30ms, other-0, other-1, other-2, other-3 and 5 more"):
        begin(tmp_path, replace(RACE, contests=others))


def test_a_file_in_place_of_the_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"results must go where files can be written, .*/file is a file"):
        begin(tmp_path / "file")


def test_why_there_is_no_energy_is_kept(tmp_path: Path) -> None:
    kept = begin(tmp_path)
    kept.note_energy("no counter")
    assert read_results(tmp_path) == replace(RACE, no_energy="no counter")
    assert begin(tmp_path).race.no_energy == ""


def test_results_of_another_benchmark_are_not_gone_on_with(tmp_path: Path) -> None:
    write_results(Results(benchmark="delivery", environment=WORLD, settings=RACE.settings), tmp_path / RESULTS)
    with pytest.raises(ConfigError, match="benchmark 'delivery' and 'race'"):
        begin(tmp_path)


def test_a_kill_while_the_file_is_written_loses_no_run(tmp_path: Path) -> None:
    kept = begin(tmp_path)
    kept.add_run(run(0))
    (tmp_path / f"{RESULTS}.unfinished").write_bytes((tmp_path / RESULTS).read_bytes()[:100])
    again = begin(tmp_path)
    assert again.race.runs == (run(0),)
    again.add_run(run(1))
    assert begin(tmp_path).race.runs == (run(0), run(1))


@pytest.mark.parametrize("schema", [1, 2, SCHEMA + 1])
def test_a_race_of_another_schema_is_refused(tmp_path: Path, schema: int) -> None:
    begin(tmp_path)
    path = tmp_path / RESULTS
    path.write_text(path.read_text().replace(f'"schema": {SCHEMA}', f'"schema": {schema}'), encoding="utf-8")
    with pytest.raises(ConfigError, match=f"must have schema {SCHEMA}, got {schema}"):
        begin(tmp_path)
    with pytest.raises(ConfigError, match=f"schema {SCHEMA}, got {schema}"):
        replace(RACE, schema=schema)


def test_two_like_races_merge_with_the_rounds_of_the_second_after_those_of_the_first() -> None:
    merged = merge(replace(RACE, runs=(run(0), run(1))), replace(RACE, runs=(run(0),)))
    assert merged == replace(RACE, runs=(run(0), run(1), run(2)))
    with pytest.raises(ConfigError, match="contests read-30ms"):
        merge(RACE, replace(RACE, contests=(replace(CONTEST, rtt_ns=1),)))


def test_an_entrant_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match="each contest and entrant once"):
        replace(RACE, entrants=(ENTRANT, ENTRANT))
