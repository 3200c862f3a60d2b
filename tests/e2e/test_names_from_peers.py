"""Names that come from the network are looked up among what is served, and are never paths.

Each name here would lead somewhere if it became a path: to the dataset or shard that is served, by another way, or to one beside
it that is not. Covers: hello, sizesrequest, catalogpart, open. Does not cover: nonsense of other kinds (test_bad_peers), names
in mappings and links (tests/unit/store/test_served_folder).
"""

import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import zmq

from emlio.planner.catalog import Catalog, ShardEntry
from emlio.planner.plan import Plan, PlanSpec
from emlio.wire.control import (
    CatalogPart,
    ControlMessage,
    Hello,
    Open,
    Opened,
    PlanOffer,
    PlanReply,
    Refused,
    ShardRow,
    ShardsReply,
    ShardsRequest,
    Welcome,
    decode_control,
    encode_control,
)
from emlio.wire.limits import MAX_NAME_LENGTH
from emlio.wire.questions import Answer, AskSizes, Question, Sizes
from emlio.wire.seal import new_secret
from emlio_testing.datasets import make_dataset
from emlio_testing.processes import DaemonProcess
from tests.e2e.attacks.insiders import CREDIT

# The letters of these names have a second spelling: some file systems take both for one.
_DATASET = unicodedata.normalize("NFC", "served")
_SHARD = "ñ-00000-of-00001.tfrecord"
_LIES = ["{folder}/served/{shard}", "./{shard}", "../served/{shard}", "sub/../{shard}", "../secret/secret.tfrecord"]
_TURNS = [
    "{shard}\0",
    "{shard}\0.tfrecord",
    "{shard}/",
    "{shard} ",
    "{decomposed}",
    "\u202e{shard}",
    "..\u2215served",
    ".",
    "..",
    "/",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    daemon: DaemonProcess
    folder: Path

    def name(self, form: str, shard: str = _SHARD) -> str:
        return form.format(folder=self.folder, shard=shard, decomposed=unicodedata.normalize("NFD", shard))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Place]:
    folder = tmp_path_factory.mktemp("data")
    for name, shard in (("served", _SHARD), ("secret", "secret.tfrecord")):
        make_dataset(folder / name, records=40, shards=1, mapped=False)
        (folder / name / "train-00000-of-00001.tfrecord").rename(folder / name / shard)
    (folder / "served" / "sub").mkdir()
    with DaemonProcess({_DATASET: folder / "served"}, folder=folder) as daemon:
        yield _Place(daemon=daemon, folder=folder)
        assert daemon.running
        assert "Traceback" not in daemon.log


class _Peer:
    """A rank that says what it likes."""

    def __init__(self, socket: "zmq.Socket[bytes]") -> None:
        self._socket = socket
        self.session = 0
        self._offered: list[str] = []

    def ask(self, message: ControlMessage) -> ControlMessage:
        self._socket.send(encode_control(message))
        return decode_control(self._socket.recv())

    def greet(self, dataset: str = _DATASET, **names: str) -> ControlMessage:
        answer = self.ask(
            Hello(
                **{"job": "j", "client": "c", "host": "h", "software": "0", **names},  # type: ignore[arg-type]  # all text
                dataset=dataset,
                rank=0,
                world_size=1,
                pid=1,
                lane_secret=new_secret(),
            )
        )
        if isinstance(answer, Welcome):
            self.session = answer.session
        return answer

    def listed(self) -> ShardRow:
        answer = self.ask(ShardsRequest(session=self.session, first=0))
        assert isinstance(answer, ShardsReply)
        (row,) = answer.rows
        return row

    def agree_with(self, row: ShardRow, name: str) -> ControlMessage:
        """Offer a plan of the shard that is served and one of this name; what is said to the catalog."""
        other = ShardRow(name=name, records=row.records, size_bytes=row.size_bytes, digest=row.digest)
        rows = sorted((row, other), key=lambda one: one.name)
        self._offered = [one.name for one in rows]
        plan = Plan(
            Catalog(
                shards=tuple(
                    ShardEntry(name=one.name, records=one.records, size_bytes=one.size_bytes, digest=one.digest)
                    for one in rows
                )
            ),
            PlanSpec(batch_size=10),
        )
        spec, fingerprint = plan.spec, plan.catalog.fingerprint
        offer = PlanOffer(
            session=self.session, fingerprint=fingerprint, digest=plan.digest, seed=spec.seed,
            shuffle=spec.shuffle.mode.value, block_records=spec.shuffle.block_records,
            window_blocks=spec.shuffle.window_blocks, batch_size=10, drop_last=spec.drop_last, pad=spec.pad,
        )  # fmt: skip
        answer = self.ask(offer)
        if answer != PlanReply(need_catalog=True):
            return answer  # the daemon knows this catalog already
        return self.ask(CatalogPart(session=self.session, fingerprint=fingerprint, first=0, total=2, rows=rows))

    def open(self, name: str) -> ControlMessage:
        """Ask for the shard of this name, after `agree_with`."""
        owned = bytes((1 << self._offered.index(name),))
        return self.ask(
            Open(session=self.session, stream=1, epoch=0, origin=0, slot=0, owned=owned, lanes=1, credit=CREDIT)
        )


@contextmanager
def _peer(place: _Place) -> Iterator[_Peer]:
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.RCVTIMEO, 5000)
        socket.setsockopt(zmq.SNDTIMEO, 5000)
        socket.connect(place.daemon.endpoint)
        yield _Peer(socket)


@pytest.mark.parametrize(
    "form", ["{folder}/served", "../served", "./served", "served/", "../secret", "secret", *_TURNS]
)
def test_hello_finds_a_dataset_by_its_name_and_by_no_path_to_it(place: _Place, form: str) -> None:
    name = place.name(form, _DATASET) if form != "{decomposed}" else "se\u200brved"
    with _peer(place) as peer:
        answer = peer.greet(name)
        assert answer == Refused(
            code="unknown-dataset", text=f"there is no dataset {name!r} at this daemon, available: {_DATASET}"
        )


@pytest.mark.parametrize("field", ["job", "client", "host", "software"])
def test_what_a_rank_calls_itself_is_no_path_either(place: _Place, field: str) -> None:
    with _peer(place) as peer:
        assert isinstance(peer.greet(**{field: "../../\0\u202e/etc/passwd"}), Welcome)
        assert peer.listed().name == _SHARD


@pytest.mark.parametrize("form", [*_LIES, *_TURNS, "secret.tfrecord", ""])
def test_sizes_are_told_of_shards_by_name_and_by_no_path_to_them(place: _Place, form: str) -> None:
    with _peer(place) as peer:
        peer.greet()
        name = place.name(form)
        answer = peer.ask(Question(session=peer.session, number=1, about=AskSizes(shard=name, first=0, count=5)))
        assert answer == Answer(number=1, told=Sizes(offset=0, sizes=b""))
        known = peer.ask(Question(session=peer.session, number=2, about=AskSizes(shard=_SHARD, first=0, count=5)))
        assert isinstance(known, Answer)
        assert isinstance(known.told, Sizes)
        assert len(known.told.sizes) == 5 * 4


@pytest.mark.parametrize("form", [*_LIES, *_TURNS, "secret.tfrecord"])
def test_a_catalog_may_name_what_it_likes_but_only_shards_that_are_served_can_be_opened(
    place: _Place, form: str
) -> None:
    name = place.name(form)
    with _peer(place) as peer:
        peer.greet()
        assert peer.agree_with(peer.listed(), name) == PlanReply(need_catalog=False)
        answer = peer.open(name)
        assert answer == Refused(
            code="not-held", text=f"a stream must name only shards of this daemon, it does not hold {name}"
        )
    with _peer(place) as peer:
        peer.greet()
        peer.agree_with(peer.listed(), name)
        assert isinstance(peer.open(_SHARD), Opened), "the one that is served can be had beside it"


def test_names_longer_than_a_file_s_may_be_are_not_even_read(place: _Place) -> None:
    long = "a" * (MAX_NAME_LENGTH + 1)
    with _peer(place) as peer:
        answer = peer.greet(long)
        assert isinstance(answer, Refused)
        assert (answer.code, "length <= 255" in answer.text) == ("protocol", True)
    row = ShardRow(name=long, records=1, size_bytes=20, digest="d")
    for message in (
        lambda session: Question(session=session, number=1, about=AskSizes(shard=long, first=0, count=1)),
        lambda session: CatalogPart(session=session, fingerprint="f", first=0, total=1, rows=[row]),
    ):
        with _peer(place) as peer:
            peer.greet()
            answer = peer.ask(message(peer.session))
            assert isinstance(answer, Refused)
            assert (answer.code, "length <= 255" in answer.text) == ("protocol", True)
