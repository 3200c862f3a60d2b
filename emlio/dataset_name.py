"""A dataset's name as ranks and operators write it: NAME, or NAME@GENERATION.

Covers: splitting and printing it. Does not cover: which names are valid (emlio.daemon.config), which
generation a rank gets (emlio.daemon.datasets.generations).
"""

from dataclasses import dataclass

from emlio.errors import ConfigError

__all__ = ["DatasetName"]

_MOST_DIGITS = 9


@dataclass(frozen=True, slots=True)
class DatasetName:
    """A name, and the number of a generation if one is named.

    Attributes:
        name: the name without a generation.
        generation: its number, from 1 on; None if none is named.
    """

    name: str
    generation: int | None = None

    @staticmethod
    def parse(text: str) -> "DatasetName":
        """Parse NAME or NAME@GENERATION.

        Raises:
            ConfigError: what follows the @ is not the number of a generation.
        """
        name, at, number = text.partition("@")
        if not at:
            return DatasetName(text)
        if not (number.isascii() and number.isdecimal() and number[0] != "0" and len(number) <= _MOST_DIGITS):
            raise ConfigError(f"a dataset's generation must be a number from 1 on, as in {name}@2, got {text!r}")
        return DatasetName(name, int(number))

    @staticmethod
    def without_generation(text: str) -> str:
        """Return the name alone, whatever follows the @."""
        return text.partition("@")[0]

    def __str__(self) -> str:
        return self.name if self.generation is None else f"{self.name}@{self.generation}"
