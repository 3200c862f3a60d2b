"""Raw records through a whole loader: slices, rows, and what happens to damaged ones.

Covers: `raw=True` and `raw="rows"` through a daemon and from a directory. Does not cover: the forms by themselves
(unit/test_formats_raw.py).
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emlio import EmlioLoader
from emlio.daemon.service import Daemon
from emlio.errors import ConfigError, CorruptRecordError
from emlio.receiver.torch_adapter import torch_is_installed
from emlio_testing.datasets import make_dataset
from emlio_testing.serving import daemon_of, peer_of, raw_loader

_RECORDS, _BATCH = 40, 16
_SIZES = {"equal": 24, "varied": None, "damaged": 24}
_DAMAGED = 21
_WAYS = pytest.mark.parametrize("way", ["daemon", "directory"])


@pytest.fixture
def data(tmp_path: Path) -> dict[str, list[bytes]]:
    made = {
        name: make_dataset(tmp_path / name, records=_RECORDS, shards=2, payload=size) for name, size in _SIZES.items()
    }
    shard = tmp_path / "damaged" / "train-00001-of-00002.tfrecord"
    whole = bytearray(shard.read_bytes())
    whole[(_DAMAGED - _RECORDS // 2) * (24 + 16) + 20] ^= 1
    shard.write_bytes(whole)
    return made


@pytest.fixture
def daemon(tmp_path: Path, data: dict[str, list[bytes]]) -> Iterator[Daemon]:
    with daemon_of({name: tmp_path / name for name in data}, message_size=4096, memory=1 << 20) as daemon:
        yield daemon


def _loader(daemon: Daemon, tmp_path: Path, way: str, name: str, **options: Any) -> EmlioLoader:
    return raw_loader(f"{peer_of(daemon)}/{name}" if way == "daemon" else tmp_path / name, **options)


def _bytes_of(batch: dict[str, Any]) -> list[bytes]:
    rows, lengths = np.asarray(batch["record"]), np.asarray(batch["length"])
    assert rows.shape == (len(batch["__id__"]), lengths.max())
    assert all(not row[length:].any() for row, length in zip(rows, lengths, strict=True))
    return [bytes(row[:length]) for row, length in zip(rows, lengths, strict=True)]


@_WAYS
@pytest.mark.parametrize("name", ["equal", "varied"])
def test_rows_and_slices_are_the_records(
    daemon: Daemon, tmp_path: Path, data: dict[str, list[bytes]], way: str, name: str
) -> None:
    seen = list[int]()
    with (
        _loader(daemon, tmp_path, way, name, raw="rows") as rows,
        _loader(daemon, tmp_path, way, name, raw=True) as slices,
    ):
        for one, other in zip(rows, slices, strict=True):
            numbers: list[int] = one["__id__"].tolist()
            assert numbers == other["__id__"].tolist()
            expected = [data[name][number] for number in numbers]
            assert _bytes_of(one) == expected
            assert [bytes(record) for record in other["record"]] == expected
            seen += numbers
    assert sorted(seen) == list(range(_RECORDS))


@pytest.mark.skipif(not torch_is_installed(), reason="torch is not installed")
def test_rows_are_tensors_with_torch(daemon: Daemon, tmp_path: Path, data: dict[str, list[bytes]]) -> None:
    with _loader(daemon, tmp_path, "daemon", "equal", raw="rows", to="torch") as loader:
        batch = next(iter(loader))
    assert (type(batch["record"]).__name__, str(batch["record"].dtype)) == ("Tensor", "torch.uint8")
    assert _bytes_of(batch) == [data["equal"][number] for number in batch["__id__"].tolist()]


def test_a_transform_gets_a_row_and_its_length(daemon: Daemon, tmp_path: Path, data: dict[str, list[bytes]]) -> None:
    def first(sample: dict[str, Any]) -> dict[str, Any]:
        assert sample["record"].shape[0] >= sample["length"]
        return {"number": int.from_bytes(sample["record"][:8].tobytes(), "little"), "id": int(sample["__id__"])}

    with _loader(daemon, tmp_path, "daemon", "varied", raw="rows", transform=first) as loader:
        for batch in loader:
            assert np.asarray(batch["number"]).tolist() == np.asarray(batch["id"]).tolist()


@_WAYS
@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_a_damaged_record_is_left_out_of_the_rows_or_replaced(
    daemon: Daemon, tmp_path: Path, data: dict[str, list[bytes]], way: str, on_error: str
) -> None:
    seen = list[int]()
    with _loader(daemon, tmp_path, way, "damaged", raw="rows", on_error=on_error) as loader:
        for batch in loader:
            numbers = batch["__id__"].tolist()
            assert _bytes_of(batch) == [data["damaged"][number] for number in numbers]
            seen += numbers
        stats = loader.stats()
        assert (stats.skipped_records, stats.replaced_records) == ((1, 0) if on_error == "skip" else (0, 1))
    assert _DAMAGED not in seen
    assert set(seen) == set(range(_RECORDS)) - {_DAMAGED}
    assert len(seen) == (_RECORDS if on_error == "replace" else _RECORDS - 1)


@_WAYS
def test_a_damaged_record_is_an_error_by_default(daemon: Daemon, tmp_path: Path, way: str) -> None:
    with (
        _loader(daemon, tmp_path, way, "damaged", raw="rows") as loader,
        pytest.raises(CorruptRecordError, match="record 1 of shard train-00001-of-00002"),
    ):
        list(loader)


@pytest.mark.parametrize("raw", ["row", "", 1, None])
def test_another_value_is_refused(tmp_path: Path, raw: object) -> None:
    with pytest.raises(ConfigError, match='raw must be True or False, or "rows", got'):
        EmlioLoader(tmp_path, batch_size=4, raw=raw)  # type: ignore[arg-type]


def test_rows_have_no_fields_and_no_pipeline(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="with raw='rows' there are none"):
        EmlioLoader(tmp_path, batch_size=4, raw="rows", fields=["x"])
