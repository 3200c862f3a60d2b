"""The subject of a race: its contests, and who enters them."""

from dataclasses import dataclass
from typing import Final, Literal

from emlio.errors import ConfigError
from emlio.units import format_size

__all__ = ["DIGIT_PICTURES", "PICTURES", "PICTURE_SIZES", "Contest", "Corpus", "Entrant", "Family"]

Family = Literal["ours", "files", "objects", "http", "service", "local", "limit"]
"""The way in which a system gets its records; "limit" is for what bounds all of them."""

PICTURES: Final = "pictures"
DIGIT_PICTURES: Final = "digit-pictures"
"""Pictures from which a model can learn, see emlio_bench.race.records.digit_pictures."""
PICTURE_SIZES: Final = {PICTURES: (500, 375), "coco-pictures": (640, 480), DIGIT_PICTURES: (640, 480)}
"""Width and height of pictures, about those of ImageNet and of COCO."""

_OPAQUE: Final = "opaque"
_LEAST_BYTES: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """A number of records of one size.

    Attributes:
        records: number of records; their ids are 0 to records - 1.
        record_bytes: size of each record, with its id; of pictures, the mean.
        kind: "opaque", or a key of `PICTURE_SIZES`: JPEGs with labels, whose number is in their name.
    """

    records: int
    record_bytes: int
    kind: str = _OPAQUE

    def __post_init__(self) -> None:
        if self.kind != _OPAQUE and self.kind not in PICTURE_SIZES:
            kinds = ", ".join((_OPAQUE, *PICTURE_SIZES))
            raise ConfigError(f"a corpus must be of a kind of {kinds}, got {self.kind!r}")
        if self.records < 1 or self.record_bytes < _LEAST_BYTES:
            raise ConfigError(
                f"a corpus must have a record of at least {_LEAST_BYTES} bytes, got {self.records} of {self.record_bytes}"
            )

    @property
    def has_pictures(self) -> bool:
        """True if its records are pictures."""
        return self.kind != _OPAQUE

    @property
    def payload_bytes(self) -> int:
        """Payload of all records."""
        return self.records * self.record_bytes

    @property
    def name(self) -> str:
        """Name of the corpus's folders, different for each corpus."""
        return f"{self.kind}-{self.record_bytes}-x{self.records}"

    @property
    def text(self) -> str:
        """Description, such as "6,000 records of 100 kB"."""
        return f"{self.records:,} records of {format_size(self.record_bytes)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """The same work for all systems, over one link.

    Attributes:
        name: short name, unique in a race.
        words: description for readers.
        corpus: records.
        rtt_ns: round trip of the link.
        batch: records in a batch.
        epochs: epochs of a run.
        step_ns: time the consumer computes after each batch; 0 for none.
        decode: whether pictures are decoded.
        decoders: threads that decode.
        limit_ns: an epoch that takes longer is cut.
        halves: whether every second shard lies on the training host.
        train: whether a model learns from each batch.
    """

    name: str
    words: str
    corpus: Corpus
    rtt_ns: int
    batch: int = 64
    epochs: int = 2
    step_ns: int = 0
    decode: bool = False
    decoders: int = 1
    limit_ns: int = 60_000_000_000
    halves: bool = False
    train: bool = False

    def __post_init__(self) -> None:
        if not self.name or self.batch < 1 or self.epochs < 1 or self.step_ns < 0 or self.limit_ns < 1:
            raise ConfigError(f"a contest must have a name, a batch, an epoch and a time limit, got {self}")
        if self.decoders < 1:
            raise ConfigError(f"a contest must have a decoding thread, got {self}")
        if self.train and not self.decode:
            raise ConfigError(f"a contest must decode pictures for a model that learns from them, got {self}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entrant:
    """A system with a setting, as it describes itself.

    Attributes:
        subject: name of the system.
        setting: name of the setting.
        words: what the setting means.
        family: how the system gets its records.
        shuffles: what its order is.
        exact: whether it says that each record comes once; None if it says nothing.
        leaves_on_disk: what is on the training host's disk after an epoch.
        versions: of its packages.
        missing: why it cannot run; None if it can.
    """

    subject: str
    setting: str
    words: str
    family: Family
    shuffles: str
    exact: bool | None
    leaves_on_disk: str
    versions: str = ""
    missing: str | None = None
