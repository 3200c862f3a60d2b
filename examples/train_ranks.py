"""The processes that train together in `train.py`, and the wish to stop.

Covers: the process group, questions and sums over all ranks, SIGTERM. Does not cover: gradients, which
DDP exchanges (train_model.py).
"""

import os
import signal
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

__all__ = ["Ranks", "Stop"]


class Ranks:
    """This process among those that train together; alone where torchrun did not start it."""

    def __init__(self, device: str) -> None:
        cuda = device == "cuda" or (device == "auto" and torch.cuda.is_available())
        self.device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if cuda else torch.device("cpu")
        if cuda:
            torch.cuda.set_device(self.device)
        self.rank, self.size = 0, 1
        if "RANK" in os.environ:
            dist.init_process_group("nccl" if cuda else "gloo", device_id=self.device if cuda else None)
            # A group of its own for questions and figures, so that no answer has to wait for the GPU.
            self._control: Any = dist.new_group(backend="gloo")
            self.rank, self.size = dist.get_rank(), dist.get_world_size()

    def ask(self, wish: bool) -> Callable[[], bool]:
        """Whether any rank wishes it. The question travels while the step runs; call what is returned for the answer."""
        flag = torch.tensor([int(wish)])
        work = dist.all_reduce(flag, dist.ReduceOp.MAX, self._control, async_op=True) if self.size > 1 else None

        def answer() -> bool:
            if work is not None:
                work.wait()
            return bool(flag.item())

        return answer

    def totals(self, values: Sequence[float]) -> list[float]:
        """The sums over all ranks."""
        sums = torch.tensor(values, dtype=torch.float64)
        if self.size > 1:
            dist.all_reduce(sums, group=self._control)
        return [float(value) for value in sums]

    def collect(self, value: Any) -> list[Any]:
        """Every rank's value, at rank 0; nothing elsewhere."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size if self.rank == 0 else []
        dist.gather_object(value, values or None, group=self._control)
        return values

    def meet(self) -> None:
        """Wait until all ranks are here."""
        self.ask(False)()

    def close(self) -> None:
        """Leave the group."""
        if dist.is_initialized():
            dist.destroy_process_group()


class Stop:
    """Remembers SIGTERM; the ranks agree at their next step."""

    def __init__(self) -> None:
        self.wished = False
        signal.signal(signal.SIGTERM, self._note)

    def _note(self, *_: object) -> None:
        self.wished = True
