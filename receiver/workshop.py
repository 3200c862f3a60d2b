"""Everything a loader makes its batches with.

Covers: the options about batches, checked against each other, and the parts that follow from them. Does not cover: where
records come from (emlio.receiver.engine), each part's work.
"""

import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from emlio.arguments import flag, whole
from emlio.errors import ConfigError
from emlio.planner.plan import Plan
from emlio.planner.sample_seeds import sample_seeds, uniforms
from emlio.receiver.assemble import Assembler
from emlio.receiver.bad_records import BadRecordPolicy
from emlio.receiver.config import LoaderConfig
from emlio.receiver.dali_adapter import DaliPipe
from emlio.receiver.dali_graph import PipeOptions, dali_device
from emlio.receiver.decoded import IDS, Decoded
from emlio.receiver.energy_work import WorkLog
from emlio.receiver.iteration import Handed
from emlio.receiver.making import ColumnMaker, Maker, NotedMaker, PipeMaker, SampleMaker
from emlio.receiver.position import Position
from emlio.receiver.prefetch import MadeBatch, MadeBatches
from emlio.receiver.record_sizes import Ask
from emlio.receiver.token_feed import TokenPosition, TokenWork
from emlio.receiver.torch_adapter import DeviceMover, tensor_maker, torch_is_installed
from emlio.tokens import TokenBatches

__all__ = ["BatchOptions", "Workshop"]

_COPIED_AHEAD = 2
_DEVICE = re.compile(r"cpu|(cuda|gpu)(:[0-9]+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOptions:
    """What the user wants of his batches; the loader's arguments of the same names."""

    raw: bool
    fields: Sequence[str] | None
    ids: bool
    seeds: bool
    transform: Callable[[Any], Any] | None
    collate_fn: Callable[[Sequence[Any]], Any] | None
    threads: int | None
    pipeline: "str | Callable[..., Any] | None"
    pipeline_args: Mapping[str, Any] | None
    output_map: Sequence[str] | None
    tokens: TokenBatches | None
    to: str | None
    device: str | None

    def __post_init__(self) -> None:
        for name in ("raw", "ids", "seeds"):
            object.__setattr__(self, name, flag(name, getattr(self, name)))
        if self.threads is not None:
            object.__setattr__(self, "threads", whole("threads", self.threads, least=1))
        if self.to not in (None, "torch", "numpy"):
            raise ConfigError(f'to must be "torch" or "numpy", got {self.to!r}')
        if self.raw and self.fields is not None:
            raise ConfigError("fields name features of decoded records; with raw=True there are none")
        if isinstance(self.fields, str):
            raise ConfigError(f"fields must be a list of names, got the string {self.fields!r}")
        if self.fields is not None and not isinstance(cast("object", self.fields), Collection):
            raise ConfigError(f"fields must be a list of names, or None for all, got {self.fields!r}")
        for name in ("transform", "collate_fn"):
            if self._given(name) and not callable(getattr(self, name)):
                raise ConfigError(f"{name} must be a function, got {getattr(self, name)!r}")
        if self.device is not None and not _DEVICE.fullmatch(str(self.device)):
            raise ConfigError(f'device must be "cpu", "cuda" or "cuda:NUMBER", got {self.device!r}')
        self._check_pipeline()
        self._check_tokens()
        if self.on_device and not self.tensors:
            raise ConfigError(
                f"device {self.device!r} needs torch's tensors, which to={self.to!r} or raw=True rules out"
            )

    def _check_pipeline(self) -> None:
        if self.pipeline is None:
            given = self._given("pipeline_args", "output_map")
            if given:
                raise ConfigError(f"{' and '.join(given)} belong to a pipeline, and there is none")
            return
        wrong = self._given("raw", "fields", "seeds", "transform", "collate_fn")
        if wrong:
            raise ConfigError(
                f"a pipeline says itself what it takes and makes; {', '.join(wrong)} cannot be given beside it"
            )

    def _check_tokens(self) -> None:
        wrong = self._given("raw", "fields", "seeds", "transform", "pipeline") if self.tokens is not None else []
        if wrong:
            raise ConfigError(
                f"records of tokens are arrays and nothing else; {', '.join(wrong)} cannot be given for them"
            )

    def _given(self, *names: str) -> list[str]:
        return [name for name in names if getattr(self, name) is not None and getattr(self, name) is not False]

    @property
    def tensors(self) -> bool:
        """Whether numbers come as torch's tensors."""
        return not self.raw and (self.to == "torch" or (self.to is None and torch_is_installed()))

    @property
    def on_device(self) -> bool:
        """Whether batches go to a CUDA device."""
        return self.device is not None and str(self.device) != "cpu"


class Workshop:
    """The maker of a loader's batches, and what is done with a batch when the user takes it.

    Attributes:
        maker: makes batches of whole ones.
    """

    def __init__(
        self, options: BatchOptions, policy: BadRecordPolicy, config: LoaderConfig, log: WorkLog | None = None
    ) -> None:
        """See the class.

        Args:
            options: what is wanted.
            policy: what becomes of bad records.
            config: what else the loader was told. What is drawn for a record follows from its seed, the epoch and the
                record; DALI's own random numbers differ from rank to rank.
            log: told when a thread is at work; None where nobody wants to know.
        """
        self._ids = options.ids
        self._to_tensor = tensor_maker() if options.tensors else None
        self._config = config
        self._tokens: TokenWork | None = None
        seed, rank, batch_size = config.seed, config.rank, config.batch_size
        self._pipe: DaliPipe | None = None
        self._mover: DeviceMover | None = None
        threads = options.threads or _usable_threads(os.environ)
        if options.pipeline is not None:
            self._pipe = DaliPipe(
                PipeOptions(
                    pipeline=options.pipeline,
                    arguments=dict(options.pipeline_args or {}),
                    output_map=options.output_map,
                    batch_size=batch_size,
                    device_id=dali_device(options.device, os.environ),
                    threads=threads,
                    seed=int(sample_seeds(seed, 0, np.array([rank], np.int64))[0] >> 33),
                    tensors=options.tensors,
                ),
                policy,
                self._draw,
                self._with_ids,
            )
        elif options.on_device:
            self._mover = DeviceMover(str(options.device))
        maker = self._maker(options, policy, threads, log)
        self.maker: Maker = maker if log is None else NotedMaker(maker, log)

    def _maker(self, options: BatchOptions, policy: BadRecordPolicy, threads: int, log: WorkLog | None) -> Maker:
        config = self._config
        if options.tokens is not None:
            self._tokens = TokenWork(
                options.tokens, policy, config, options.collate_fn, self._to_tensor, ids=options.ids
            )
            return self._tokens.maker
        assembler = Assembler(
            raw=options.raw,
            fields=options.fields if self._pipe is None else self._pipe.fields,
            ids=options.ids and self._pipe is None,
            seeder=self._seeds if options.seeds else None,
            policy=policy,
            to_tensor=self._to_tensor,
            collate_fn=options.collate_fn,
        )
        finish = self._mover.start if self._mover is not None else None
        if self._pipe is not None:
            return PipeMaker(assembler, self._pipe.images, policy, self._pipe.vectors)
        if options.transform is not None:
            size = config.batch_size
            return SampleMaker(assembler, options.transform, policy, finish, threads=threads, batch_size=size, log=log)
        ahead = _COPIED_AHEAD if options.collate_fn is not None or self._mover is not None else 0
        return ColumnMaker(assembler, finish, ahead=ahead)

    def position(self, plan: Plan, ask: Ask) -> "Position | TokenPosition":
        """The beginning of the plan's first epoch; `ask` tells the sizes of records."""
        return Position(plan) if self._tokens is None else self._tokens.begin(plan, ask)

    @property
    def waited_ns(self) -> int:
        """How long a pipeline was waited for that had its records."""
        return self._pipe.waited_ns if self._pipe is not None else 0

    def next(self, batches: MadeBatches, handed: Handed, position: "Position | TokenPosition") -> MadeBatch:
        """The next batch with the user's value, the same one until it is counted.

        Args:
            batches: those that were made.
            handed: keeps the batch until it is counted.
            position: where the user is.
        """
        if self._pipe is not None:
            return handed.ready or self._pipe.next(batches, handed)
        if self._tokens is not None and isinstance(position, TokenPosition):
            made = self._tokens.next(batches, position)
            return made if self._mover is None else self._moved(made, self._mover.start(made.value))
        if handed.ready is None:
            made = batches.first()
            handed.ready = made if self._mover is None else self._moved(made, made.value)
        batches.taken(handed.ready)
        return handed.ready

    def _moved(self, made: MadeBatch, moving: Any) -> MadeBatch:
        return made if self._mover is None else replace(made, value=self._mover.finish(moving))

    def _with_ids(self, value: dict[str, Any], decoded: Decoded) -> dict[str, Any]:
        """What a pipeline made of records, with their ids if they are wanted."""
        if self._ids:
            value[IDS] = decoded.ids if self._to_tensor is None else self._to_tensor(decoded.ids)
        return value

    def drop(self) -> None:
        """What is under way is not wanted any more."""
        if self._pipe is not None:
            self._pipe.drop()
        if self._tokens is not None:
            self._tokens.drop()

    def close(self) -> None:
        """Let go of the pipeline. The maker belongs to whom it was given."""
        if self._pipe is not None:
            self._pipe.close()

    def _seeds(self, epoch: int, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
        return sample_seeds(self._config.seed, epoch, ids)

    def _draw(self, decoded: Decoded, count: int) -> npt.NDArray[np.float32]:
        return uniforms(sample_seeds(self._config.seed, decoded.epoch, decoded.ids), count)


def _usable_threads(environment: Mapping[str, str]) -> int:
    """This process's share of the processors it may use: launchers say how many processes a host has."""
    ranks = environment.get("LOCAL_WORLD_SIZE", "1")
    return max(len(os.sched_getaffinity(0)) // (int(ranks) if ranks.isdigit() and int(ranks) else 1), 1)
