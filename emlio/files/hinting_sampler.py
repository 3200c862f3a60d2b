"""`HintingSampler`, for PyTorch's DataLoader; imports nothing of it."""

from collections.abc import Iterable, Iterator, Sequence
from operator import index
from os import PathLike
from typing import Any

from emlio.errors import ConfigError
from emlio.files.hints import hint

__all__ = ["HintingSampler"]


class HintingSampler:
    """A sampler that tells mounts the order of each epoch, by `hint`, before the epoch begins.

    It is iterated once an epoch, as torch's DataLoader does with a sampler and with a batch sampler. Its length and its other
    attributes, such as set_epoch, are those of the sampler.
    """

    def __init__(
        self,
        sampler: Iterable[Any],
        paths: Sequence[str | bytes | PathLike[str]],
        *,
        name: str = "",
    ) -> None:
        """See the class.

        Args:
            sampler: yields indices, or batches of them, and ends.
            paths: of the file with each index, as the dataset will open it.
            name: of the order; see `hint`.
        """
        self._sampler, self._paths, self._name = sampler, paths, name

    def __iter__(self) -> Iterator[Any]:
        """Tell the order of an epoch, then yield it.

        Raises:
            ConfigError: an index has no path.
        """
        drawn = list(self._sampler)
        hint((self._path(number) for one in drawn for number in _indices(one)), name=self._name)
        yield from drawn

    def _path(self, number: int) -> str | bytes | PathLike[str]:
        try:
            return self._paths[number]
        except LookupError as error:
            given = len(self._paths)
            raise ConfigError(
                f"paths must have one for each index that is drawn, got {given} and index {number}"
            ) from error

    def __len__(self) -> int:
        return len(self._sampler)  # type: ignore[arg-type]  # of those that have a length

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # also before it has a sampler: when it is copied or unpickled
            raise AttributeError(name)
        return getattr(self._sampler, name)


def _indices(drawn: Any) -> Iterable[int]:
    try:
        return (index(drawn),)
    except TypeError:  # a batch
        return map(index, drawn)
