"""The keys that may connect, and the datasets that each may read."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Self

from emlio.errors import ConfigError
from emlio.keys.key import PublicKey, holds_secret
from emlio.keys.lines import parse_lines

__all__ = ["ALL_DATASETS", "AllowList", "ClientRule", "check_client_name", "parse_patterns", "same_keys"]

ALL_DATASETS = ("*",)

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
_PATTERN = re.compile(r"[A-Za-z0-9._*?!\[\]-]{1,255}")
"""Characters of dataset names, and those of fnmatch patterns."""


def check_client_name(name: str) -> str:
    """Return the name if it is valid; a valid name can also be a file name.

    Raises:
        ConfigError: it is not valid.
    """
    if not _NAME.fullmatch(name) or holds_secret(name, surely=True):
        shown = "a secret key" if holds_secret(name) else repr(name[:80])
        raise ConfigError(
            "a client's name must be 1 to 64 letters, digits, '.', '_' or '-' and not begin with '.' or '-', "
            f"got {shown}"
        )
    return name


def parse_patterns(text: str) -> tuple[str, ...]:
    """Parse patterns such as "imagenet, coco-*".

    Raises:
        ConfigError: there is none, or one that no dataset's name could match.
    """
    patterns = tuple(part.strip() for part in text.split(","))
    if patterns == ("",):
        raise ConfigError("datasets must name at least one dataset, got none. Use emlio revoke NAME to remove a client")
    return _check_patterns(patterns)


def _check_patterns(patterns: tuple[str, ...]) -> tuple[str, ...]:
    if not patterns:
        raise ConfigError("a client must be allowed at least one pattern of datasets, got none")
    for place, pattern in enumerate(patterns, 1):
        if not _PATTERN.fullmatch(pattern):
            raise ConfigError(
                "datasets must be names or patterns of letters, digits, '.', '_', '-', '*', '?' and '[...]', "
                f"separated by commas; number {place} is not valid"
            )
    return patterns


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRule:
    """A key that may connect.

    Attributes:
        name: for people.
        key: its public key.
        datasets: case-sensitive `fnmatch` patterns.
    """

    name: str
    key: PublicKey
    datasets: tuple[str, ...] = ALL_DATASETS

    def __post_init__(self) -> None:
        check_client_name(self.name)
        _check_patterns(self.datasets)

    def may_read(self, dataset: str) -> bool:
        """Return whether a pattern matches the dataset's name."""
        return any(fnmatchcase(dataset, pattern) for pattern in self.datasets)

    @classmethod
    def parse(cls, name: str, data: bytes, where: str) -> Self:
        """Parse the content of a file.

        Raises:
            ConfigError: it holds no valid rule; the message names file and line.
        """
        key: PublicKey | None = None
        datasets: tuple[str, ...] | None = None
        for line in parse_lines(data, where):
            word, separator, value = line.text.partition("=")
            if separator and word.strip() == "datasets":
                if datasets is not None:
                    raise line.error("datasets must be given once, put all patterns on one line")
                try:
                    datasets = parse_patterns(value)
                except ConfigError as error:
                    raise line.error(error) from error
            elif separator:
                # The word is not repeated in the error: it may be part of a secret.
                raise line.error("must be a public key or 'datasets = PATTERN, ...'")
            elif key is not None:
                raise line.error("must not be a second key, each client has a file of its own")
            else:
                try:
                    key = PublicKey.parse(line.text)
                except ConfigError as error:
                    raise line.error(error) from error
        if key is None:
            raise ConfigError(f"{where}: must hold a public key on a line of its own, holds none")
        return cls(name=name, key=key, datasets=ALL_DATASETS if datasets is None else datasets)

    def text(self) -> bytes:
        """Return the file's content, which `parse` reads."""
        datasets = "" if self.datasets == ALL_DATASETS else f"datasets = {', '.join(self.datasets)}\n"
        return f"# {self.name} may read from this host.\n{self.key}\n{datasets}".encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowList:
    """The keys that may connect at one moment. It is immutable."""

    rules: tuple[ClientRule, ...] = ()
    _by_key: MappingProxyType[PublicKey, ClientRule] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for first, second in same_keys(self.rules):
            raise ConfigError(f"each client must have a key of its own: {first.name} and {second.name} have the same")
        by_key = MappingProxyType({rule.key: rule for rule in self.rules})
        object.__setattr__(self, "_by_key", by_key)  # a frozen value is completed during its construction

    def find(self, key: PublicKey) -> ClientRule | None:
        """Return the rule of a key; None if the key may not connect."""
        return self._by_key.get(key)


def same_keys(rules: Iterable[ClientRule]) -> list[tuple[ClientRule, ClientRule]]:
    """Return each rule whose key an earlier rule has, preceded by the first rule with that key."""
    first: dict[PublicKey, ClientRule] = {}
    return [(first[rule.key], rule) for rule in rules if first.setdefault(rule.key, rule) is not rule]
