"""One item of a source, before it has the form of a target."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from typing_extensions import Buffer

from emlio.example import FeatureValue

__all__ = ["Sample"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sample:
    """One item of a source.

    Attributes:
        columns: values by name, without the picture and the label: bytes, text, numbers, arrays,
            or what JSON can hold.
        main: the column that is the whole item, as the bytes of a file are; empty if there is none.
        picture: an encoded image.
        path: of the item's file in the source; empty if it has none of its own.
        filename: of the item without folders, such as a picture's.
        key: its key, if the source is a WebDataset.
        label: its class.
        class_name: the plain name of its class.
        label_fault: why the label it has cannot be read; empty if it can.
        whole_arrays: whether arrays become bytes, a shape and a type as features, whatever their
            shape.
        bare: whether a record of a TFRecord file is the bytes of the main column's array and nothing
            else, as for tokens.
        features: features that a tf.train.Example has besides, or in place of the columns of the same
            name.
        members: members of a tar, by extension, if the source has them; by default they follow from
            the columns.
        record: a record that is copied unchanged; nothing else is set beside it.
    """

    columns: Mapping[str, Any] = field(default_factory=dict[str, Any])
    main: str = ""
    picture: Buffer | None = None
    path: str = ""
    filename: str = ""
    key: str = ""
    label: int | None = None
    class_name: str = ""
    label_fault: str = ""
    whole_arrays: bool = False
    bare: bool = False
    features: Mapping[str, FeatureValue] = field(default_factory=dict[str, FeatureValue])
    members: Mapping[str, Buffer] | None = None
    record: Buffer | None = None
