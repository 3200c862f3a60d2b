"""EMLIO feeds training jobs from remote storage.

The names below are loaded on first use: a storage node that imports `emlio.daemon` never loads the
loader, and importing `emlio` loads neither ZeroMQ nor torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from emlio.prepare.writer import Writer
    from emlio.receiver.addresses.security import Security
    from emlio.receiver.dali.pipeline import DaliPipeline
    from emlio.receiver.dataset import EmlioDataset
    from emlio.receiver.loader import EmlioLoader
    from emlio.receiver.setup.recovery import Recovery
    from emlio.tokens import TokenBatches

__all__ = [
    "DaliPipeline",
    "EmlioDataset",
    "EmlioLoader",
    "Recovery",
    "Security",
    "TokenBatches",
    "Writer",
    "__version__",
]

__version__ = "0.1.0"

_LAZY = {
    "DaliPipeline": "emlio.receiver.dali.pipeline",
    "EmlioDataset": "emlio.receiver.dataset",
    "EmlioLoader": "emlio.receiver.loader",
    "Recovery": "emlio.receiver.setup.recovery",
    "Security": "emlio.receiver.addresses.security",
    "TokenBatches": "emlio.tokens",
    "Writer": "emlio.prepare.writer",
}


def __getattr__(name: str) -> object:
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module 'emlio' has no attribute {name!r}")
    return getattr(import_module(module), name)
