"""A daemon with a configuration file and a folder of descriptions, and loaders that tell which records came."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from emlio import EmlioLoader
from emlio.cli import main
from emlio.daemon.datasets.descriptions import State, read_state
from emlio_testing.datasets import make_dataset, numbered_payload
from emlio_testing.loader_arguments import loader_arguments
from emlio_testing.processes import DaemonProcess, settles

__all__ = ["NEW", "OLD", "RECORDS", "SOON_S", "DaemonSite", "load", "make_numbered", "numbers", "whole"]

BATCH = 10
RECORDS = 3000
SLOW = ("--message-size", "64KiB", "--memory", "4MiB", "--heartbeat-timeout", "500ms")
SOON_S = 30.0


def make_numbered(folder: Path, first: int, records: int = RECORDS, shards: int = 3, *, mapped: bool = True) -> Path:
    """Make a dataset whose records are numbered from `first` on."""
    make_dataset(
        folder,
        records=records,
        shards=shards,
        payload=lambda number: numbered_payload(first + number, 2000),
        mapped=mapped,
    )
    return folder


OLD, NEW = range(RECORDS), range(10_000, 10_000 + RECORDS)


class DaemonSite:
    """A daemon with a configuration file and a folder of descriptions beside it.

    Attributes:
        folder: the folder of both.
        config: the configuration file.
        descriptions: the folder of descriptions.
    """

    def __init__(self, folder: Path, port: int = 0) -> None:
        """Make the folders; the daemon listens on a port of the system's choice unless one is named."""
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.config = folder / "daemon.toml"
        self.descriptions = folder / "datasets.d"
        self.descriptions.mkdir(exist_ok=True)
        self._bind = f"tcp://127.0.0.1:{port}"

    def configure(self, **datasets: Path) -> None:
        """Write the configuration file."""
        lines = [f'"{name}" = "{directory}"' for name, directory in datasets.items()]
        self.config.write_text("\n".join(["[datasets]", *lines]) + "\n", encoding="utf-8")

    def describe(self, name: str, directory: Path) -> None:
        """Put a description into the folder, atomically."""
        made = self.folder / f"{name}.new"
        made.write_text(f'path = "{directory}"\n', encoding="utf-8")
        made.rename(self.descriptions / f"{name}.toml")

    def state(self, name: str) -> State | None:
        """Return the state of a description, if the daemon has written one."""
        return read_state(self.descriptions / f"{name}.toml")

    def becomes(self, name: str, state: str) -> State:
        """Wait for the state of a description."""

        def there() -> bool:
            found = self.state(name)
            return found is not None and found.state == state

        assert settles(there, SOON_S), self.state(name)
        found = self.state(name)
        assert found is not None
        return found

    def publish(self, directory: Path, name: str, *options: str) -> int:
        """Run `emlio publish`; return its exit code."""
        return main(["publish", str(directory), name, "--config", str(self.config), "--timeout", "10s", *options])

    def start(self, *options: str) -> DaemonProcess:
        """Start the daemon."""
        return DaemonProcess({}, "--config", str(self.config), *SLOW, *options, folder=self.folder, bind=self._bind)


def load(address: str, **options: object) -> EmlioLoader:
    """Return a loader that holds little of what is ahead."""
    arguments: dict[str, object] = {
        "batch_size": BATCH, "raw": True, "to": "numpy", "timeout": "20s", "heartbeat": "500ms", "prefetch": "1MiB", **options
    }  # fmt: skip
    return EmlioLoader(address, **loader_arguments(**arguments))


def numbers(batches: Iterator[dict[str, Sequence[bytes]]], count: int | None = None) -> list[int]:
    """Return the numbers of the records of the next batches, or of all that are left."""
    taken: list[int] = []
    for batch in batches:
        taken += [int.from_bytes(bytes(record[:8]), "little") for record in batch["record"]]
        if count is not None and len(taken) >= count * BATCH:
            break
    return taken


def whole(address: str, **options: object) -> list[int]:
    """Return the numbers of one epoch's records, sorted."""
    with load(address, **options) as loader:
        return sorted(numbers(iter(loader)))
