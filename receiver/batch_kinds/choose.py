"""The choice of the kind of batches, made once for each loader.

Covers: the parts that follow from the options. Does not cover: their work.
"""

import os
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from emlio.planner.sample_seeds import sample_seeds
from emlio.ray import OnRay
from emlio.receiver.batch_kinds.dali import DaliBatches
from emlio.receiver.batch_kinds.destination import Destination, Device
from emlio.receiver.batch_kinds.kind import BatchKind
from emlio.receiver.batch_kinds.options import BatchOptions
from emlio.receiver.batch_kinds.records import RecordBatches
from emlio.receiver.batches.assemble import Assembler
from emlio.receiver.batches.makers import ColumnMaker, RayMaker, SampleMaker
from emlio.receiver.dali.graph import PipeOptions, dali_device
from emlio.receiver.dali.pipeline import DaliPipeline
from emlio.receiver.records.bad_records import BadRecordPolicy
from emlio.receiver.setup.config import LoaderConfig
from emlio.receiver.timing.observers import UNOBSERVED_WORK, WorkObserver
from emlio.receiver.tokens.feed import TokenBatchKind
from emlio.receiver.torch_adapter import tensor_maker
from emlio.tokens import TokenBatches

__all__ = ["assembler_of", "choose_kind"]

_COLLATED_AHEAD = 2


def choose_kind(
    options: BatchOptions, policy: BadRecordPolicy, config: LoaderConfig, work: WorkObserver = UNOBSERVED_WORK
) -> BatchKind[Any]:
    """Return the kind of batches that the options ask for.

    Args:
        options: the options for batches.
        policy: how bad records are handled.
        config: the loader's configuration. Random numbers for a record follow from the seed, the
            epoch and the record; DALI's own random numbers differ from rank to rank.
        work: told when a thread is at work.
    """
    if options.dali is not None:
        return _dali(options.dali, options, policy, config)
    destination = Device(str(options.device)) if options.on_device else Destination()
    if options.tokens is not None:
        return _tokens(options.tokens, options, policy, config, destination)
    assembler = assembler_of(options, policy, config.seed)
    if isinstance(options.transform, OnRay):
        maker = RayMaker(
            assembler,
            options.transform,
            policy,
            destination.start,
            batch_size=config.batch_size,
            timeout_s=config.recovery.timeout_ns / 1e9,
            work=work,
        )
        return RecordBatches(assembler, maker, destination)
    if options.transform is not None:
        return RecordBatches(
            assembler,
            SampleMaker(
                assembler,
                options.transform,
                policy,
                destination.start,
                threads=_threads(options),
                batch_size=config.batch_size,
                work=work,
            ),
            destination,
        )
    ahead = destination.ahead if options.collate_fn is None else _COLLATED_AHEAD
    return RecordBatches(assembler, ColumnMaker(assembler, destination.start, ahead=ahead), destination)


def assembler_of(options: BatchOptions, policy: BadRecordPolicy, seed: int) -> Assembler:
    """Return what decodes records and makes batches of them, as the options say."""
    return Assembler(
        raw=options.raw,
        fields=options.fields,
        ids=options.ids,
        seeder=partial(sample_seeds, seed) if options.seeds else None,
        policy=policy,
        to_tensor=tensor_maker() if options.tensors else None,
        collate_fn=options.collate_fn,
    )


def _dali(dali: DaliPipeline, options: BatchOptions, policy: BadRecordPolicy, config: LoaderConfig) -> DaliBatches:
    to_tensor = tensor_maker() if options.tensors else None
    return DaliBatches(
        PipeOptions(
            dali=dali,
            batch_size=config.batch_size,
            device_id=dali_device(options.device, os.environ),
            threads=_threads(options),
            seed=int(sample_seeds(config.seed, 0, np.array([config.rank], np.int64))[0] >> 33),
            tensors=options.tensors,
        ),
        policy,
        config.seed,
        ids=options.ids,
        to_tensor=to_tensor,
    )


def _tokens(
    tokens: TokenBatches,
    options: BatchOptions,
    policy: BadRecordPolicy,
    config: LoaderConfig,
    destination: Destination,
) -> TokenBatchKind:
    to_tensor = tensor_maker() if options.tensors else None
    return TokenBatchKind(tokens, policy, config, options.collate_fn, to_tensor, destination.brought, ids=options.ids)


def _threads(options: BatchOptions) -> int:
    return options.threads or _usable_threads(os.environ)


def _usable_threads(environment: Mapping[str, str]) -> int:
    """Return this process's share of the processors.

    Launchers say how many processes a host has.
    """
    ranks = environment.get("LOCAL_WORLD_SIZE", "1")
    return max(len(os.sched_getaffinity(0)) // (int(ranks) if ranks.isdigit() and int(ranks) else 1), 1)
