"""The subjects that decode pictures, with different sources and ways of parallel work."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import msgspec

from emlio.errors import ConfigError
from emlio.extras import how_to_install
from emlio_bench.decode.order import DecodeOrder
from emlio_bench.harness.meter import Measurement
from emlio_bench.harness.sides import hear_sample, running_daemon
from emlio_bench.processes.child import start_worker

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


_DALI: Final = ("nvidia.dali", "torch", "PIL")
_TORCH: Final = ("torch", "PIL")


def _decoder(
    name: str, scenario: str, role: str, text: str, needs: tuple[str, ...], *, has_daemon: bool = False
) -> Decoder:
    return Decoder(
        name=name,
        scenario=scenario,
        role=role,
        has_daemon=has_daemon,
        needs=needs,
        text=text,
        epochs=_CARRIED_EPOCHS if scenario == CARRY else 1,
    )


FLOOR: Final = _decoder("pillow-floor", PILLOW, "decode-pillow-memory", "the transform alone, one thread", ("PIL",))

_ALL: Final = (
    _decoder("dali-tfrecord", DALI, "decode-dali-reader", "DALI's own TFRecord reader", _DALI),
    _decoder("emlio-daemon", DALI, "decode-dali-loader", "EMLIO, from a daemon on this host", _DALI, has_daemon=True),
    _decoder("emlio-local", DALI, "decode-dali-loader", "EMLIO, from this host's files", _DALI),
    FLOOR,
    _decoder("dataloader", PILLOW, "decode-dataloader", "PyTorch's DataLoader, processes", _TORCH),
    _decoder("threads-daemon", PILLOW, "decode-pillow-loader", "EMLIO threads, from a daemon", _TORCH, has_daemon=True),
    _decoder("threads-local", PILLOW, "decode-pillow-loader", "EMLIO threads, from this host's files", _TORCH),
    _decoder("carry-dataloader", CARRY, "carry-dataloader", "PyTorch's DataLoader, processes", _TORCH),
    _decoder("carry-daemon", CARRY, "carry-loader", "EMLIO, from a daemon", _TORCH, has_daemon=True),
    _decoder("carry-local", CARRY, "carry-loader", "EMLIO, from this host's files", _TORCH),
)
DECODERS: Final = {decoder.name: decoder for decoder in _ALL}
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
                    f"{decoder.name} needs {package}, which is not installed: {how_to_install(extra)}, "
                    "or name others with --subjects"
                )
