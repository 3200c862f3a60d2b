"""Who takes part in a race where nobody is named."""

from pathlib import Path

from emlio.benchmarks.race.entries import SUBJECTS, USUAL_SUBJECTS, all_rivals
from emlio.benchmarks.race.race_settings import RaceSettings
from emlio.benchmarks.race.rival import DEFAULT


def test_names_are_of_one_system_each_and_defaults_come_first() -> None:
    rivals = all_rivals(Path())
    assert [rival.name for rival in rivals] == list(dict.fromkeys(SUBJECTS))
    assert {rival.settings(30_000_000)[0].name for rival in rivals if rival.family != "limit"} == {DEFAULT}


def test_ours_with_few_streams_runs_only_where_it_is_asked_for() -> None:
    assert set(SUBJECTS) - set(USUAL_SUBJECTS) == {"emlio-streams-1", "emlio-streams-2"}
    assert RaceSettings().subjects == USUAL_SUBJECTS


def test_a_number_of_streams_is_told_to_readers() -> None:
    words = {rival.name: rival.settings(0)[0].words for rival in all_rivals(Path())}
    assert words["emlio-streams-2"].startswith("2 stream")
    assert "stream" not in words["emlio"]
