"""A dataset in a bucket: its order, its index, what is read ahead, and objects that change."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import numpy as np
import pytest

from emlio.errors import ClosedError, ConfigError, DatasetError
from emlio.index.dataset import Dataset
from emlio.index.indexed import open_objects
from emlio.index.opening import list_objects
from emlio.reading.bucket_engine import BucketEngine
from emlio.reading.buffers import AheadBudget
from emlio.reading.feed import Feed
from emlio.reading.gather import Gatherer
from emlio.store.bucket.address import ObjectAddress
from emlio.store.bucket.bucket_store import BucketStore
from emlio.store.bucket.client import Cause, RequestError
from emlio.store.bucket.object_table import table_of
from emlio.store.bucket.requests import Requests
from emlio.store.folder import Folder
from emlio.store.folder_store import walk
from emlio.tfrecord import frame
from emlio_testing.datasets import make_dataset
from emlio_testing.fake_objects import FakeObjects
from emlio_testing.processes import settles
from emlio_testing.reading import feed_of

_ADDRESS = ObjectAddress.parse("s3://b/p")


@contextmanager
def _opened(objects: FakeObjects, cache: Path, **options: str) -> Iterator[Dataset]:
    requests = Requests(_ADDRESS, objects, pause=lambda _: False)
    try:
        dataset = open_objects("d", list_objects("d", requests), cache, options)
    except BaseException:
        requests.close()
        raise
    with dataset:
        yield dataset


def _files(count: int = 40, size: int = 1000) -> FakeObjects:
    return FakeObjects(
        {f"c{number % 2}/{number:03d}.bin": bytes([number]) * (size + number) for number in range(count)}
    )


def _feed(dataset: Dataset, budget: AheadBudget, message_bytes: int = 4000) -> tuple[BucketEngine, Feed]:
    assert isinstance(dataset.files, BucketStore)
    source = BucketEngine(dataset, dataset.files, budget)
    return source, feed_of(source, message_bytes=message_bytes, end=1)


def test_objects_are_in_the_order_of_a_folders_files(tmp_path: Path) -> None:
    names = ["b.bin", "a/z.bin", "a/b/c.bin", "B.bin", "ä.bin", "a.d/x.bin", ".hidden", "a/.hidden", ".h/x", "a-b/y"]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    with Folder(tmp_path) as folder:
        wanted = list(walk(folder).names)
    listed = [status for some in FakeObjects(dict.fromkeys([*names, "a/"], b"x")).list() for status in some]
    assert list(table_of(_ADDRESS, listed).names) == wanted


def test_hidden_objects_that_only_zarr_writes_tell_a_container(tmp_path: Path) -> None:
    objects = FakeObjects({".zgroup": b"{}", "x/.zarray": b"{}", "x/0.0": b"1"})
    with pytest.raises(DatasetError, match=r"holds Zarr files, such as x/0\.0"), _opened(objects, tmp_path):
        pass


def test_every_record_is_read_once_and_requests_stay_in_the_budget(tmp_path: Path) -> None:
    objects, budget, gatherer = _files(), AheadBudget(20_000), Gatherer()
    with _opened(objects, tmp_path) as dataset:
        objects.gets.clear()  # those that told the files apart from others of the same size
        source, feed = _feed(dataset, budget)
        found = set[int]()
        while (message := feed.next(gatherer)) is not None:
            assert budget.held_bytes <= budget.most_bytes
            out = np.zeros(message.payload_bytes, np.uint8)
            feed.read(message, gatherer, out)
            ends = np.cumsum(message.sizes)
            found.update(int(out[end - 1]) for end in ends.tolist())
        feed.stop()
        source.close()
    assert found == set(range(40))
    assert len(objects.gets) == 40
    assert budget.held_bytes == 0


def test_several_messages_are_requested_while_the_first_is_waited_for(tmp_path: Path) -> None:
    objects, gatherer, release = _files(), Gatherer(), Event()
    with _opened(objects, tmp_path) as dataset:
        source, feed = _feed(dataset, AheadBudget(30_000))
        objects.before = lambda kind, name: release.wait(60) and None
        message = feed.next(gatherer)
        assert message is not None
        several = settles(lambda: objects.most_at_once > message.count, 20)
        release.set()
        out = np.zeros(message.payload_bytes, np.uint8)
        feed.read(message, gatherer, out)
        feed.stop()
        source.close()
    assert several


def test_a_feed_that_is_stopped_does_not_wait_for_a_server_that_stands_still(tmp_path: Path) -> None:
    objects, gatherer, reached, release = _files(), Gatherer(), Event(), Event()
    with _opened(objects, tmp_path) as dataset:
        _, feed = _feed(dataset, AheadBudget(20_000))

        def stand_still(kind: str, name: str) -> None:
            reached.set()
            release.wait(60)

        objects.before = stand_still
        message = feed.next(gatherer)
        assert message is not None
        out = np.zeros(message.payload_bytes, np.uint8)
        with ThreadPoolExecutor(1) as pool:
            reading = pool.submit(feed.read, message, gatherer, out)
            try:
                assert reached.wait(20)
                feed.stop()
                with pytest.raises(ClosedError):
                    reading.result(20)
            finally:
                release.set()


def test_a_stopped_feed_gives_its_bytes_back(tmp_path: Path) -> None:
    budget = AheadBudget(30_000)
    with _opened(_files(), tmp_path) as dataset:
        source, feed = _feed(dataset, budget)
        assert feed.next(Gatherer()) is not None
        assert budget.held_bytes
        feed.stop()
        feed.stop()
        assert (budget.held_bytes, budget.share_bytes) == (0, 30_000)
        source.close()


@pytest.mark.parametrize("change", ["tag", "size", "gone"])
def test_a_changed_object_is_an_error_and_indexed_anew_at_the_next_start(change: str, tmp_path: Path) -> None:
    objects, gatherer = _files(4), Gatherer()
    name = "c0/002.bin"
    with _opened(objects, tmp_path) as dataset:
        if change == "tag":
            objects.tags[name] = "another"
        elif change == "size":
            objects.content[name] += b"more"
        else:
            del objects.content[name]
        source, feed = _feed(dataset, AheadBudget(0))
        message = feed.next(gatherer)
        assert message is not None
        with pytest.raises(DatasetError, match=rf"s3://b/p/{name} (was replaced|is gone)") as caught:
            feed.read(message, gatherer, np.zeros(message.payload_bytes, np.uint8))
        assert not caught.value.passing
        with pytest.raises(DatasetError, match=name):
            source.check_paths()
        feed.stop()
        source.close()
    with _opened(objects, tmp_path) as dataset:
        assert dataset.records == (3 if change == "gone" else 4)


def test_only_changed_objects_are_indexed_again(tmp_path: Path) -> None:
    shards = {
        f"s-{number}.tfrecord": b"".join(frame(bytes([n]) * 20) for n in range(number + 1)) for number in range(3)
    }
    objects = FakeObjects(shards)
    with _opened(objects, tmp_path) as dataset:
        before = dataset.entries
    objects.gets.clear()
    objects.content["s-1.tfrecord"] += frame(b"one more")
    with _opened(objects, tmp_path) as dataset:
        after = dataset.entries
    # The first record of all is looked at again, to learn the features.
    assert {name for name, _, _ in objects.gets} == {"s-0.tfrecord", "s-1.tfrecord"}
    assert [one == other for one, other in zip(before, after, strict=True)] == [True, False, True]


def test_a_replaced_object_of_the_same_size_keeps_no_old_checksum(tmp_path: Path) -> None:
    objects = _files(4)
    with _opened(objects, tmp_path) as dataset:
        assert dataset.checksums is not None
        zero, one = np.zeros(1, np.int64), np.array([1000], np.int64)
        first = int(dataset.checksums.of(zero, zero, one, memoryview(bytes(1000)))[0])
    objects.tags["c0/000.bin"] = "another"
    with _opened(objects, tmp_path) as dataset:
        assert dataset.checksums is not None
        assert int(dataset.checksums.of(zero, zero, one, memoryview(b"\1" * 1000))[0]) != first


def test_what_only_folders_have_is_refused_by_name(tmp_path: Path) -> None:
    with _opened(FakeObjects({"s.tfrecord": frame(b"x")}), tmp_path) as dataset:
        for ask in (lambda: dataset.folder_store, lambda: dataset.shard_paths):
            with pytest.raises(DatasetError, match=r"s3://b/p.*folder"):
                ask()
    with pytest.raises(ConfigError, match="s3://b/p"), _opened(_files(), tmp_path, format="tar", nonsense="1"):
        pass


def test_a_server_that_does_not_answer_refuses_no_rank(tmp_path: Path) -> None:
    objects = _files(4)
    with _opened(objects, tmp_path) as dataset:
        source, feed = _feed(dataset, AheadBudget(0))

        def away(kind: str, _: str) -> None:
            raise RequestError(Cause.PASSING, "away")

        objects.before = away
        source.check_paths()
        feed.stop()
        source.close()


# ---- mappings of TFRecord files ------------------------------------------------------------------------------------


def _mapped(folder: Path) -> FakeObjects:
    make_dataset(folder, records=30, shards=3)
    return FakeObjects(
        {path.name: path.read_bytes() for path in folder.glob("*") if path.suffix in (".tfrecord", ".json")}
    )


def _rewrite(objects: FakeObjects, **facts: object) -> None:
    name = "mapping_shard_00001.json"
    objects.content[name] = json.dumps({**json.loads(objects.content[name]), **facts}).encode()
    objects.tags[name] = f"tag-{facts}"


@pytest.mark.parametrize("indexed", [False, True])
@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"digest": "0" * 32}, "it has digest [0-9a-f]{32}, 0{32} in its mapping"),
        ({"records": 9}, "it has 10 records, 9 in its mapping"),
        ({"size_bytes": 10_000}, r"it has \d+ bytes, 10000 in its mapping"),
    ],
)
def test_a_shard_that_differs_from_its_mapping_is_refused(
    tmp_path: Path, facts: dict[str, object], why: str, *, indexed: bool
) -> None:
    objects = _mapped(tmp_path / "local")
    if indexed:
        with _opened(objects, tmp_path):
            pass
    _rewrite(objects, **facts)
    for _ in range(2):
        with pytest.raises(DatasetError, match=rf"train-00001-of-00003\.tfrecord: does not match its mapping: {why}"):
            _opened(objects, tmp_path).__enter__()


def test_a_mapping_that_was_replaced_is_read_and_other_shards_are_not(tmp_path: Path) -> None:
    objects = _mapped(tmp_path / "local")
    with _opened(objects, tmp_path) as dataset:
        entries = dataset.entries
    _rewrite(objects, label_names={"3": "cat"})
    objects.gets.clear()
    with _opened(objects, tmp_path) as dataset:
        assert dataset.entries == entries
        assert dataset.contents.label_names == {3: "cat"}
    read = {name for name, _, _ in objects.gets if name.endswith(".tfrecord")}
    assert read == {"train-00000-of-00003.tfrecord", "train-00001-of-00003.tfrecord"}
    objects.gets.clear()
    with _opened(objects, tmp_path):
        assert not objects.gets


def test_a_mapping_of_any_size_is_not_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("tfrecords", "mapping"):
        monkeypatch.setattr(f"emlio.formats.tfrecord.{module}.MOST_MAPPING_BYTES", 5000)
    objects = _mapped(tmp_path / "local")
    objects.content["mapping_shard_00001.json"] = b" " * 50_000
    with pytest.raises(DatasetError, match="must be at most 5000 bytes, has 5001 or more"):
        _opened(objects, tmp_path).__enter__()
    assert max(end - start for _, start, end in objects.gets) <= 5001
