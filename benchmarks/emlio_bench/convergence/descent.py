"""A step of gradient descent with momentum, for each training of the benchmarks.

It is written out, because torch's own optimisers import its compiler at their first step, which
takes seconds.

Covers: cross entropy of a network's scores, its gradient, the new weights. Does not cover:
networks. torch is imported by name.
"""

from importlib import import_module
from typing import Any, Final

__all__ = ["Descent"]

_RATE: Final = 0.05
_MOMENTUM: Final = 0.9


class Descent:
    """Gradient descent with momentum on the parameters of one network."""

    def __init__(self, network: Any, rate: float = _RATE) -> None:
        """Start without speed.

        Args:
            network: a torch module.
            rate: learning rate.
        """
        self._rate = rate
        self._torch: Any = import_module("torch")
        self._parameters = list(network.parameters())
        self._speeds = [self._torch.zeros_like(one) for one in self._parameters]

    def step(self, scores: Any, labels: Any) -> float:
        """Change the weights; return the loss before that, a float32.

        Args:
            scores: the network's scores of a batch.
            labels: the true classes.
        """
        loss = self._torch.nn.functional.cross_entropy(scores, labels)
        loss.backward()
        with self._torch.no_grad():
            for weights, speed in zip(self._parameters, self._speeds, strict=True):
                speed.mul_(_MOMENTUM).add_(weights.grad)
                weights.sub_(speed, alpha=self._rate)
                weights.grad = None
        return float(loss.item())
