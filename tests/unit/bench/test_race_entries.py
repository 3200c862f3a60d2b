"""Who takes part in a race where nobody is named."""

from pathlib import Path

from emlio_bench.race.run.settings import RaceSettings
from emlio_bench.race.systems.entries import SUBJECTS, USUAL_SUBJECTS, all_rivals
from emlio_bench.race.systems.system import DEFAULT


def test_names_are_of_one_system_each_and_defaults_come_first() -> None:
    systems = all_rivals(Path())
    assert [system.name for system in systems] == list(dict.fromkeys(SUBJECTS))
    assert {system.settings(30_000_000)[0].name for system in systems if system.family != "limit"} == {DEFAULT}


def test_few_streams_and_a_loader_of_tokens_run_only_where_they_are_asked_for() -> None:
    assert set(SUBJECTS) - set(USUAL_SUBJECTS) == {"emlio-streams-1", "emlio-streams-2", "litdata-tokens"}
    assert RaceSettings().subjects == USUAL_SUBJECTS


def test_a_number_of_streams_is_told_to_readers() -> None:
    words = {system.name: system.settings(0)[0].words for system in all_rivals(Path())}
    assert words["emlio-streams-2"].startswith("2 stream")
    assert "stream" not in words["emlio"]
