"""What a loader is told.

Covers: the frozen options, checked, with the reasons for their defaults. Does not cover: reading the environment
(emlio.receiver.world), the plan's own limits (emlio.planner).
"""

from dataclasses import dataclass, field

from emlio.arguments import as_whole, flag, whole
from emlio.errors import ConfigError
from emlio.planner.order import Shuffle
from emlio.planner.spec import PlanSpec
from emlio.receiver.address import Address
from emlio.receiver.trust import Trust
from emlio.wire.control import ENERGY, PACES, Pace

__all__ = ["ON_ERROR", "VERIFY", "LoaderConfig"]

ON_ERROR = ("raise", "skip", "replace")
VERIFY = ("all", "none")
_SMALLEST_WINDOW = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderConfig:
    """Everything a loader is told at its birth.

    Attributes:
        address: the dataset and its daemons.
        batch_size: samples of this rank per step of the plan.
        rows: what the user called batch_size; of packed tokens a batch has so many rows, with a bound on tokens there is none.
        shuffle: how far records move.
        seed: draws the order.
        drop_last: leave out a last step that is not full.
        pad: fill it instead.
        rank: of this process.
        world_size: how many processes share the epoch.
        job: names the training run.
        in_order: hand out batches in the plan's order.
        prefetch_bytes: what may be taken off the wire before the user has asked for it.
        timeout_ns: how long a daemon may be silent, or a batch incomplete, before that is an error.
        heartbeat_ns: how long it may say nothing before it is taken for lost, and its part asked of others; the loader gives no
            more than timeout_ns.
        on_error: what follows from a record that fails its check.
        verify: which records are checked against their CRC32C.
        trust: this host's keys, and how data may be protected.
        pace: "race", or "energy": no further ahead than the user's own pace asks for.
        epochs: how many there are in all, counted from epoch 0; None where nobody knows.
        ordinal: how many loaders this process made before for the dataset and rank; None where that is not counted.
    """

    address: Address
    batch_size: int
    rows: int | None
    shuffle: Shuffle
    seed: int
    drop_last: bool
    pad: bool
    rank: int
    world_size: int
    job: str
    in_order: bool
    prefetch_bytes: int
    timeout_ns: int
    heartbeat_ns: int
    on_error: str
    verify: str
    trust: Trust = field(default_factory=Trust)
    pace: Pace = "race"
    epochs: int | None = None
    ordinal: int | None = None

    def __post_init__(self) -> None:
        # NumPy's numbers become plain ones: a message or a JSON document could not hold them.
        for name in ("drop_last", "pad", "in_order"):
            object.__setattr__(self, name, flag(name, getattr(self, name)))
        object.__setattr__(self, "batch_size", whole("batch_size", self.batch_size, least=1))
        if self.rows is not None:
            object.__setattr__(self, "rows", whole("batch_size", self.rows, least=1))
        seed = as_whole(self.seed)
        if seed is None:
            raise ConfigError(f"seed must be a whole number in [0, 2**63), got {self.seed!r}")
        object.__setattr__(self, "seed", seed)
        if self.world_size < 1:
            raise ConfigError(f"world_size must be at least 1, got {self.world_size}")
        if not 0 <= self.rank < self.world_size:
            raise ConfigError(f"rank must be in [0, {self.world_size}), got {self.rank}")
        if self.prefetch_bytes < _SMALLEST_WINDOW:
            raise ConfigError(f"prefetch must be at least 1 MiB, got {self.prefetch_bytes} bytes")
        if self.timeout_ns < 1_000_000:
            raise ConfigError(f"timeout must be at least 1ms, got {self.timeout_ns} ns")
        if not self.heartbeat_ns >= 1_000_000:
            raise ConfigError(f"heartbeat must be at least 1ms, got {self.heartbeat_ns} ns")
        if self.on_error not in ON_ERROR:
            raise ConfigError(f"on_error must be one of {', '.join(ON_ERROR)}, got {self.on_error!r}")
        if self.verify not in VERIFY:
            raise ConfigError(f"verify must be one of {', '.join(VERIFY)}, got {self.verify!r}")
        if self.pace not in PACES:
            raise ConfigError(f"pace must be one of {', '.join(PACES)}, got {self.pace!r}")
        if self.epochs is not None:
            object.__setattr__(self, "epochs", whole("epochs", self.epochs, least=1, otherwise=", or None"))
        _ = self.spec  # what cannot be planned is refused before anything is connected

    @property
    def spec(self) -> PlanSpec:
        """What the plan follows from, besides the dataset."""
        return PlanSpec(
            seed=self.seed,
            shuffle=self.shuffle,
            batch_size=self.batch_size,
            world_size=self.world_size,
            drop_last=self.drop_last,
            pad=self.pad,
        )

    def check_epoch(self, epoch: int) -> None:
        """Refuse an epoch after the last one."""
        if self.epochs is not None and epoch >= self.epochs:
            raise ConfigError(f"an epoch must be below the {self.epochs} that the loader was told of, got {epoch}")

    @property
    def saves_energy(self) -> bool:
        """Whether both sides do no more than they must."""
        return self.pace == ENERGY
