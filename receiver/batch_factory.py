"""The parts with which a loader makes its batches.

Covers: the options about batches, checked against each other, and the parts that follow from them.
Does not cover: where records come from (emlio.receiver.engine.engine), the work of each part.
"""

import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from emlio.arguments import choice, flag, instance, whole
from emlio.errors import ConfigError
from emlio.planner.plan import Plan
from emlio.planner.sample_seeds import sample_seeds, uniforms
from emlio.receiver.batches.assemble import Assembler
from emlio.receiver.batches.makers import ColumnMaker, Maker, NotedMaker, PipeMaker, SampleMaker
from emlio.receiver.batches.prefetch import MadeBatch, MadeBatches
from emlio.receiver.dali.adapter import DaliPipe
from emlio.receiver.dali.graph import PipeOptions, dali_device
from emlio.receiver.dali.pipeline import DaliPipeline
from emlio.receiver.iteration.epoch_pass import Handed
from emlio.receiver.iteration.position import Position
from emlio.receiver.records.bad_records import BadRecordPolicy
from emlio.receiver.records.decoded import IDS, Decoded
from emlio.receiver.records.sizes import Ask
from emlio.receiver.setup.config import LoaderConfig
from emlio.receiver.timing.decode_times import WorkLog
from emlio.receiver.tokens.feed import TokenPosition, TokenWork
from emlio.receiver.torch_adapter import DeviceMover, is_torch_device, tensor_maker, torch_is_installed
from emlio.tokens import TokenBatches

__all__ = ["BatchFactory", "BatchOptions"]

_COPIED_AHEAD = 2
_DEVICE = re.compile(r"cpu|(cuda|gpu)(:[0-9]+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOptions:
    """The options for batches: the loader's arguments with the same names."""

    raw: bool
    fields: Sequence[str] | None
    ids: bool
    seeds: bool
    transform: Callable[[Any], Any] | None
    collate_fn: Callable[[Sequence[Any]], Any] | None
    threads: int | None
    dali: DaliPipeline | None
    tokens: TokenBatches | None
    to: str | None
    device: str | None

    def __post_init__(self) -> None:
        for name in ("raw", "ids", "seeds"):
            object.__setattr__(self, name, flag(name, getattr(self, name)))
        if self.threads is not None:
            object.__setattr__(self, "threads", whole("threads", self.threads, least=1))
        if self.to is not None:
            choice("to", self.to, ("torch", "numpy"), ", or None")
        self._check_fields()
        for name in ("transform", "collate_fn"):
            given = getattr(self, name)
            if given is not None and not callable(given):
                raise ConfigError(f"{name} must be a function, or None, got {given!r}")
        self._check_device()
        self._check_dali()
        self._check_tokens()
        if self.on_device and not self.tensors:
            raise ConfigError(
                f"device {self.device!r} needs torch's tensors, which to={self.to!r} or raw=True rules out"
            )

    def _check_fields(self) -> None:
        if self.raw and self.fields is not None:
            raise ConfigError("fields name features of decoded records; with raw=True there are none")
        if isinstance(self.fields, str):
            raise ConfigError(f"fields must be a list of names, got the string {self.fields!r}")
        given = cast("object", self.fields)
        if given is None:
            return
        named = isinstance(given, Collection) and all(
            isinstance(name, str) and name for name in cast("Collection[object]", given)
        )
        if not named:
            raise ConfigError(f"fields must be a list of names, or None for all, got {self.fields!r}")

    def _check_device(self) -> None:
        given = cast("object", self.device)
        if given is None:
            return
        if not (isinstance(given, str) or is_torch_device(given)) or not _DEVICE.fullmatch(str(given)):
            raise ConfigError(f'device must be "cpu", "cuda" or "cuda:NUMBER", or None, got {given!r}')
        object.__setattr__(self, "device", str(given))

    def _check_dali(self) -> None:
        if self.dali is None:
            return
        instance("dali", self.dali, DaliPipeline)
        wrong = self._given("raw", "fields", "seeds", "transform", "collate_fn")
        if wrong:
            raise ConfigError(
                f"a DALI pipeline says itself what it takes and makes; {', '.join(wrong)} cannot be given beside it"
            )

    def _check_tokens(self) -> None:
        if self.tokens is None:
            return
        instance("tokens", self.tokens, TokenBatches)
        wrong = self._given("raw", "fields", "seeds", "transform", "dali")
        if wrong:
            raise ConfigError(
                f"records of tokens are arrays and nothing else; {', '.join(wrong)} cannot be given for them"
            )

    def _given(self, *names: str) -> list[str]:
        return [name for name in names if getattr(self, name) is not None and getattr(self, name) is not False]

    @property
    def tensors(self) -> bool:
        """Return whether numbers are handed out as torch tensors."""
        return not self.raw and (self.to == "torch" or (self.to is None and torch_is_installed()))

    @property
    def on_device(self) -> bool:
        """Return whether batches go to a CUDA device."""
        return self.device is not None and str(self.device) != "cpu"


class BatchFactory:
    """Makes a loader's batches and finishes each one when the user takes it.

    Attributes:
        maker: makes batches from complete ones.
    """

    def __init__(
        self, options: BatchOptions, policy: BadRecordPolicy, config: LoaderConfig, log: WorkLog | None = None
    ) -> None:
        """Create the parts.

        Args:
            options: the options for batches.
            policy: how bad records are handled.
            config: the loader's configuration. Random numbers for a record follow from the seed,
                the epoch and the record; DALI's own random numbers differ from rank to rank.
            log: notes when a thread is at work; None if this is not recorded.
        """
        self._ids = options.ids
        self._to_tensor = tensor_maker() if options.tensors else None
        self._config = config
        self._tokens: TokenWork | None = None
        seed, rank, batch_size = config.seed, config.rank, config.batch_size
        self._pipe: DaliPipe | None = None
        self._mover: DeviceMover | None = None
        threads = options.threads or _usable_threads(os.environ)
        if options.dali is not None:
            self._pipe = DaliPipe(
                PipeOptions(
                    dali=options.dali,
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
        """Return the beginning of the plan's first epoch; `ask` returns the sizes of records."""
        return Position(plan) if self._tokens is None else self._tokens.begin(plan, ask)

    @property
    def waited_ns(self) -> int:
        """Time spent waiting for a pipeline that had its records."""
        return self._pipe.waited_ns if self._pipe is not None else 0

    def next(self, batches: MadeBatches, handed: Handed, position: "Position | TokenPosition") -> MadeBatch:
        """Return the next batch with the user's value; the same one until it is counted.

        Args:
            batches: the batches that were made.
            handed: keeps the batch until it is counted.
            position: the user's position.
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
        """Return the pipeline's output for some records, with their ids if these are wanted."""
        if self._ids:
            value[IDS] = decoded.ids if self._to_tensor is None else self._to_tensor(decoded.ids)
        return value

    def drop(self) -> None:
        """Drop the work in progress."""
        if self._pipe is not None:
            self._pipe.drop()
        if self._tokens is not None:
            self._tokens.drop()

    def close(self) -> None:
        """Close the pipeline. The maker is closed by its owner."""
        if self._pipe is not None:
            self._pipe.close()

    def _seeds(self, epoch: int, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
        return sample_seeds(self._config.seed, epoch, ids)

    def _draw(self, decoded: Decoded, count: int) -> npt.NDArray[np.float32]:
        return uniforms(sample_seeds(self._config.seed, decoded.epoch, decoded.ids), count)


def _usable_threads(environment: Mapping[str, str]) -> int:
    """Return this process's share of the processors.

    Launchers say how many processes a host has.
    """
    ranks = environment.get("LOCAL_WORLD_SIZE", "1")
    return max(len(os.sched_getaffinity(0)) // (int(ranks) if ranks.isdigit() and int(ranks) else 1), 1)
