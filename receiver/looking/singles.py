"""Samples and batches of single records, for looking at them.

Covers: the ids that a caller may give, decoding, the transform. Does not cover: finding the records
(emlio.receiver.looking.lookup).
"""

from collections.abc import Callable, Sequence
from functools import partial
from operator import index
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from emlio.errors import ConfigError, RecordIndexError
from emlio.planner.plan import Plan
from emlio.receiver.batch_kinds.choose import assembler_of
from emlio.receiver.batch_kinds.options import BatchOptions
from emlio.receiver.engine.questions import DaemonQuestions
from emlio.receiver.looking.lookup import RecordLookup
from emlio.receiver.records.bad_records import BadRecordPolicy
from emlio.receiver.records.decoded import Decoded
from emlio.receiver.records.mixture import KnownContents
from emlio.receiver.records.sizes import locate_record
from emlio.receiver.setup.config import LoaderConfig

__all__ = ["SingleRecords", "all_ids_of", "id_of", "ids_of"]


class SingleRecords:
    """Finds records by their ids and decodes them. A bad record is always an error.

    Used by one thread at a time.
    """

    def __init__(
        self,
        options: BatchOptions,
        config: LoaderConfig,
        plan: Plan,
        questions: DaemonQuestions,
        contents: KnownContents,
    ) -> None:
        """See the class.

        Args:
            options: say how records are decoded. A DALI pipeline and batches of tokens have no part
                in it.
            config: the loader's configuration.
            plan: the plan.
            questions: requests records from daemons.
            contents: the contents of the dataset, or of those that are mixed.
        """
        policy = BadRecordPolicy("raise")
        names = config.address.mixed_names
        policy.locate_by(partial(locate_record, plan.catalog, questions.sizes, datasets=names))
        self._policy = policy
        self._assembler = assembler_of(options, policy, config.seed)
        self._assembler.know(contents)
        self._transform = options.transform
        self._records = plan.catalog.records
        recovery = config.recovery
        self._lookup = RecordLookup(
            plan.catalog, questions, timeout_ns=recovery.timeout_ns, verify=recovery.verifies, datasets=names
        )

    def batch(self, ids: object, epoch: int, *, transform: bool) -> Any:
        """Return the batch of these records, in this order."""
        decoded = self._decoded(ids_of(ids, self._records), epoch)
        if self._transform is None or not transform:
            return self._assembler.batch(decoded)
        return self._assembler.collate(self._transformed(decoded, self._transform))

    def samples(self, ids: npt.NDArray[np.int64]) -> list[Any]:
        """Return each of these records as a sample."""
        if not len(ids):
            return []
        decoded = self._decoded(ids, 0)
        if self._transform is not None:
            return self._transformed(decoded, self._transform)
        return [
            {name: _own(value) for name, value in decoded.sample(place).items()} for place in range(len(decoded.ids))
        ]

    def _decoded(self, ids: npt.NDArray[np.int64], epoch: int) -> Decoded:
        return self._assembler.decode(self._lookup.find(ids, epoch))

    def _transformed(self, decoded: Decoded, transform: Callable[[Any], Any]) -> list[Any]:
        samples: list[Any] = []
        for place, record in enumerate(decoded.ids.tolist()):
            try:
                samples.append(transform(decoded.sample(place)))
            except Exception as error:
                error.add_note(decoded.in_transform(error, place, self._policy.describe(record)))
                raise
        return samples


def _own(value: Any) -> Any:
    """Return a value that outlives its batch and can be pickled."""
    if isinstance(value, memoryview):
        return bytes(cast("memoryview[int]", value))
    return cast("npt.NDArray[Any]", value).copy() if isinstance(value, np.ndarray) else value


def ids_of(given: object, records: int) -> npt.NDArray[np.int64]:
    """Return the ids that a caller gave: one number, or a list, array or tensor of them.

    Raises:
        ConfigError: they are no whole numbers, or there are none.
        RecordIndexError: there is no such record.
    """
    if isinstance(given, str | bytes | dict) or given is None:
        raise ConfigError(f"ids must be whole numbers, got {given!r}")
    try:
        found = np.asarray(given)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"ids must be whole numbers, got {given!r}") from error
    if found.ndim == 0:
        found = found.reshape(1)
    if found.ndim == 1 and not found.size:
        raise ConfigError("ids must be one or more whole numbers, got an empty list")
    if found.ndim != 1 or found.dtype.kind not in "iu":
        raise ConfigError(f"ids must be one or more whole numbers in a row, got shape {found.shape} of {found.dtype}")
    bad = (found < 0) | (found >= records)
    if bad.any():
        raise RecordIndexError(f"ids must be in [0, {records:,}), got {int(found[bad][0]):,}")
    return np.ascontiguousarray(found, np.int64)


def id_of(number: object, records: int) -> int:
    """Return the id for a sequence's index, which counts from the end if it is negative.

    Raises:
        ConfigError: it is no whole number.
        RecordIndexError: there is no such record.
    """
    try:
        if isinstance(number, bool | np.bool_):
            raise TypeError
        found = index(number)  # type: ignore[arg-type]  # refused below
    except TypeError:
        raise ConfigError(f"an index must be a whole number or a slice, got {number!r}") from None
    if not -records <= found < records:
        raise RecordIndexError(f"an index must be in [{-records:,}, {records:,}), got {found:,}")
    return found + records if found < 0 else found


def all_ids_of(numbers: Sequence[object], records: int) -> npt.NDArray[np.int64]:
    """Return the ids for several indexes; see `id_of`."""
    return np.array([id_of(number, records) for number in numbers], np.int64)
