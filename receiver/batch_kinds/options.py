"""The options for batches, checked against each other.

Covers: the options. Does not cover: the kind of batches that follows from them
(emlio.receiver.batch_kinds.choose).
"""

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, cast

from emlio.arguments import choice, flag, instance, whole
from emlio.errors import ConfigError
from emlio.extras import how_to_install
from emlio.receiver.dali.pipeline import DaliPipeline
from emlio.receiver.torch_adapter import is_torch_device, torch_is_installed
from emlio.tokens import TokenBatches

__all__ = ["BatchOptions"]

_ROWS = "rows"
_DEVICE = re.compile(r"cpu|cuda(:[0-9]+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOptions:
    """The options for batches: the loader's arguments with the same names."""

    raw: bool | str = False
    fields: Sequence[str] | None = None
    ids: bool = False
    seeds: bool = False
    transform: Callable[[Any], Any] | None = None
    collate_fn: Callable[[Sequence[Any]], Any] | None = None
    threads: int | None = None
    dali: DaliPipeline | None = None
    tokens: TokenBatches | None = None
    to: str | None = None
    device: str | None = None

    def __post_init__(self) -> None:
        for name in ("ids", "seeds"):
            object.__setattr__(self, name, flag(name, getattr(self, name)))
        if self.raw != _ROWS:
            object.__setattr__(self, "raw", flag("raw", self.raw, f', or "{_ROWS}"'))
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
            if not self.raw and self.to is None:
                raise ConfigError(
                    f"device {self.device!r} needs PyTorch, which is not installed: {how_to_install('torch')}"
                )
            raise ConfigError(
                f"device {self.device!r} needs torch's tensors, which to={self.to!r} or raw=True rules out"
            )

    def _check_fields(self) -> None:
        if self.raw and self.fields is not None:
            raise ConfigError(f"fields name features of decoded records; with raw={self.raw!r} there are none")
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

    def for_single_records(self) -> Self:
        """Return the options that decode records without a DALI pipeline or batches of tokens, on the CPU."""
        collate_fn = self.collate_fn if self.tokens is None else None  # that one is for rows of tokens
        return replace(self, dali=None, tokens=None, collate_fn=collate_fn, device=None)

    @property
    def tensors(self) -> bool:
        """Return whether numbers are handed out as torch tensors."""
        return self.raw is not True and (self.to == "torch" or (self.to is None and torch_is_installed()))

    @property
    def on_device(self) -> bool:
        """Return whether batches go to a CUDA device."""
        return self.device is not None and str(self.device) != "cpu"
