import argparse
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emlio.cli import plan as command
from emlio.errors import ConfigError, DatasetError
from emlio.planner.order import Shuffle
from emlio.planner.plan import Plan, PlanSpec
from emlio_testing.datasets import make_dataset


def _run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return command.run(parser.parse_args(words))


def _json(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert _run(*words, "--json") == 0
    return json.loads(capsys.readouterr().out)


def test_a_step_lists_every_rank_s_records_with_shard_and_number(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--records", "20", "--shards", "3", "--world-size", "3", "--batch-size", "4", "--seed", "9")
    rows = [row for step in ("0", "1") for row in _json(capsys, *words, "--step", step)["records"]]
    assert [row["place"] for row in rows] == list(range(20))
    assert sorted(row["id"] for row in rows) == list(range(20))
    assert [row["rank"] for row in rows] == [0] * 4 + [1] * 4 + [2] * 4 + [0] * 3 + [1] * 3 + [2] * 2
    for row in rows:
        shard, record = next((k, row["id"] - first) for k, first in ((2, 14), (1, 7), (0, 0)) if row["id"] >= first)
        assert (row["shard"], row["record"]) == (f"shard-0000000{shard}", record)


def test_a_step_of_one_rank_is_that_rank_s_part(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--records", "1000", "--world-size", "4", "--batch-size", "10", "--step", "7")
    whole = _json(capsys, *words)
    part = _json(capsys, *words, "--rank", "2")
    assert part["records"] == [row for row in whole["records"] if row["rank"] == 2]
    assert len(part["records"]) == 10


def test_a_step_is_printed_as_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run("--records", "10", "--shuffle", "none", "--batch-size", "2", "--step", "3") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["rank", "slot", "place", "id", "shard", "record"]
    assert [line.split() for line in lines[1:]] == [
        ["0", "6", "6", "6", "shard-00000000", "6"],
        ["0", "7", "7", "7", "shard-00000000", "7"],
    ]


def test_an_imagined_billion_is_summed_up_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    words = (
        "--records",
        "1000000000",
        "--shards",
        "1000",
        "--world-size",
        "7",
        "--origin",
        "1000",
        "--shuffle",
        "block",
    )
    facts = _json(capsys, *words)
    assert facts["steps"] == -(-(10**9 - 1000) // (7 * 256))
    assert facts["records"] == 10**9
    assert facts["shuffle"] == "block:256:64"
    assert facts["owners"] == []
    assert sum(batch["ranks"] for batch in facts["last_batches"]) == 7
    samples = sum(batch["ranks"] * batch["samples"] for batch in facts["last_batches"])
    assert samples == (10**9 - 1000) % (7 * 256)
    assert (facts["repeated"], facts["dropped"]) == (0, 0)


def test_the_tail_is_said_to_be_repeated_or_dropped(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--records", "100", "--world-size", "4", "--batch-size", "8")
    padded = _json(capsys, *words, "--pad")
    assert (padded["repeated"], padded["last_batches"]) == (28, [{"samples": 8, "ranks": 4}])
    dropped = _json(capsys, *words, "--drop-last")
    assert (dropped["dropped"], dropped["steps"]) == (4, 3)
    assert _json(capsys, *words, "--origin", "100")["last_batches"] == []


def test_a_dataset_on_disk_is_planned_without_reading_its_records(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_dataset(tmp_path / "data", records=50, shards=4)
    assert _run(str(tmp_path / "data"), "--batch-size", "8") == 0
    lines = capsys.readouterr().out.splitlines()
    assert ["records", "50"] in [line.split() for line in lines]
    assert ["steps", "7"] in [line.split() for line in lines]
    assert "  2 samples at 1 rank" in lines
    assert lines[-1].startswith(f"  {tmp_path / 'data'}: 4 shards, 50 records, ")


def test_of_one_record_it_speaks_in_the_singular(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_dataset(tmp_path / "data", records=1, shards=1)
    assert _run(str(tmp_path / "data"), "--batch-size", "8") == 0
    lines = capsys.readouterr().out.splitlines()
    assert "  1 sample at 1 rank" in lines
    assert lines[-1].startswith(f"  {tmp_path / 'data'}: 1 shard, 1 record, ")


def test_copies_in_two_directories_share_the_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("one", "two"):
        make_dataset(tmp_path / name, records=60, shards=6, payload=100)
    facts = _json(capsys, str(tmp_path / "one"), str(tmp_path / "two"))
    assert facts["records"] == 60
    assert [(owner["daemon"], owner["shards"]) for owner in facts["owners"]] == [
        (str(tmp_path / "one"), 3),
        (str(tmp_path / "two"), 3),
    ]


def test_directories_that_disagree_are_refused(tmp_path: Path) -> None:
    make_dataset(tmp_path / "one", records=60, shards=6)
    make_dataset(tmp_path / "two", records=66, shards=6)
    with pytest.raises(DatasetError, match="all copies of"):
        _run(str(tmp_path / "one"), str(tmp_path / "two"))


def test_the_quality_of_an_order_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    facts = _json(capsys, "--records", "100000", "--shards", "10", "--quality", "--shuffle", "shard")
    assert facts["shuffle"] == "shard"
    assert facts["neighbour_correlation"] > 0.9
    assert _run("--records", "100000", "--quality") == 0
    assert re.search(r"^neighbour distance +0\.3[34]\d\d$", capsys.readouterr().out, re.MULTILINE)


def test_the_digest_printed_is_the_plan_s(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_dataset(tmp_path / "data", records=50, shards=4)
    facts = _json(capsys, str(tmp_path / "data"), "--seed", "5", "--shuffle", "shard", "--batch-size", "8")
    holdings = command.open_dataset("data", tmp_path / "data").entries
    spec = PlanSpec(seed=5, shuffle=Shuffle.parse("shard"), batch_size=8)
    assert facts["digest"] == Plan(command.merge_holdings({"any": holdings}).catalog, spec).digest


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "either dataset directories or --records"),
        (("somewhere", "--records", "5"), "either dataset directories or --records"),
        (("--records", "0"), "--records must be at least 1, got 0"),
        (("--records", "5", "--shards", "6"), r"--shards must be in \[1, 5\], got 6"),
        (("--records", "5", "--rank", "1"), r"--rank must be in \[0, 1\), got 1"),
        (("--records", "5", "--step", "1"), r"step must be in \[0, 1\), got 1"),
        (("--records", "5", "--drop-last"), "an epoch would have no steps"),
        (("--records", "5", "--shuffle", "maybe"), "got 'maybe'"),
    ],
)
def test_impossible_arguments_are_refused(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        _run(*words)


def test_folders_of_unlike_formats_are_no_parts_of_one_dataset(tmp_path: Path) -> None:
    make_dataset(tmp_path / "a", records=4, shards=1)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "c.jsonl").write_text("{}\n")
    with pytest.raises(DatasetError, match=r"in the same format, .*/b has format jsonl, others tfrecord"):
        _run(str(tmp_path / "a"), str(tmp_path / "b"), "--cache-dir", str(tmp_path / "cache"))


def test_a_choice_of_records_is_counted(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    billion = ("--records", "1000000000", "--shards", "1000")
    whole = _json(capsys, *billion, "--subset", "0:0.9:7", "--repeat", "2")
    assert (whole["records"], whole["samples"]) == (1_000_000_000, 1_800_000_000)
    make_dataset(tmp_path / "data", records=60, shards=3, payload=100)
    place = (str(tmp_path / "data"), "--cache-dir", str(tmp_path / "cache"), "--batch-size", "4")
    assert _json(capsys, *place, "--subset", "__number__ < 5")["samples"] == 15
    (tmp_path / "ids.txt").write_text("3\n59\n")
    ids = (*place, "--subset", str(tmp_path / "ids.txt"))
    assert _json(capsys, *ids)["samples"] == 2
    assert sorted(row["id"] for row in _json(capsys, *ids, "--step", "0")["records"]) == [3, 59]
    np.save(tmp_path / "weights.npy", np.arange(60.0))
    drawn = _json(capsys, *place, "--weights", str(tmp_path / "weights.npy"), "--samples", "90")
    assert (drawn["samples"], drawn["records"], drawn["steps"]) == (90, 60, 23)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("--subset", "0.9:0.1"), "at least a billionth above"),
        (("--subset", "1e:2"), "BEGIN:END:SEED with numbers"),
        (("--subset", "label"), "a predicate or a file of ids"),
        (("--subset", "label == 1"), "give directories instead of --records"),
        (("--weights", "0=1", "1=2"), "give directories instead of --records"),
        (("--weights", "0=much", "1=2"), "CLASS=WEIGHT, got '0=much'"),
        (("--weights", "=1", "1=2"), "CLASS=WEIGHT, got '=1'"),
        (("--samples", "5"), "with weights only"),
        (("--repeat", "0"), "repeat must be a whole number"),
    ],
    ids=range(9),
)
def test_a_wrong_choice_of_records_is_refused(words: tuple[str, ...], error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        _run("--records", "100", *words)
