"""Mistakes of users that have messages of their own: what is said, and what is not shown.

Does not cover: wrong types of the loader's arguments (tests/unit/receiver/setup/test_arguments).
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emlio import EmlioDataset, EmlioLoader, train_test_split
from emlio.cli import main as command
from emlio.daemon.config import DatasetSource
from emlio.errors import ConfigError, DatasetError, PlanError
from emlio.index.opening import DatasetPath
from emlio.metrics.address import parse_address
from emlio.planner.catalog import Catalog, ShardEntry
from emlio.planner.mixture.given import given_sampling
from emlio.planner.mixture.merged import own_name
from emlio.planner.owners import merge_holdings
from emlio.planner.plan import Plan, PlanSpec
from emlio.planner.state import PlanState
from emlio.prepare.targets.shard_set import cut
from emlio.receiver.addresses.address import Peer
from emlio.receiver.addresses.connection_events import LinkEvent
from emlio.receiver.addresses.trust import Trust
from emlio.receiver.batch_kinds.records import first_position
from emlio.receiver.looking.singles import ids_of
from emlio.receiver.setup.subset import Ids, find_sampling
from emlio.session.terms import Terms, describe_difference

_ADDRESSES: list[Any] = [["emlio://a/x", "emlio://b/y"], []]


@pytest.mark.parametrize("make", [EmlioLoader, EmlioDataset])
@pytest.mark.parametrize("address", _ADDRESSES)
def test_several_datasets_are_pairs_with_weights(make: Callable[..., Any], address: Any) -> None:
    options = {"batch_size": 2} if make is EmlioLoader else {}
    with pytest.raises(ConfigError, match=r"given as pairs with weights, .*EmlioDataset takes one dataset"):
        make(address, **options)


def test_a_dataset_by_number_takes_one_dataset() -> None:
    given: Any = [("emlio://a/x", 1)]
    with pytest.raises(ConfigError, match="EmlioDataset takes one dataset"):
        EmlioDataset(given)


@pytest.mark.parametrize(
    ("predicate", "meant"),
    [
        ("x = 1", "=="),
        ("a == 1 AND b == 2", "and"),
        ("a == 1 && b == 2", "and"),
        ("a == 1 || b == 2", "or"),
        ("!a", "not"),
    ],
)
def test_a_predicate_of_another_language_is_told_the_word(predicate: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"; did you mean {meant!r}?")):
        find_sampling(predicate, 1)


@pytest.mark.parametrize(
    ("subset", "message"),
    [
        ([], "must be a list of at least one whole number, got an empty list"),
        ("nofile.txt", r"got 'nofile\.txt': it cannot be read \(No such file or directory\)$"),
        ((train_test_split(0.1)[0], "size > 1"), r"Where\(PREDICATE, FRACTION\) chooses those of a fraction"),
    ],
)
def test_a_wrong_subset_is_told_what_it_may_be(subset: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        find_sampling(subset, 1)


def test_no_ids_are_an_empty_list() -> None:
    with pytest.raises(ConfigError, match=r"^ids must be one or more whole numbers, got an empty list$"):
        ids_of([], 5)


@pytest.mark.parametrize(("spec", "over"), [({"pad": True}, "batches of 64 on 1 rank"), ({"world_size": 8}, "8 ranks")])
def test_records_that_come_twice_are_told_of_what_they_fill(
    spec: dict[str, Any], over: str, caplog: pytest.LogCaptureFixture
) -> None:
    first_position(Plan(_catalog("000/a"), PlanSpec(batch_size=64, **spec)))
    assert f"4 records cannot be divided evenly over {over}: " in caplog.text


def test_a_long_predicate_is_not_shown_whole() -> None:
    with pytest.raises(ConfigError, match="at most 16384 characters, got 17000") as raised:
        find_sampling("x" * 17_000, 1)
    assert len(str(raised.value)) < 400


@pytest.mark.parametrize("test", [None, "0.1", b"1"])
def test_a_split_names_its_argument(test: Any) -> None:
    with pytest.raises(ConfigError, match=r"^test must be a fraction such as 0\.1, or a list of fractions"):
        train_test_split(test)


@pytest.mark.parametrize("name", ["kept.txt", "kept.npy"])
def test_a_file_that_numpy_takes_for_a_pickle_is_no_file_of_numbers(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("1\n2\n")
    with pytest.raises(ConfigError, match=r"it is no \.npy file of numbers$"):
        find_sampling(None, 1, str(tmp_path / name))
    if name.endswith(".npy"):
        with pytest.raises(ConfigError, match=r"it is no \.npy file of numbers$"):
            Ids(tmp_path / name)


def test_no_shards_are_not_too_many() -> None:
    with pytest.raises(ConfigError, match=r"must be in \[1, \d+\], got 0$"):
        cut(np.ones(5, np.int64), shard_bytes=None, shards=0)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["plan", "--mixture", "data/web=-1"], "--mixture must give weights of at least 0, got '-1'"),
        (["status", "127.0.0.1:notaport"], "a daemon must be HOST, HOST:PORT or emlio://HOST:PORT/DATASET, got"),
        (
            ["status", "--folder", "/nonexistent", "127.0.0.1"],
            "--folder must be a folder with keys, got '/nonexistent'",
        ),
    ],
)
def test_a_command_speaks_of_its_own_arguments(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(arguments) == 2
    assert said in capsys.readouterr().err


def test_the_address_of_a_daemon_is_no_folder_to_serve() -> None:
    with pytest.raises(ConfigError, match="that is the address of a daemon"):
        DatasetSource.parse("emlio://a:5555/x")


def test_the_host_of_the_metrics_may_be_left_out() -> None:
    with pytest.raises(ConfigError, match=r"must be \[HOST:\]PORT"):
        parse_address("abc")


def _catalog(*names: str) -> Catalog:
    return Catalog(
        shards=tuple(ShardEntry(name=name, records=4, size_bytes=9, digest=name[4:]) for name in sorted(names))
    )


def test_a_state_of_a_mixture_in_another_order_is_told_of_the_order() -> None:
    mixed = PlanSpec(batch_size=2, sampling=given_sampling([1, 1], samples=8))
    plans = [Plan(_catalog(f"000/{one}", f"001/{other}"), mixed) for one, other in ("ab", "ba")]
    catalog, spec = plans[0].catalog, plans[0].spec
    state = PlanState(fingerprint=catalog.fingerprint, seed=spec.seed, shuffle=spec.shuffle, epoch=0, consumed=0)
    with pytest.raises(PlanError, match="A mixture must have the datasets, and the order of them"):
        state.check(plans[1])


@pytest.mark.parametrize(
    ("mine", "other", "words"),
    [
        (
            ("f1", "mixture/1/8/0:1,1"),
            ("f2", "mixture/1/8/0:1,1"),
            "other datasets or another order of them in the mixture",
        ),
        (("f1", "mixture/1/8/0:1,1"), ("f1", "mixture/1/8/0:1,2"), "other weights or another length of the mixture"),
        (("f1", "choice records=ab:9"), ("f1", ""), "another subset, repeat, weights or mixture"),
        (("f1", ""), ("f2", ""), "other data"),
    ],
)
def test_ranks_that_differ_are_told_in_words(mine: tuple[str, str], other: tuple[str, str], words: str) -> None:
    terms = [
        Terms((("fingerprint", data), *((("sampling", sampling),) if sampling else ())))
        for data, sampling in (mine, other)
    ]
    said = describe_difference("x", ("rank 0", terms[0]), ("rank 1", terms[1]))
    assert f" ({words})." in said
    assert "has ," not in said
    assert "has  (" not in said


def test_a_port_of_a_mixtures_daemon_is_told_without_the_dataset() -> None:
    peer = Peer(host="10.0.0.3", port=5556, dataset="code")
    said = str(Trust().reason(LinkEvent.DATA_PORT, peer))
    assert "10.0.0.3:5556 is its data port" in said
    assert "code" not in said


def test_a_shard_of_a_mixture_is_named_as_in_its_dataset() -> None:
    entries = [ShardEntry(name="001/part-1", records=records, size_bytes=9, digest="") for records in (4, 5)]
    with pytest.raises(Exception, match="all copies of shard 'part-1' must be the same"):
        merge_holdings({"a": entries[:1], "b": entries[1:]}, shown=own_name)


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("emilo://store1/x", "; did you mean 'emlio://store1/x'?"),
        ("s3a://bucket/x", "; did you mean 's3://bucket/x'?"),
        ("gcs://bucket/x", "; did you mean 'gs://bucket/x'?"),
        ("hf://datasets/x", ". Download it first: hf download NAME --repo-type dataset --local-dir DIR"),
        ("mds://x", ". If it is a directory of this host, give its path alone: the format is recognised"),
        ("wds/a-{000000..000003}.tar", ". For some of the files of a directory say 'wds?files=a-*.tar'"),
        ("wds/*.tar", ". For some of the files of a directory say 'wds?files=*.tar'"),
        ("wds/a-000000.tar", "it is a file. For some of the files of a directory say 'wds?files=a-000000.tar'"),
        ("./wds/a-000000.tar", "it is a file. For some of the files of a directory say '{}/wds?files=a-000000.tar'"),
        ("./wds/a-{0..3}.tar", "no such directory. For some of the files of a directory say '{}/wds?files=a-*.tar'"),
        ("cat.jpg", "it is a file. For some of the files of a directory say '.?files=cat.jpg'"),
    ],
)
@pytest.mark.parametrize("inspected", [False, True])
def test_an_address_of_another_kind_is_told_what_is_meant(
    address: str,
    words: str,
    inspected: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wds").mkdir()
    (tmp_path / "wds" / "a-000000.tar").write_bytes(b"")
    (tmp_path / "cat.jpg").write_bytes(b"")
    if inspected:
        assert command(["inspect", address]) == 2
        # A path without its dot in front is the same one.
        assert words.format(".").replace("'./", "'") in capsys.readouterr().err
        return
    with pytest.raises((ConfigError, DatasetError), match=f"{re.escape(words.format(tmp_path))}$"):
        EmlioLoader(address, batch_size=1)


def test_a_link_into_the_cache_of_a_hub_is_told_the_download(tmp_path: Path) -> None:
    (tmp_path / "hub" / "blobs").mkdir(parents=True)
    (tmp_path / "hub" / "blobs" / "deadbeef").write_bytes(b"{}")
    snapshot = tmp_path / "hub" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "a.jsonl").symlink_to("../../blobs/deadbeef")
    with pytest.raises(DatasetError, match=r"of Hugging Face's hub\. Download the files themselves: hf download NAME"):
        EmlioLoader(snapshot, batch_size=1)


@pytest.mark.parametrize("text", ["", "?format=tar"])
def test_a_variable_that_is_not_set_is_no_dataset(text: str) -> None:
    with pytest.raises(ConfigError, match="must be a directory of this host or objects in a bucket, got"):
        DatasetPath.parse(text)
