"""The default systems of a race."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from emlio.errors import ConfigError
from emlio_bench.race.run.settings import RaceSettings
from emlio_bench.race.systems.entries import SUBJECTS, USUAL_SUBJECTS, all_rivals, entered
from emlio_bench.race.systems.system import System


def test_few_streams_and_a_loader_of_tokens_run_only_where_they_are_asked_for() -> None:
    assert set(SUBJECTS) - set(USUAL_SUBJECTS) == {"emlio-streams-1", "emlio-streams-2", "litdata-tokens"}
    assert RaceSettings().subjects == USUAL_SUBJECTS

    words = {system.name: system.settings(0)[0].words for system in all_rivals(Path())}
    assert words["emlio-streams-2"].startswith("2 stream")
    assert "stream" not in words["emlio"]


def test_what_cannot_run_is_told_before_the_question_whether_to_install_and_nothing_is_installed_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))  # neither sshfs nor iperf3
    told: list[str] = []

    def agree() -> bool:
        told.append("asked")
        return False

    def lacks(systems: Sequence[System]) -> Mapping[str, str]:
        return {"webdataset": "needs a disk"}

    names = ("iperf3", "webdataset", "spdl", "tfdata-service")
    systems = [one for one in all_rivals(tmp_path / "cache") if one.name in names]
    with pytest.raises(ConfigError, match="nothing was installed"):
        entered(
            systems, [0], cache=tmp_path / "cache", every=False, make=True, tell=told.append, agree=agree, lacks=lacks
        )
    assert told[-1] == "asked"
    assert "installs into" in told[-2]
    assert ": tf. It" in told[-2]
    assert [line.split(" does not take part")[0] for line in told[:-2]] == ["iperf3", "webdataset", "spdl"]
