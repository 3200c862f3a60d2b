"""One record of a shard that is being written.

Covers: the value. Does not cover: making it of an item (emlio.prepare.targets.example_form,
emlio.prepare.targets.tar_record).
"""

from dataclasses import dataclass

from typing_extensions import Buffer

__all__ = ["Record"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Record:
    """One record to be written into a shard.

    Attributes:
        parts: its bytes, in as many pieces as they came; joining large ones would only copy them.
        label: its class, or None.
    """

    parts: tuple[Buffer, ...]
    label: int | None = None
