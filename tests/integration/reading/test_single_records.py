"""Single records by number: through daemons and from this host, decoded as in the loop, beside a running epoch."""

import pickle
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emlio import EmlioDataset, EmlioLoader, Recovery
from emlio.errors import (
    ClosedError,
    ConfigError,
    CorruptRecordError,
    DatasetError,
    PeerLostError,
    RecordIndexError,
    RefusedError,
)
from emlio.example.encode import encode_example
from emlio.wire.limits import RECORD_BYTES_PER_REPLY
from emlio_testing.datasets import make_dataset
from emlio_testing.loader_arguments import loader_arguments
from emlio_testing.ports import free_ports
from emlio_testing.serving import daemon_of, peer_of

_RECORDS = 300
_LONG = 77
_SOON = Recovery(timeout="5s", heartbeat="500ms")


def _example(number: int) -> bytes:
    text = b"x" * (2 * RECORD_BYTES_PER_REPLY + 5) if number == _LONG else b"n%d" % number
    return encode_example({"label": [number], "pair": [number, -number], "text": [text]})


def _labels(batch: dict[str, Any]) -> list[int]:
    labels: list[int] = batch["label"].tolist()
    return labels


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    make_dataset(folder / "x", records=_RECORDS, shards=4, payload=_example)
    return folder / "x"


@pytest.fixture
def served(folder: Path) -> Iterator[str]:
    with daemon_of({"x": folder}) as daemon:
        yield f"{peer_of(daemon)}/x"


def _loader(address: "str | Path", **options: Any) -> EmlioLoader:
    usual: dict[str, Any] = {"batch_size": 16, "ids": True, "to": "numpy", "timeout": "10s"}
    return EmlioLoader(address, **loader_arguments(**(usual | options)))


# ---- of a loader --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["daemon", "directory"])
def test_a_batchs_ids_lead_to_the_same_records_while_its_epoch_goes_on(way: str, served: str, folder: Path) -> None:
    with _loader(served if way == "daemon" else folder) as loader:
        seen: list[int] = []
        for number, batch in enumerate(loader):
            seen.extend(_labels(batch))
            if number % 4 == 0:
                again = loader.get(batch["__id__"])
                assert sorted(again) == sorted(batch)
                assert _labels(again) == _labels(batch)
                assert again["__id__"].tolist() == batch["__id__"].tolist()
                assert [bytes(text) for text in again["text"]] == [bytes(text) for text in batch["text"]]
        assert sorted(seen) == list(range(_RECORDS))
        assert loader.epoch == 1


def test_records_come_in_the_order_asked_for_and_as_often(served: str) -> None:
    ids = [299, 0, _LONG, 3, 3, 150, _LONG]
    with _loader(served) as loader:
        batch = loader.get(ids)
        assert _labels(batch) == ids
        assert [len(bytes(text)) for text in batch["text"]][2] == 2 * RECORD_BYTES_PER_REPLY + 5
        assert _labels(loader.get(5)) == [5]
        every = np.random.default_rng(1).permutation(_RECORDS)
        assert _labels(loader.get(every)) == every.tolist()


def test_more_records_than_are_requested_at_once(served: str) -> None:
    ids = np.random.default_rng(2).integers(_LONG + 1, _RECORDS, 2500)
    with _loader(served) as loader:
        assert _labels(loader.get(ids)) == ids.tolist()


def test_samples_are_transformed_and_collated_as_in_the_loop(served: str) -> None:
    def doubled(sample: dict[str, Any]) -> int:
        return 2 * int(sample["label"])

    with _loader(served, ids=False, transform=doubled, collate_fn=tuple) as loader:
        assert loader.get([4, 2]) == (8, 4)
        plain = loader.get([4, 2], transform=False)
        assert [sample["pair"].tolist() for sample in plain] == [[4, -4], [2, -2]]


def test_a_transform_that_fails_names_the_record(served: str) -> None:
    def fails(sample: dict[str, Any]) -> None:
        sample["absent"]

    with _loader(served, transform=fails) as loader, pytest.raises(KeyError) as raised:
        loader.get([1, 2])
    with _loader(served, transform=fails) as loader, pytest.raises(KeyError) as in_loop:
        next(iter(loader))
    for error in (raised, in_loop):
        assert re.search(r"; the sample has .*'label', .*'pair'", error.value.__notes__[0])
    assert "in the transform of record 1 of shard train-00000-of-00004.tfrecord" in raised.value.__notes__[0]


def test_seeds_are_those_of_the_epoch(served: str) -> None:
    with _loader(served, seeds=True) as loader:
        first = next(iter(loader))
        assert loader.get(first["__id__"])["__seed__"].tolist() == first["__seed__"].tolist()


@pytest.mark.parametrize("ids", [[-1], [300], [0, 10**12]], ids=["negative", "end", "far"])
def test_an_id_that_no_record_has_is_an_error_of_both_kinds(served: str, ids: list[int]) -> None:
    with _loader(served) as loader:
        with pytest.raises(RecordIndexError, match=r"ids must be in \[0, 300\), got") as raised:
            loader.get(ids)
        assert isinstance(raised.value, IndexError)
        assert isinstance(raised.value, ConfigError)
        assert _labels(loader.get([1])) == [1]


@pytest.mark.parametrize("ids", [[], "5", [0.5], [[1, 2]], [True], None, {1: 2}], ids=lambda ids: type(ids).__name__)
def test_ids_must_be_whole_numbers(served: str, ids: Any) -> None:
    with _loader(served) as loader, pytest.raises(ConfigError, match="ids must be"):
        loader.get(ids)


def test_a_closed_loader_gives_nothing(served: str) -> None:
    loader = _loader(served)
    loader.close()
    with pytest.raises(ClosedError):
        loader.get([1])


# ---- bad records and lost daemons ---------------------------------------------------------------------------------


def test_a_record_that_is_asked_for_cannot_be_left_out() -> None:
    with pytest.raises(ConfigError, match="on_error must be \"raise\" for an EmlioDataset, got 'skip'"):
        EmlioDataset("emlio://store1:5555/numbers", recovery=Recovery(on_error="skip"))


@pytest.mark.parametrize("way", ["daemon", "directory"])
def test_a_corrupt_record_is_an_error_that_names_it_and_others_can_be_looked_at(tmp_path: Path, way: str) -> None:
    make_dataset(tmp_path / "x", records=20, shards=2, payload=_example)
    path = sorted((tmp_path / "x").glob("*.tfrecord"))[1]
    with daemon_of({"x": tmp_path / "x"}) as daemon:
        with _loader(f"{peer_of(daemon)}/x") as loader:  # makes the index
            assert _labels(loader.get([13])) == [13]
        data = bytearray(path.read_bytes())
        at = data.index(b"n13")
        data[at] ^= 1
        path.write_bytes(data)
    with daemon_of({"x": tmp_path / "x"}) as daemon:
        address = f"{peer_of(daemon)}/x" if way == "daemon" else tmp_path / "x"
        with EmlioDataset(address) as dataset:
            with pytest.raises(CorruptRecordError, match="record 3 of shard train-00001-of-00002") as raised:
                dataset.__getitems__([12, 13, 14])
            assert (raised.value.record, raised.value.shard) == (3, path.name)
            assert raised.value.offset >= 0
            assert int(dataset[14]["label"]) == 14


def test_a_lost_daemons_records_come_from_the_other_one(folder: Path) -> None:
    with (
        daemon_of({"x": folder}) as one,
        daemon_of({"x": folder}) as other,
        EmlioDataset(f"{peer_of(one, other)}/x", recovery=_SOON) as dataset,
    ):
        assert [int(sample["label"]) for sample in dataset[::50]] == list(range(0, _RECORDS, 50))
        one.close()
        assert [int(sample["label"]) for sample in dataset[::50]] == list(range(0, _RECORDS, 50))


def test_without_any_daemon_left_the_wait_ends_with_the_reason(folder: Path) -> None:
    with daemon_of({"x": folder}) as daemon:
        dataset = EmlioDataset(f"{peer_of(daemon)}/x", recovery=Recovery(timeout="1s", heartbeat="200ms"))
        assert int(dataset[1]["label"]) == 1
    with dataset, pytest.raises(PeerLostError, match=r"127\.0\.0\.1"):
        dataset[2]


def test_a_dataset_that_a_daemon_does_not_have(served: str) -> None:
    with EmlioDataset(served.replace("/x", "/y")) as dataset, pytest.raises(RefusedError, match="y"):
        len(dataset)


def test_parts_at_two_daemons_and_a_local_directory(tmp_path: Path) -> None:
    make_dataset(tmp_path / "all", records=90, shards=3, payload=_example)
    parts: list[Path] = []
    for number in range(3):
        part = tmp_path / f"part{number}"
        part.mkdir()
        name = f"train-0000{number}-of-00003.tfrecord"
        (part / name).write_bytes((tmp_path / "all" / name).read_bytes())
        parts.append(part)
    with (
        daemon_of({"x": parts[0]}) as one,
        daemon_of({"x": parts[1]}) as other,
        EmlioDataset(f"{peer_of(one, other)}/x", local=parts[2]) as dataset,
    ):
        ids = np.random.default_rng(3).permutation(90).tolist()
        assert [int(sample["label"]) for sample in dataset.__getitems__(ids)] == ids


# ---- as a sequence ------------------------------------------------------------------------------------------------


def test_a_dataset_is_a_sequence(served: str) -> None:
    dataset = EmlioDataset(served, fields=["label", "text"], ids=True)
    assert "not connected" in repr(dataset)
    with dataset:
        assert len(dataset) == _RECORDS
        sample = dataset[-1]
        assert (int(sample["label"]), sample["text"], int(sample["__id__"])) == (299, b"n299", 299)
        assert [int(one["label"]) for one in dataset[5:2:-1]] == [5, 4, 3]
        assert dataset[300:] == []
        with pytest.raises(IndexError):
            dataset[300]
        with pytest.raises(RecordIndexError, match=r"an index must be in \[-300, 300\), got -301"):
            dataset[-301]
        with pytest.raises(ConfigError, match="an index must be a whole number or a slice, got '5'"):
            dataset["5"]  # type: ignore[call-overload]  # as a user may
        assert [int(one["label"]) for one in dataset] == list(range(_RECORDS))
        assert "300 records" in repr(dataset)
    with pytest.raises(ClosedError):
        len(dataset)
    assert "closed" in repr(dataset)


def test_a_pickled_dataset_connects_anew(served: str) -> None:
    with EmlioDataset(served, transform=_label_of) as dataset:
        assert dataset[4] == 4
        with pickle.loads(pickle.dumps(dataset)) as again:
            assert again[7] == 7
        assert dataset[8] == 8


def test_a_dataset_connects_again_to_a_daemon_that_was_restarted_with_the_same_records(
    folder: Path, tmp_path: Path
) -> None:
    make_dataset(tmp_path / "other", records=_RECORDS, shards=4)
    soon = Recovery(timeout="1s", heartbeat="200ms")
    port = free_ports(2, "127.0.0.1")[0]
    with daemon_of({"x": folder}, port) as daemon:
        address = f"{peer_of(daemon)}/x"
        dataset = EmlioDataset(address, transform=_label_of, recovery=soon)
        assert dataset[4] == 4
    with dataset:
        with pytest.raises(PeerLostError):
            dataset[5]
        with daemon_of({"x": folder}, port):
            assert dataset[6] == 6
        with pytest.raises(PeerLostError):
            dataset[7]
        with (
            daemon_of({"x": tmp_path / "other"}, port),
            pytest.raises(DatasetError, match="now numbers mean other records"),
        ):
            dataset[8]


def _label_of(sample: dict[str, Any]) -> int:
    return int(sample["label"])


def test_raw_records_are_bytes_of_their_own(served: str) -> None:
    with EmlioDataset(served, raw=True) as dataset:
        assert dataset[3] == {"record": _example(3)}
        assert [len(one["record"]) for one in dataset[_LONG : _LONG + 1]] == [len(_example(_LONG))]
