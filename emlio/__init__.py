"""EMLIO feeds training jobs from remote storage.

The names below are loaded on first use: a storage node that imports `emlio.daemon` never loads the
loader, and importing `emlio` loads neither ZeroMQ nor torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from emlio.planner.choice.fraction import Fraction, train_test_split
    from emlio.planner.choice.where import Where
    from emlio.prepare.writer import Writer
    from emlio.receiver.addresses.security import Security
    from emlio.receiver.dali.pipeline import DaliPipeline
    from emlio.receiver.dataset import EmlioDataset
    from emlio.receiver.loader import EmlioLoader
    from emlio.receiver.setup.mixture import Mixture
    from emlio.receiver.setup.recovery import Recovery
    from emlio.receiver.setup.subset import Ids, Weights
    from emlio.receiver.tuning.choice import Joules
    from emlio.tokens import TokenBatches

__all__ = [
    "DaliPipeline",
    "EmlioDataset",
    "EmlioLoader",
    "Fraction",
    "Ids",
    "Joules",
    "Mixture",
    "Recovery",
    "Security",
    "TokenBatches",
    "Weights",
    "Where",
    "Writer",
    "__version__",
    "train_test_split",
]

__version__ = "0.1.0"

_LAZY = {
    "DaliPipeline": "emlio.receiver.dali.pipeline",
    "EmlioDataset": "emlio.receiver.dataset",
    "EmlioLoader": "emlio.receiver.loader",
    "Fraction": "emlio.planner.choice.fraction",
    "Ids": "emlio.receiver.setup.subset",
    "Joules": "emlio.receiver.tuning.choice",
    "Mixture": "emlio.receiver.setup.mixture",
    "Recovery": "emlio.receiver.setup.recovery",
    "Security": "emlio.receiver.addresses.security",
    "TokenBatches": "emlio.tokens",
    "Weights": "emlio.receiver.setup.subset",
    "Where": "emlio.planner.choice.where",
    "Writer": "emlio.prepare.writer",
    "train_test_split": "emlio.planner.choice.fraction",
}


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> object:
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module 'emlio' has no attribute {name!r}")
    return getattr(import_module(module), name)
