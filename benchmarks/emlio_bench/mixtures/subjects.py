"""The loaders of `emlio-bench mixtures`, as systems that a race can run.

EMLIO's daemon serves all datasets of a mixture. The other loaders find each in a folder of one bucket. By default each has the
setting that was its fastest in the race over 30 ms.
"""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from emlio.tfrecord import frame
from emlio_bench.harness.contest import Corpus, Family
from emlio_bench.link.contract import Link
from emlio_bench.mixtures.mix import Mix
from emlio_bench.race.records.corpus import made_once, read_records
from emlio_bench.race.records.order import RaceOrder, converted
from emlio_bench.race.servers.object_store import BUCKET
from emlio_bench.race.systems import others
from emlio_bench.race.systems.ours import CLAIM, serving_daemon
from emlio_bench.race.systems.over import OverStore
from emlio_bench.race.systems.system import Claim, Setting, System

__all__ = ["OURS", "SUBJECTS", "MixedEmlio", "MixedPeer", "subjects"]

OURS: Final = "emlio"
SUBJECTS: Final = (OURS, "mosaic", "mosaic-stratified", "litdata")

_TUNED: Final = "tuned"
"""The setting of both other loaders that was fastest in the race."""

_SHARDS: Final = 8


def subjects(mix: Mix, cache: Path, *, every: bool = False) -> tuple[System, ...]:
    """Return all loaders for a mixture, EMLIO first, by the names of `SUBJECTS`.

    Args:
        mix: the mixture.
        cache: folder of environments and programs.
        every: whether to return the other loaders also at each of their other settings in the race. Their names are then
            those of the loader and of the setting, as in "litdata, default".
    """
    mosaic, litdata = others.mosaic(cache), others.litdata(cache)
    peers = (
        ("mosaic", mosaic, "Stream(proportion=...), batching random", (("batching", "random"),)),
        ("mosaic-stratified", mosaic, "Stream(proportion=...), batching stratified", (("batching", "stratified"),)),
        ("litdata", litdata, "CombinedStreamingDataset(weights=...)", ()),
    )
    return (
        MixedEmlio(mix=mix),
        *(
            MixedPeer(
                name=name if setting == _TUNED else f"{name}, {setting}",
                environment=of.environment,
                reader=of.reader,
                claim=of.claim,
                cache=cache,
                mix=mix,
                of=of,
                setting=setting,
                words=words,
                options=options,
            )
            for name, of, words, options in peers
            for setting in ([one.name for one in of.settings(0)] if every else [_TUNED])
        ),
    )


def _options(mix: Mix) -> tuple[tuple[str, str], ...]:
    """Return the options that all consumers of a mixture have."""
    return (("weights", ",".join(map(str, mix.weights))), ("samples", str(mix.samples)), ("in_order", "1"))


def _form(name: str, mix: Mix) -> str:
    """Return the name of the folder of a mixture in a format."""
    return f"{name}-mixed-{'-'.join(map(str, mix.sizes))}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MixedEmlio(System):
    """A daemon that serves all datasets, and a loader whose host meets it for the first time.

    Attributes:
        mix: the mixture.
    """

    name: str = OURS
    family: Family = "ours"
    claim: Claim = CLAIM
    reader: str = "read_emlio"
    mix: Mix

    def settings(self, rtt_ns: int) -> tuple[Setting, ...]:
        """Do it; see `System`."""
        return (Setting(name="default", words="everything automatic", options=_options(self.mix), usual=True),)

    def prepare(self, corpus: Corpus, folder: Path) -> Path:
        """Writes a folder of TFRecord files for each dataset."""

        def make(target: Path) -> None:
            records = read_records(corpus, folder)
            for number, size in enumerate(self.mix.sizes):
                (target / str(number)).mkdir()
                for shard in range(_SHARDS):
                    first, end = (size * part // _SHARDS for part in (shard, shard + 1))
                    if first == end:
                        continue
                    with (target / str(number) / f"{shard:05d}.tfrecord").open("wb") as file:
                        for record in islice(records, end - first):
                            file.write(frame(record))

        return made_once(folder / _form("tfrecord", self.mix) / corpus.name, make)

    @contextmanager
    def serve(self, prepared: Path, link: Link) -> Generator[str, None, None]:
        """Yields an address for each dataset, with blanks between them."""
        first, *others = (prepared / str(number) for number in range(len(self.mix.sizes)))
        flags = [word for path in others for word in ("--data", f"{_dataset(path)}={path}")]
        with serving_daemon(first, link, [*flags, "--cache-dir", f"{prepared}.indexes"]) as address:
            host, _, _ = address.rpartition("/")
            yield " ".join([address, *(f"{host}/{_dataset(path)}" for path in others)])

    def command(self, order: RaceOrder) -> list[str]:
        """Do it; see `System`."""
        return ["env", f"XDG_CACHE_HOME={order.folder}", *System.command(self, order)]


def _dataset(path: Path) -> str:
    return f"mixed-{path.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MixedPeer(OverStore):
    """Another loader, and an S3 server.

    Attributes:
        mix: the mixture.
        of: the loader, as a system of the race.
        setting: name of its setting in the race.
        words: its way to mix, for the report.
        options: its own options for mixtures.
    """

    mix: Mix
    of: System
    setting: str
    words: str
    options: tuple[tuple[str, str], ...]

    def settings(self, rtt_ns: int) -> tuple[Setting, ...]:
        """Do it; see `System`."""
        (chosen,) = (one for one in self.of.settings(rtt_ns) if one.name == self.setting)
        options = (*chosen.options, *_options(self.mix), *self.options)
        return (Setting(name=chosen.name, words=f"{self.words}, {chosen.words}", options=options, usual=True),)

    def prepare(self, corpus: Corpus, folder: Path) -> Path:
        """Do it; see `System`."""
        options = {"bucket": BUCKET, "sizes": ",".join(map(str, self.mix.sizes))}
        return converted(self.python, self.reader, corpus, folder, form=_form(self.of.name, self.mix), options=options)
