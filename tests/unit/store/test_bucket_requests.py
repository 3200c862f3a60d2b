"""Requests: repeated while that may help, given up with the object's name, never with a secret."""

import random
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from threading import Barrier, Event
from urllib.parse import quote

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emlio.errors import ClosedError, DatasetError
from emlio.index.opening import list_objects
from emlio.reading.bucket_engine import pieces_of
from emlio.store.bucket.address import ObjectAddress
from emlio.store.bucket.bucket_store import BucketStore, ObjectReader
from emlio.store.bucket.client import Cause, ObjectStatus, RequestError
from emlio.store.bucket.library import _judged, list_pages
from emlio.store.bucket.object_table import table_of
from emlio.store.bucket.requests import AbsentError, Requests, wait_for
from emlio_testing.fake_objects import FakeObjects


class _Time:
    """A clock that pauses move."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.pauses: list[float] = []

    def pause(self, seconds: float) -> bool:
        self.pauses.append(seconds)
        self.now_s += seconds
        return False


@contextmanager
def _requests(objects: FakeObjects, time: _Time | None = None) -> Iterator[Requests]:
    time = time or _Time()
    requests = Requests(
        ObjectAddress.parse("s3://b/p"), objects, pause=time.pause, now_s=lambda: time.now_s, chance=lambda: 0.5
    )
    try:
        yield requests
    finally:
        requests.close()


def _failing(times: int, cause: Cause) -> "FakeObjects":
    objects, left = FakeObjects({"a": b"0123456789"}), [times]

    def fail(_: str, __: str) -> None:
        if left[0]:
            left[0] -= 1
            raise RequestError(cause, "the server answered 503")

    objects.before = fail
    return objects


def test_a_passing_failure_is_repeated_with_longer_and_longer_pauses() -> None:
    time = _Time()
    with _requests(_failing(5, Cause.PASSING), time) as requests:
        assert bytes(requests.get("a", 2, 5)[1]) == b"234"
        assert (requests.sent, requests.repeated) == (6, 5)
    assert time.pauses == sorted(time.pauses)
    assert len(time.pauses) == 5


def test_repeating_has_an_end_that_names_object_and_reason() -> None:
    time = _Time()
    with (
        _requests(_failing(1000, Cause.PASSING), time) as requests,
        pytest.raises(DatasetError, match=r"s3://b/p/a: bytes 0 to 5 .* after \d+ tries .*503") as caught,
    ):
        requests.get("a", 0, 5)
    assert caught.value.passing
    assert time.now_s < 60


def test_a_host_that_was_never_reached_is_given_up_within_a_few_seconds() -> None:
    time = _Time()
    with (
        _requests(_failing(1000, Cause.UNREACHED), time) as requests,
        pytest.raises(
            DatasetError, match=r"s3://b/p: cannot be listed, after \d+ tries .* Check the host's name and port"
        ),
    ):
        requests.list()
    assert len(time.pauses) > 3
    assert time.now_s < 4


def test_a_host_that_was_reached_once_is_waited_for_while_it_restarts() -> None:
    time, objects = _Time(), _failing(10, Cause.UNREACHED)
    fail = objects.before
    with _requests(objects, time) as requests:
        objects.before = lambda _, __: None
        requests.list()
        objects.before = fail
        assert bytes(requests.get("a", 2, 5)[1]) == b"234"
    assert time.now_s > 10


@pytest.mark.parametrize("cause", [Cause.DENIED, Cause.OTHER])
def test_what_does_not_pass_is_not_repeated(cause: Cause) -> None:
    with _requests(_failing(1, cause)) as requests:
        with pytest.raises(DatasetError, match="s3://b/p/a") as caught:
            requests.get("a", 0, 5)
        assert requests.sent == 1
    assert not caught.value.passing


def test_an_absent_object_is_told() -> None:
    with _requests(FakeObjects({})) as requests, pytest.raises(AbsentError):
        requests.head("a")


def test_a_short_answer_is_repeated() -> None:
    objects = FakeObjects({"a": b"0123456789"})
    whole = objects.get

    def cut(name: str, start: int, end: int) -> object:
        status, data = whole(name, start, end)
        return status, data if len(objects.gets) > 1 else data[:2]

    objects.get = cut  # type: ignore[method-assign,assignment]
    with _requests(objects) as requests:
        assert bytes(requests.get("a", 0, 9)[1]) == b"012345678"


def test_closing_ends_what_waits() -> None:
    objects, begun, release = FakeObjects({"a": b"x"}), Event(), Event()

    def hold(_: str, __: str) -> None:
        begun.set()
        release.wait(5)

    objects.before = hold
    requests = Requests(ObjectAddress.parse("s3://b/p?connections=1"), objects)
    first = requests.submit(lambda: requests.get("a", 0, 1))
    second = requests.submit(lambda: requests.get("a", 0, 1))
    assert begun.wait(5)
    release.set()
    wait_for(first)
    requests.close()
    with pytest.raises(ClosedError):
        requests.submit(lambda: None)
    with suppress(ClosedError):
        wait_for(second)


def test_closing_ends_the_wait_for_a_server_that_stands_still() -> None:
    objects, begun, release = FakeObjects({"a": b"x"}), Event(), Event()
    address = ObjectAddress.parse("s3://b/p")
    store = BucketStore.list(Requests(address, objects))

    def stand_still(_: str, __: str) -> None:
        begun.set()
        release.wait(60)

    objects.before = stand_still
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(store.reader(0).read_at, 1, 0)
        try:
            assert begun.wait(20)
            store.close()
            store.close()
            with pytest.raises(ClosedError):
                reading.result(20)
        finally:
            release.set()


def test_many_requests_are_under_way_at_once() -> None:
    objects, meet = FakeObjects({"a": bytes(64)}), Barrier(32)
    objects.before = lambda kind, name: meet.wait(10) and None
    with _requests(objects) as requests:
        waits = [requests.submit(lambda at=at: requests.get("a", at, at + 1)) for at in range(32)]
        for wait in waits:
            wait_for(wait)
    assert objects.most_at_once == 32


@pytest.mark.parametrize(
    ("text", "cause", "reason"),
    [
        (
            "... status code: 503 Service Unavailable: <Code>SlowDown</Code>",
            Cause.PASSING,
            "503 Service Unavailable (SlowDown)",
        ),
        ("... status code: 403 Forbidden: <Code>AccessDenied</Code>", Cause.DENIED, "403 Forbidden (AccessDenied)"),
        ("... status code: 404 Not Found: <Code>NoSuchKey</Code>", Cause.ABSENT, "404 Not Found (NoSuchKey)"),
        ("... status code: 400 Bad Request: x", Cause.OTHER, "400 Bad Request"),
        ("HTTP error: error sending request ... Connection refused", Cause.UNREACHED, "connection refused"),
        ('HttpError { kind: Connect, source: ConnectError("dns error", ...', Cause.UNREACHED, "cannot be resolved"),
        ("HttpError { kind: Connect, ... operation timed out", Cause.PASSING, "timed out"),
        ("HttpError { kind: Request, ... hyper::Error(IncompleteMessage)", Cause.PASSING, "closed without an answer"),
        ("HttpError { kind: Unknown, ... hyper::Error(UnexpectedMessage)", Cause.OTHER, "not one of a web server"),
        ("HttpError { kind: Connect, ... InvalidMessage(InvalidContentType)", Cause.OTHER, "not one of a web server"),
    ],
)
def test_errors_of_the_library_are_judged_by_harmless_words(text: str, cause: Cause, reason: str) -> None:
    class GenericError(Exception):
        pass

    judged = _judged(GenericError(f"{text} <AWSAccessKeyId>AKIA</AWSAccessKeyId> Signature=abc https://h/?sig=xyz"))
    assert judged.cause is cause
    assert reason in judged.reason
    assert not any(secret in judged.reason for secret in ("AKIA", "abc", "xyz"))


def test_a_reader_that_leaps_from_header_to_header_reads_little() -> None:
    data, asked = random.Random(1).randbytes(8 << 20), list[int]()

    def fetch(start: int, end: int) -> bytes:
        asked.append(end - start)
        return data[start:end]

    reader = ObjectReader(fetch, len(data))
    for at in range(0, len(data), 1 << 20):
        assert reader.read_at(512, at) == data[at : at + 512]
    assert len(asked) == 8
    assert sum(asked) <= 8 * (16 << 10)


@given(st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 700)), max_size=40))
def test_a_reader_returns_the_objects_bytes(places: list[tuple[int, int]]) -> None:
    data = random.Random(2).randbytes(4096)
    reader = ObjectReader(lambda start, end: data[start:end], len(data))
    for at, length in places:
        assert reader.read_at(length, at) == data[at : at + length]


def test_a_reader_front_to_back_takes_ever_larger_steps() -> None:
    data, asked = bytes(32 << 20), list[int]()

    def fetch(start: int, end: int) -> bytes:
        asked.append(end - start)
        return data[start:end]

    reader = ObjectReader(fetch, len(data))
    while reader.read(100_000):
        pass
    assert len(asked) < 12


_RANGES = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 3_000_000), st.integers(0, 300_000)), min_size=1, max_size=30
)


@given(_RANGES, st.sampled_from([1000, 100_000, 4 << 20]))
def test_pieces_hold_all_records_and_stay_in_bounds(ranges: list[tuple[int, int, int]], most_bytes: int) -> None:
    contents = [np.random.default_rng(of).integers(0, 256, 3_400_000, np.uint8) for of in range(3)]
    file, starts, sizes = np.array(ranges, np.int64).T
    out = np.zeros(int(sizes.sum()), np.uint8)
    fetched = 0
    for piece in pieces_of(file, starts, sizes, most_bytes=most_bytes):
        assert 0 < piece.size_bytes <= most_bytes
        fetched += piece.size_bytes
        data = contents[piece.file][piece.start : piece.end]
        for at, into, length in piece.copies.tolist():
            out[into : into + length] = data[at : at + length]
    wanted = [contents[of][start : start + size] for of, start, size in ranges]
    assert np.array_equal(out, np.concatenate(wanted))
    assert fetched <= 3 * int(sizes.sum()) + len(ranges) * (256 << 10)


def test_a_server_without_ranges_is_named() -> None:
    error = type("NotSupportedError", (Exception,), {})("Received non-partial response when range requested")
    judged = _judged(error)
    assert (judged.cause, judged.reason) == (
        Cause.OTHER,
        "the server does not send parts of a file (HTTP Range), which reading records needs",
    )


def test_a_key_that_the_library_refuses_is_named() -> None:
    error = type("InvalidPathError", (Exception,), {})('invalid path: Path "p/a//b.bin" contained empty path segment')
    assert "the key 'p/a//b.bin' has an empty part" in _judged(error).reason


def test_a_listing_has_keys_that_cannot_be_paths() -> None:
    keys = ["p/./a", "p/a//b", "p/c\x01", "p/d e&+%.bin", "p/ö"]
    asked: list[Mapping[str, str]] = []

    def fetch(parameters: Mapping[str, str]) -> bytes:
        asked.append(parameters)
        place = int(parameters.get("continuation-token", "0"))
        more = f"<NextContinuationToken>{place + 2}</NextContinuationToken>" if place + 2 < len(keys) else ""
        found = "".join(
            f"<Contents><Key>{quote(key)}</Key><LastModified>2026-01-02T03:04:05.000Z</LastModified>"
            f"<ETag>&quot;{len(key)}&quot;</ETag><Size>{len(key)}</Size></Contents>"
            for key in keys[place : place + 2]
        )
        return f'<r xmlns="http://s3.amazonaws.com/doc/2006-03-01/">{found}{more}</r>'.encode()

    listed = [status for page in list_pages(fetch, "p", "0") for status in page]
    assert [f"p/{status.name}" for status in listed] == keys
    assert {(status.etag, status.modified_s) for status in listed[:1]} == {('"5"', 1767323045)}
    assert asked[0]["start-after"] == "p/0"
    assert [one.get("continuation-token") for one in asked] == [None, "2", "4"]
    table = table_of(ObjectAddress.parse("s3://b/p"), listed)
    assert list(table.names) == ["d e&+%.bin", "ö"]
    assert table.junk == ("./a", "a//b", "c\x01")
    with pytest.raises(RequestError, match="list of objects is not valid"):
        list(list_pages(lambda _: b"<html>", "p", ""))


def test_the_address_of_one_object_is_told_its_prefix() -> None:
    address = ObjectAddress.parse("s3://b/p/a.tar")
    objects = FakeObjects({})
    objects.head = lambda name: ObjectStatus(name=name, size_bytes=1, etag="", modified_s=0)  # type: ignore[method-assign]
    requests = Requests(address, objects)
    with pytest.raises(
        DatasetError,
        match=re.escape(
            "is itself one object. Give the prefix that it lies below, and choose it: 's3://b/p?files=a.tar'"
        ),
    ):
        list_objects("d", requests)
    requests.close()


def test_a_server_that_answers_503_first_is_waited_for_too() -> None:
    time, objects, causes = _Time(), FakeObjects({"a": b"0123456789"}), [Cause.PASSING, *[Cause.UNREACHED] * 9]

    def fail(_: str, __: str) -> None:
        if causes:
            raise RequestError(causes.pop(0), "the server answered 503")

    objects.before = fail
    with _requests(objects, time) as requests:
        assert bytes(requests.get("a", 2, 5)[1]) == b"234"
    assert time.now_s > 10


def test_neighbours_are_fetched_together_and_long_runs_divided() -> None:
    zero = np.zeros(3, np.int64)
    (piece,) = pieces_of(zero, np.array([200_000, 0, 100_000]), np.array([50_000, 50_000, 50_000]), most_bytes=4 << 20)
    assert (piece.start, piece.end, len(piece.copies)) == (0, 250_000, 3)
    pieces = pieces_of(zero[:1], np.array([10]), np.array([10 << 20]), most_bytes=4 << 20)
    assert [one.size_bytes for one in pieces] == [4 << 20, 4 << 20, 2 << 20]
