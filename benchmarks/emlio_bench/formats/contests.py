"""The contests of `emlio-bench formats`, and who takes part in each."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from emlio.errors import ConfigError
from emlio_bench.formats.subjects import ServedFolder, ServedForm
from emlio_bench.harness.contest import Contest, Corpus, Entrant
from emlio_bench.harness.options import flag, names, out
from emlio_bench.harness.results import rtt_text
from emlio_bench.race.records.stored_forms import PICTURE_FORMS, TOKEN_FORMS, StoredForm
from emlio_bench.race.run.fields import FieldsSettings
from emlio_bench.race.run.turns import Field
from emlio_bench.race.servers.object_store import BUCKET
from emlio_bench.race.systems.entries import Entry, entered, entry_of
from emlio_bench.race.systems.others import WebDataset, hf_datasets, mosaic, pytorch_files
from emlio_bench.race.systems.system import System

__all__ = ["BESIDE", "FormatsSettings", "beside_field", "form_fields", "pairs"]

BESIDE: Final = "beside"
"""The contest with the formats' own loaders."""

_PICTURE_BYTES: Final = 100_000
_WINDOW_BYTES: Final = 8_192
_TINY: Final = 48
_PICTURES_IN_BATCH: Final = 64
_WINDOWS_IN_BATCH: Final = 256
_SETTINGS: Final = {"webdataset": "500 a tar", "mosaic": "tuned", "pytorch-files": "tuned", "hf-datasets": "tuned"}
"""The settings of the other systems that were fastest in the race over 30 ms."""


_FORMATS: Final = tuple(form.name for form in (*PICTURE_FORMS, *TOKEN_FORMS))


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatsSettings(FieldsSettings):
    """`emlio-bench formats`."""

    formats: tuple[str, ...] = names(_FORMATS, "formats to serve; tfrecord and token-records are what the others need")
    ways: tuple[str, ...] = names(
        ("loopback", "link"), "where a loader reads: on the daemon's machine, or over the emulated link"
    )
    beside: bool = flag(
        "also read the folders of WebDataset, MosaicML Streaming, PyTorch's DataLoader and Hugging Face datasets with these "
        "loaders and with EMLIO, in turns over the link"
    )
    out: Path = out("emlio-formats")

    def __post_init__(self) -> None:
        for first, others in ((form[0].name, form) for form in (PICTURE_FORMS, TOKEN_FORMS)):
            if first not in self.formats and any(form.name in self.formats for form in others):
                raise ConfigError(f"--formats must have {first}, which the others are compared with")


def form_fields(settings: FormatsSettings) -> list[Field]:
    """Return the contests between formats."""
    found: list[Field] = []
    for name, forms, record_bytes, batch in (
        ("pictures", PICTURE_FORMS, _PICTURE_BYTES, _PICTURES_IN_BATCH),
        ("tokens", TOKEN_FORMS, _WINDOW_BYTES, _WINDOWS_IN_BATCH),
    ):
        chosen = [form for form in forms if form.name in settings.formats]
        corpus = Corpus(records=settings.records(record_bytes, _TINY), record_bytes=record_bytes)
        for way in settings.ways if chosen else ():
            over_link = way == "link"
            contest = Contest(
                name=f"{name}, {rtt_text(settings.rtt) if over_link else way}",
                words=f"{corpus.text} over {f'a link of {rtt_text(settings.rtt)}' if over_link else 'loopback'}",
                corpus=corpus,
                rtt_ns=settings.rtt if over_link else 0,
                batch=_batch(batch, corpus),
                epochs=1,
                limit_ns=settings.limit,
            )
            entries = tuple(_form_entry(form, record_bytes) for form in chosen)
            found.append(Field(contest=contest, entries=entries, over_link=over_link))
    return found


def _batch(usual: int, corpus: Corpus) -> int:
    """Return the records of a batch: a tiny epoch has several batches, too."""
    return max(min(usual, corpus.records // 4), 1)


def _form_entry(form: StoredForm, record_bytes: int) -> Entry:
    return entry_of(ServedForm(name=form.name, stored=form, record_bytes=record_bytes))


def pairs(cache: Path) -> tuple[tuple[System, ServedFolder], ...]:
    """Return the formats' own loaders, each with EMLIO on the folder that it reads."""
    web, mds, files, parquet = WebDataset(cache=cache), mosaic(cache), pytorch_files(cache), hf_datasets(cache)
    tar = _SETTINGS[web.name].partition(" ")[0]
    return (
        (web, ServedFolder(name="emlio, tar", of=web, inside=tar, record="bin")),
        (mds, ServedFolder(name="emlio, mds", of=mds, inside=BUCKET, record="record")),
        (files, ServedFolder(name="emlio, files", of=files, inside="", record="data")),
        (parquet, ServedFolder(name="emlio, parquet", of=parquet, inside="", record="record", query="?format=parquet")),
    )


def beside_field(settings: FormatsSettings, cache: Path, tell: Callable[[str], None]) -> Field:
    """Return the contest with the formats' own loaders, whose environments are made if need be.

    A pair takes part as a whole: without the other loader's environment nothing writes its format.

    Args:
        settings: settings of the command.
        cache: folder of environments and programs.
        tell: called with progress messages.
    """
    corpus = Corpus(records=settings.records(_PICTURE_BYTES, _TINY), record_bytes=_PICTURE_BYTES)
    contest = Contest(
        name=BESIDE,
        words=f"{corpus.text} over a link of {rtt_text(settings.rtt)}, beside the formats' own loaders",
        corpus=corpus,
        rtt_ns=settings.rtt,
        batch=_batch(_PICTURES_IN_BATCH, corpus),
        epochs=1,
        limit_ns=settings.limit,
    )
    both = pairs(cache)
    able, unable = entered(
        [other for other, _ in both],
        [settings.rtt],
        cache=cache,
        every=True,
        make=not settings.no_install,
        tell=tell,
    )
    chosen = {entry.system.name: entry for entry in able if _is_chosen(entry.entrant)}
    entries: list[Entry] = []
    for other, ours in both:
        if other.name in chosen:
            entries += [entry_of(ours), chosen[other.name]]
    return Field(contest=contest, entries=tuple(entries), unable=tuple(filter(_is_chosen, unable)), over_link=True)


def _is_chosen(entrant: Entrant) -> bool:
    return entrant.setting == _SETTINGS[entrant.subject]
