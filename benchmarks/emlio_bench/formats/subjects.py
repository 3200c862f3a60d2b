"""EMLIO on a folder of any format, as systems that a race can run."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from emlio_bench.harness.contest import Corpus, Family
from emlio_bench.harness.sides import running_daemon
from emlio_bench.link.contract import Link
from emlio_bench.race.records.order import RaceOrder
from emlio_bench.race.records.stored_forms import LABELS, StoredForm, form_folder
from emlio_bench.race.systems.ours import CLAIM, serving_daemon
from emlio_bench.race.systems.system import Claim, Setting, System, setting

__all__ = ["ServedFolder", "ServedForm", "ready_once"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ours(System):
    """A part of a `System`: a daemon that serves a folder, and a loader whose host meets it for the first time."""

    family: Family = "ours"
    claim: Claim = CLAIM
    reader: str = "read_emlio"

    def options(self, prepared: Path) -> str:
        """Return what follows the folder's name when it is served."""
        return ""

    @contextmanager
    def serve(self, prepared: Path, link: Link) -> Generator[str, None, None]:
        """Do it; see `System`."""
        with serving_daemon(_address(prepared, self.options(prepared)), link, _index_flags(prepared)) as url:
            yield url

    def command(self, order: RaceOrder) -> list[str]:
        """Do it; see `System`."""
        return ["env", f"XDG_CACHE_HOME={order.folder}", *System.command(self, order)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedForm(_Ours):
    """A folder that this benchmark writes.

    Attributes:
        stored: its format.
        record_bytes: size of a record.
    """

    stored: StoredForm
    record_bytes: int

    def settings(self, rtt_ns: int) -> tuple[Setting, ...]:
        """Do it; see `System`."""
        form = self.stored
        raw = "raw" if form.raw else ""
        return (setting("default", form.words, record=form.record, label=form.label, labels=LABELS, raw=raw),)

    def prepare(self, corpus: Corpus, folder: Path) -> Path:
        """Do it; see `System`."""
        return form_folder(self.stored, corpus, folder)

    def options(self, prepared: Path) -> str:
        """Return what follows the folder's name when it is served."""
        return self.stored.options(self.record_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedFolder(_Ours):
    """A folder that another system reads.

    Attributes:
        of: the other system.
        inside: the served folder, in the folder that the other system prepares.
        record: column of the records' bytes.
        query: what follows the folder's name when it is served.
    """

    of: System
    inside: str
    record: str
    query: str = ""

    def settings(self, rtt_ns: int) -> tuple[Setting, ...]:
        """Do it; see `System`."""
        return (setting("default", f"the folder of {self.of.name}", record=self.record),)

    def prepare(self, corpus: Corpus, folder: Path) -> Path:
        """Do it; see `System`."""
        return self.of.prepare(corpus, folder) / self.inside

    def options(self, prepared: Path) -> str:
        """Return what follows the folder's name when it is served."""
        return self.query


@contextmanager
def ready_once(prepared: Path, options: str) -> Generator[None, None, None]:
    """Serve a folder until its daemon accepts ranks, and keep it for the block."""
    with running_daemon(_address(prepared, options), _index_flags(prepared)):
        yield


def _address(prepared: Path, options: str) -> Path:
    return prepared.with_name(prepared.name + options)


def _index_flags(prepared: Path) -> Sequence[str]:
    """Return the flags that keep indexes beside the data, and out of the user's cache folder."""
    return ["--cache-dir", str(prepared.with_name(f"{prepared.name}.indexes"))]
