"""PyTorch's DataLoader over a remote file system, a file for each record.

Settings: PyTorch's "Performance Tuning Guide": as many workers as the location of the data
requires; its reference of torch.utils.data: `persistent_workers`, and `prefetch_factor` for batches
read ahead. The mount: sshfs with its defaults, and tuned after its manual page, sshfs(1), and its
list of options, `sshfs --help`: several connections, directories and attributes cached for the
whole run, no flush on close, SFTP without SSH; `--mount` for a mount made by the user.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from emlio_bench.harness.contest import Corpus
from emlio_bench.race.records.file_forms import as_files
from emlio_bench.race.systems.over_mount import OverMount
from emlio_bench.race.systems.system import Claim, Setting, setting

__all__ = ["PyTorchFiles"]

_CLAIM: Final = Claim(
    shuffles="every record anywhere in the epoch",
    exact=True,
    leaves_on_disk="nothing",
    packages=("torch",),
    decodes=True,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PyTorchFiles(OverMount):
    """See `System`."""

    name: str = "pytorch-files"
    claim: Claim = _CLAIM
    environment: str | None = "torch"
    reader: str = "read_files"

    def settings(self, rtt_ns: int) -> tuple[Setting, ...]:
        """See `System`."""
        if self.mount is not None:
            return tuple(
                setting(name, f"the user's mount, {count} workers", workers=count, mount="user")
                for name, count in (("default", 4), ("16 workers", 16))
            )
        return (
            setting("default", "default mount, 4 workers", workers=4, mount="default"),
            setting("16 workers", "default mount, 16 workers", workers=16, mount="default"),
            setting("tuned mount", "tuned mount, 4 workers", workers=4, mount="tuned"),
            setting(
                "tuned",
                "tuned mount, 16 workers that stay for all epochs, each 4 batches ahead",
                usual=True,
                workers=16,
                mount="tuned",
                persistent=1,
                ahead=4,
            ),
        )

    def prepare(self, corpus: Corpus, folder: Path) -> Path:
        """See `System`."""
        return as_files(corpus, self.place(folder))
