"""The subjects that decode pictures, with different sources and ways of parallel work.

Covers: the subjects, the packages they need, one sample in a new process. Does not cover: the work
of that process (emlio_bench.decode.dali, emlio_bench.decode.pillow).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import msgspec

from emlio.errors import ConfigError
from emlio_bench.decode.order import DecodeOrder
from emlio_bench.harness.meter import Measurement
from emlio_bench.harness.pair import hear_sample
from emlio_bench.processes.child import start_worker
from emlio_bench.processes.daemon import running_daemon

__all__ = ["CARRY", "DALI", "DECODERS", "FLOOR", "PILLOW", "Decoder", "check_installed", "is_installed"]

DALI: Final = "DALI"
PILLOW: Final = "Pillow"
CARRY: Final = "records only"

_CARRIED_EPOCHS: Final = 10

_PACKAGES: Final = {
    "nvidia.dali": ("NVIDIA DALI", "dali"),
    "PIL": ("Pillow", "images"),
    "torch": ("PyTorch", "torch"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    """A subject.

    Attributes:
        name: short stable name for results.
        scenario: decoder of the subject; subjects of one scenario do the same work.
        role: role of its process, see emlio_bench.processes.worker.
        has_daemon: whether a daemon sends it the records. The daemon runs on the same cores.
        needs: required modules.
        text: display name.
        epochs: epochs in one sample; several if one epoch is too short to measure.
    """

    name: str
    scenario: str
    role: str
    has_daemon: bool
    needs: tuple[str, ...]
    text: str
    epochs: int = 1

    def measure(self, order: DecodeOrder) -> Measurement:
        """Take one sample, and run the daemon during the sample.

        Raises:
            TransportError: a process failed or stayed silent for too long.
        """
        if not self.has_daemon:
            return self._measure(order)
        with running_daemon(Path(order.directory)) as daemon:
            return self._measure(msgspec.structs.replace(order, address=daemon.address, daemon_pid=daemon.pid))

    def _measure(self, order: DecodeOrder) -> Measurement:
        with start_worker(self.role, order) as trainer:
            return hear_sample(trainer, order.window)


FLOOR: Final = Decoder(
    name="pillow-floor",
    scenario=PILLOW,
    role="decode-pillow-memory",
    has_daemon=False,
    needs=("PIL",),
    text="the transform alone, one thread",
)

DECODERS: Final = {
    decoder.name: decoder
    for decoder in (
        Decoder(
            name="dali-tfrecord",
            scenario=DALI,
            role="decode-dali-reader",
            has_daemon=False,
            needs=("nvidia.dali", "torch", "PIL"),
            text="DALI's own TFRecord reader",
        ),
        Decoder(
            name="emlio-daemon",
            scenario=DALI,
            role="decode-dali-loader",
            has_daemon=True,
            needs=("nvidia.dali", "torch", "PIL"),
            text="EMLIO, from a daemon on this host",
        ),
        Decoder(
            name="emlio-local",
            scenario=DALI,
            role="decode-dali-loader",
            has_daemon=False,
            needs=("nvidia.dali", "torch", "PIL"),
            text="EMLIO, from this host's files",
        ),
        FLOOR,
        Decoder(
            name="dataloader",
            scenario=PILLOW,
            role="decode-dataloader",
            has_daemon=False,
            needs=("torch", "PIL"),
            text="PyTorch's DataLoader, processes",
        ),
        Decoder(
            name="threads-daemon",
            scenario=PILLOW,
            role="decode-pillow-loader",
            has_daemon=True,
            needs=("torch", "PIL"),
            text="EMLIO threads, from a daemon",
        ),
        Decoder(
            name="threads-local",
            scenario=PILLOW,
            role="decode-pillow-loader",
            has_daemon=False,
            needs=("torch", "PIL"),
            text="EMLIO threads, from this host's files",
        ),
        Decoder(
            name="carry-dataloader",
            scenario=CARRY,
            role="carry-dataloader",
            has_daemon=False,
            needs=("torch", "PIL"),
            text="PyTorch's DataLoader, processes",
            epochs=_CARRIED_EPOCHS,
        ),
        Decoder(
            name="carry-daemon",
            scenario=CARRY,
            role="carry-loader",
            has_daemon=True,
            needs=("torch", "PIL"),
            text="EMLIO, from a daemon",
            epochs=_CARRIED_EPOCHS,
        ),
        Decoder(
            name="carry-local",
            scenario=CARRY,
            role="carry-loader",
            has_daemon=False,
            needs=("torch", "PIL"),
            text="EMLIO, from this host's files",
            epochs=_CARRIED_EPOCHS,
        ),
    )
}
"""The subjects by name, in the order of tables."""


def is_installed(module: str) -> bool:
    """Return whether a module can be imported, without importing it."""
    package = module.partition(".")[0]
    return find_spec(package) is not None and (package == module or find_spec(module) is not None)


def check_installed(decoders: Sequence[Decoder]) -> None:
    """Raise `ConfigError` before any measurement if a subject cannot run here."""
    for decoder in decoders:
        for module in decoder.needs:
            if not is_installed(module):
                package, extra = _PACKAGES[module]
                raise ConfigError(
                    f'{decoder.name} needs {package}, which is not installed: pip install "emlio[{extra}]", '
                    "or name others with --subjects"
                )
