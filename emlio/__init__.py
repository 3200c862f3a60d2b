"""EMLIO feeds training jobs from remote storage.

The names below are loaded on first use: a storage node that imports `emlio.daemon` never loads the
loader, and importing `emlio` loads neither ZeroMQ nor torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from emlio.receiver.loader import EmlioLoader
    from emlio.tokens import TokenBatches

__all__ = ["EmlioLoader", "TokenBatches", "__version__"]

__version__ = "0.1.0"

_LAZY = {"EmlioLoader": "emlio.receiver.loader", "TokenBatches": "emlio.tokens"}


def __getattr__(name: str) -> object:
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module 'emlio' has no attribute {name!r}")
    return getattr(import_module(module), name)
