"""PyTorch Lightning's Trainer on what a daemon pushes. Needs: pip install lightning pillow.

    python examples/with_lightning.py emlio://HOST:PORT/DATASET --devices 2

Covers: two and more processes that Lightning starts, checkpoints in the middle of an epoch, going on from one. Does not
cover: a model worth training.

What to note:

* The loader is made in `train_dataloader`, when the process group exists. Made at the top of the script it would not
  know its rank: Lightning starts the other processes later, without the variable RANK.
* A checkpoint made after an epoch's last batch has an empty rest, for which Lightning would stop with "No training
  batches"; `Loader` takes it for the beginning of the next epoch.
* Its checkpoints hold the loader's state, because the loader has `state_dict` and `load_state_dict`.
* Pictures are decoded in `transform`: Lightning walks through what is in a batch, and cannot walk through views of
  bytes.
"""

import argparse
import json
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.pytorch import LightningDataModule, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from PIL import Image
from torch import nn

from emlio import EmlioLoader


class Loader(EmlioLoader):
    """For Lightning, a checkpoint made after an epoch's last batch belongs to the next epoch."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there; not with an empty rest, for which Lightning would stop."""
        super().load_state_dict(state)
        if not self.remaining:
            self.set_epoch(self.epoch + 1)


class Pictures(LightningDataModule):
    """Where the batches come from."""

    def __init__(self, address: str, batch_size: int, ids: bool) -> None:
        super().__init__()
        self._address, self._batch_size, self._ids = address, batch_size, ids
        self._loader: EmlioLoader | None = None

    def train_dataloader(self) -> EmlioLoader:
        """Called by the Trainer, once in each process."""
        self._loader = Loader(self._address, batch_size=self._batch_size, seed=42, transform=decode, ids=self._ids)
        return self._loader

    def teardown(self, stage: str) -> None:
        """Called by the Trainer when `fit` ends."""
        if self._loader is not None:
            self._loader.close()


class Network(LightningModule):
    """A linear model; `log_to` is for who wants to see which records came."""

    def __init__(self, log_to: Path | None) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 1000))
        self._log_to = log_to

    def training_step(self, batch: dict[str, Any], step: int) -> torch.Tensor:
        """One step."""
        if self._log_to is not None:
            write_line(self._log_to, rank=self.global_rank, epoch=self.current_epoch, ids=batch["__id__"].tolist())
        return nn.functional.cross_entropy(self.layers(batch["pixels"]), batch["labels"])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Of all parameters."""
        return torch.optim.SGD(self.parameters(), lr=1e-2)


def decode(sample: dict[str, Any]) -> dict[str, Any]:
    """One record to what the model takes; runs in the loader's thread, ahead of the training."""
    with Image.open(BytesIO(sample.pop("image/encoded"))) as image:
        pixels = np.asarray(image.convert("RGB").resize((16, 16)), np.float32) / 255
    ids = {"__id__": sample["__id__"]} if "__id__" in sample else {}
    return {"pixels": pixels, "labels": sample["image/class/label"], **ids}


def write_line(path: Path, **values: object) -> None:
    """Append a line of JSON."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(values) + "\n")


def arguments() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(description="Train with PyTorch Lightning on what a daemon pushes.")
    parser.add_argument("address", help="emlio://HOST:PORT/DATASET, of pictures as emlio convert or synth make them")
    parser.add_argument("--epochs", type=int, default=2, help="default: 2")
    parser.add_argument("--batch-size", type=int, default=32, help="default: 32")
    parser.add_argument("--devices", type=int, default=1, help="processes on this machine (default: 1)")
    parser.add_argument("--accelerator", default="cpu", help="default: cpu")
    parser.add_argument("--folder", type=Path, default=Path("lightning-run"), help="default: lightning-run")
    parser.add_argument("--save-every", type=int, default=100, metavar="STEPS", help="default: 100")
    parser.add_argument("--resume", metavar="CHECKPOINT", help="go on from this file")
    parser.add_argument("--ids", type=Path, metavar="FILE", help="write which records came, as lines of JSON")
    return parser.parse_args()


def main() -> None:
    """Train."""
    chosen = arguments()
    checkpoints = ModelCheckpoint(
        chosen.folder, filename="{step}", every_n_train_steps=chosen.save_every, save_top_k=-1
    )
    trainer = Trainer(
        accelerator=chosen.accelerator,
        devices=chosen.devices,
        strategy="ddp" if chosen.devices > 1 else "auto",
        max_epochs=chosen.epochs,
        callbacks=[checkpoints],
        default_root_dir=chosen.folder,
        logger=False,
        enable_progress_bar=False,
    )
    pictures = Pictures(chosen.address, chosen.batch_size, ids=chosen.ids is not None)
    trainer.fit(Network(chosen.ids), datamodule=pictures, ckpt_path=chosen.resume)


if __name__ == "__main__":
    main()
