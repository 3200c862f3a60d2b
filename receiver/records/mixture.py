"""The datasets of a mixture as a rank knows them once there is a plan.

Covers: which dataset a record is of, their names and contents. Does not cover: decoding (emlio.receiver.batches.mixed_records).
"""

import msgspec
import numpy as np
import numpy.typing as npt

from emlio.errors import ConfigError
from emlio.formats.contents import Contents, FieldType
from emlio.planner.catalog import Catalog
from emlio.planner.mixture.merged import parts_of

__all__ = ["KnownContents", "MixedContents"]


class MixedContents(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The contents of the datasets of a mixture.

    Attributes:
        names: their names, for errors and figures.
        contents: what is known of the records of each.
        firsts: the id of the first record of each but dataset 0.
    """

    names: tuple[str, ...]
    contents: tuple[Contents, ...]
    firsts: npt.NDArray[np.int64]

    @classmethod
    def of(cls, names: tuple[str, ...], contents: tuple[Contents, ...], catalog: Catalog) -> "MixedContents":
        """Return the contents of datasets that are joined in a catalog."""
        firsts = [part.first for part in parts_of(catalog, len(names))[1:]]
        return cls(names=names, contents=contents, firsts=np.array(firsts, np.int64))

    def datasets(self, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the number of the dataset of each record."""
        return np.searchsorted(self.firsts, ids, side="right").astype(np.int64, copy=False)

    def counts(self, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return how many of the records are of each dataset."""
        return np.bincount(self.datasets(ids), minlength=len(self.names))

    def alike(self, what: str) -> Contents:
        """Return the contents of all datasets, which must be of one format.

        Args:
            what: the kind of batches that needs this, for the error.

        Raises:
            ConfigError: two datasets differ.
        """
        first = self.contents[0]
        for name, other in zip(self.names, self.contents, strict=True):
            if (other.format, other.settings) != (first.format, first.settings):
                raise ConfigError(
                    f"{what} needs datasets of one format with the same settings: {self.names[0]!r} is {first.format}, "
                    f"{name!r} is {other.format}{' with other settings' if other.format == first.format else ''}. "
                    "Convert one of them, or use a transform"
                )
        return first

    @property
    def label_names(self) -> dict[int, str]:
        """The names of classes by label, if all datasets have the same ones."""
        first = dict(self.contents[0].label_names)
        return first if all(dict(other.label_names) == first for other in self.contents) else {}

    @property
    def schema(self) -> dict[str, FieldType]:
        """The columns that all datasets have, with the same type."""
        first, *others = self.contents
        return {
            name: field
            for name, field in first.schema.items()
            if all(other.schema.get(name) == field for other in others)
        }


KnownContents = Contents | MixedContents
"""The contents of a loader's dataset, or of the datasets that it mixes."""
