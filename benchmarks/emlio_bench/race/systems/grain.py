"""Grain: random access to ArrayRecord files on a remote file system, read ahead by threads.

Settings: its documentation, page "Dataset basics": `to_iter_dataset(ReadOptions(num_threads=16,
prefetch_buffer_size=500))`, the defaults, to hide the latency of each element; the docstring of
ReadOptions, which says that the buffer helps with distributed file systems and that each worker
process has its own threads; `mp_prefetch` for worker processes. The page "Reading ArrayRecord
Files" uses one record per group, and "Reading from AWS S3" reads such files from a mount.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from emlio_bench.harness.contest import Corpus
from emlio_bench.race.records.consumer import converted
from emlio_bench.race.systems.over_mount import OverMount
from emlio_bench.race.systems.system import Claim, Setting, setting

__all__ = ["Grain"]

_CLAIM: Final = Claim(
    shuffles="every record anywhere in the epoch",
    exact=True,
    leaves_on_disk="nothing; its kernel keeps in memory what was read, since files stay open",
    packages=("grain", "array-record"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grain(OverMount):
    """See `System`."""

    name: str = "grain"
    claim: Claim = _CLAIM
    environment: str | None = "loaders"
    reader: str = "read_grain"

    def settings(self, rtt_ns: int) -> tuple[Setting, ...]:
        """See `System`."""
        default, tuned = ("user", "user") if self.mount is not None else ("default", "tuned")
        ways: tuple[tuple[str, str, str, dict[str, int]], ...] = (
            ("64 threads", default, "64 threads, 1,000 records ahead", {"threads": 64, "ahead": 1000}),
            ("tuned", tuned, "16 threads, 500 records ahead", {"threads": 16, "ahead": 500}),
            ("tuned, 64 threads", tuned, "64 threads, 1,000 records ahead", {"threads": 64, "ahead": 1000}),
            ("tuned, workers", tuned, "4 processes of 16 threads", {"threads": 16, "ahead": 500, "workers": 4}),
        )
        return (
            setting("default", f"{default} mount, 16 threads, 500 records ahead", mount=default, threads=16, ahead=500),
            *(
                setting(name, f"{mount} mount, {words}", usual=name == "tuned", mount=mount, **options)
                for name, mount, words, options in ways
            ),
        )

    def prepare(self, corpus: Corpus, folder: Path) -> Path:
        """See `System`."""
        return converted(
            self.python,
            self.reader,
            corpus,
            self.place(folder),
            form="array-record",
            options={"records": corpus.records},
        )
