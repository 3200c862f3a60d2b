"""`emlio plan --mixture`: counts of each dataset, the dataset of each record, wrong arguments."""

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from emlio.cli import plan as command
from emlio.errors import ConfigError
from emlio_testing.datasets import make_dataset


def _run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return command.run(parser.parse_args(words))


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    for name, records in (("web", 90), ("code", 20)):
        make_dataset(tmp_path / name, records=records, shards=2)
    return [
        "--mixture",
        f"{tmp_path / 'web'}=0.75",
        f"{tmp_path / 'code'}=0.25",
        "--batch-size",
        "4",
        "--world-size",
        "2",
    ]


def _said(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert _run(*words, "--json") == 0
    return json.loads(capsys.readouterr().out)


def test_the_summary_counts_each_dataset(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = _said(capsys, *words, "--samples", "80")
    assert (said["samples"], said["steps"], said["records"]) == (80, 10, 110)
    assert _said(capsys, *words)["samples"] == 81  # a quarter of it, rounded, are all records of the second dataset
    assert said["datasets"] == [
        {
            "dataset": str(tmp_path / "web"),
            "records": 90,
            "samples": 60,
            "per_step": 6.0,
            "passes": 60 / 90,
            "most_deviation": 9.0,  # 2 x 16 x 3/4 x 1/4 + 6 x 1/2
        },
        {
            "dataset": str(tmp_path / "code"),
            "records": 20,
            "samples": 20,
            "per_step": 2.0,
            "passes": 1.0,
            "most_deviation": 9.0,
        },
    ]
    changed = _said(capsys, *words, "--samples", "160", "--schedule", "80=1,3", "--epoch", "1")
    assert [one["samples"] for one in changed["datasets"]] == [40, 120]
    assert _run(*words, "--samples", "80") == 0
    text = capsys.readouterr().out
    assert (
        f"{tmp_path / 'code'}: 20 records, 20 samples of the epoch (1 pass), 2 in a step, at most 9 more or less"
        in text
    )


def test_a_step_names_the_dataset_of_each_record(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = _said(capsys, *words, "--step", "1")["records"]
    assert len(records) == 8
    for row in records:
        assert row["dataset"] == str(tmp_path / ("web" if row["id"] < 90 else "code"))
        assert row["shard"].startswith("train-0000")
    assert _run(*words, "--step", "1") == 0
    assert capsys.readouterr().out.splitlines()[0].split() == [
        "rank",
        "slot",
        "place",
        "id",
        "dataset",
        "shard",
        "record",
    ]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (["--mixture", "data"], "--mixture must be DIR=WEIGHT, got 'data'"),
        (["--mixture", "data=much"], "--mixture must give numbers as weights, got 'much'"),
        (["--mixture", "data=1", "--schedule", "5"], "--schedule must be SAMPLE=WEIGHT,..., got '5'"),
        (["--mixture", "data=1", "--schedule", "x=1"], "--schedule must begin with the number of a sample, got 'x'"),
        (["--mixture", "data=1", "--schedule", "5=1,2"], "a weight for each of its 1 datasets, got 2"),
        (["--mixture", "data=1", "--samples", "5", "--until", "first"], "give one, got samples=5"),
        (["--mixture", "data=1", "--records", "5"], "give either --mixture, dataset directories or --records"),
        (["data", "--until", "first"], "are of a --mixture, and there is none"),
        (["--mixture", "data=1", "--repeat", "2"], "are of one dataset, not of a --mixture"),
    ],
    ids=["no weight", "text", "no change", "no sample", "weights", "both lengths", "records", "no mixture", "repeat"],
)
def test_impossible_arguments_are_refused(changed: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        _run(*changed)
    assert message in str(caught.value)
