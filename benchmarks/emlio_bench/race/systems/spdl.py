"""SPDL: a pipeline of threads over a remote file system, a file for each record.

Settings: its documentation, pages "Building and Running Pipeline" and "Concurrency": the download
stage has 4 tasks, a pool with as many threads, and a sink of 3; more tasks if each of them waits
longer. Results come in the order of completion, the default. SPDL does not plan the order of files:
its user draws it, as its examples do.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from emlio_bench.harness.contest import Corpus
from emlio_bench.race.records.file_forms import as_files
from emlio_bench.race.systems.over_mount import OverMount
from emlio_bench.race.systems.system import Claim, Setting, setting

__all__ = ["Spdl"]

_TASKS: Final = (4, 16, 64)
_CLAIM: Final = Claim(
    shuffles="what its source draws: here every record anywhere in the epoch",
    exact=None,
    leaves_on_disk="nothing",
    packages=("spdl-core",),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spdl(OverMount):
    """See `System`."""

    name: str = "spdl"
    claim: Claim = _CLAIM
    environment: str | None = "loaders"
    reader: str = "read_spdl"

    def settings(self, rtt_ns: int) -> tuple[Setting, ...]:
        """See `System`."""
        few, *more = _TASKS
        if self.mount is not None:
            return (
                setting("default", f"the user's mount, {few} tasks", tasks=few, mount="user"),
                *(
                    setting(
                        f"{count} tasks",
                        f"the user's mount, {count} tasks",
                        usual=count == more[-1],
                        tasks=count,
                        mount="user",
                    )
                    for count in more
                ),
            )
        return (
            setting("default", f"default mount, {few} tasks", tasks=few, mount="default"),
            *(
                setting(f"{count} tasks", f"default mount, {count} tasks", tasks=count, mount="default")
                for count in more
            ),
            setting("tuned mount", f"tuned mount, {more[0]} tasks", tasks=more[0], mount="tuned"),
            setting("tuned", f"tuned mount, {more[-1]} tasks", usual=True, tasks=more[-1], mount="tuned"),
        )

    def prepare(self, corpus: Corpus, folder: Path) -> Path:
        """See `System`."""
        return as_files(corpus, self.place(folder))
