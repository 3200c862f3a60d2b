"""transformers' Trainer on what a daemon pushes. Needs: pip install transformers accelerate pillow.

    torchrun --nproc-per-node 2 examples/with_transformers.py emlio://HOST:PORT/DATASET

Covers: several processes, checkpoints in the middle of an epoch, going on from one. Does not cover: a model worth
training.

What to note:

* `get_train_dataloader` returns the loader, and the Trainer uses it as it is. It calls `set_epoch`, and takes the
  keys of a batch for the arguments of the model.
* `ignore_data_skip=True`: otherwise a resume tries to read and throw away what was trained on, which the loader does
  not need.
* The position is saved beside the Trainer's own files in `on_save`, and loaded in `on_train_begin`: not before, as
  the Trainer must see the length of a whole epoch first.
* On machines without a GPU `use_cpu=True` is needed; else each process trains alone, though torchrun started several.
* `per_device_train_batch_size` must say what the loader's `batch_size` says; the Trainer only counts with it.
"""

import argparse
import json
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from emlio import EmlioLoader


class PushedTrainer(Trainer):
    """A Trainer that gets its batches from a loader."""

    def __init__(self, loader: EmlioLoader, log_to: Path | None, **options: Any) -> None:
        super().__init__(**options)
        self._loader, self._log_to = loader, log_to

    def get_train_dataloader(self) -> Any:
        """Instead of a DataLoader over `train_dataset`."""
        return self._loader

    def training_step(self, model: nn.Module, inputs: dict[str, Any], *rest: Any, **named: Any) -> torch.Tensor:
        """Only to write down which records came: the model knows no such argument."""
        if self._log_to is not None:
            ids = inputs.pop("__id__").tolist()
            write_line(self._log_to, rank=self.args.process_index, epoch=self._loader.epoch, ids=ids)
        return super().training_step(model, inputs, *rest, **named)


class Position(TrainerCallback):
    """Saves and loads the loader's position with the Trainer's checkpoints."""

    def __init__(self, loader: EmlioLoader, resume: Path | None) -> None:
        self._loader, self._resume = loader, resume

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """The Trainer has restored what is its own."""
        if self._resume is not None:
            self._loader.load_state_dict(json.loads((self._resume / "loader.json").read_text(encoding="utf-8")))

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """The Trainer has written what is its own."""
        if state.is_world_process_zero:
            folder = Path(str(args.output_dir)) / f"checkpoint-{state.global_step}"
            (folder / "loader.json").write_text(json.dumps(self._loader.state_dict()), encoding="utf-8")


class Network(nn.Module):
    """A linear model that speaks as the Trainer expects: named inputs, and a loss among its outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 1000))

    def forward(self, pixels: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        """The loss and what it is of."""
        logits = self.layers(pixels)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


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
    parser = argparse.ArgumentParser(description="Train with transformers' Trainer on what a daemon pushes.")
    parser.add_argument("address", help="emlio://HOST:PORT/DATASET, of pictures as emlio convert or synth make them")
    parser.add_argument("--epochs", type=int, default=2, help="default: 2")
    parser.add_argument("--batch-size", type=int, default=32, help="default: 32")
    parser.add_argument("--folder", type=Path, default=Path("transformers-run"), help="default: transformers-run")
    parser.add_argument("--save-every", type=int, default=100, metavar="STEPS", help="default: 100")
    parser.add_argument("--resume", type=Path, metavar="CHECKPOINT", help="go on from this folder")
    parser.add_argument("--ids", type=Path, metavar="FILE", help="write which records came, as lines of JSON")
    return parser.parse_args()


def main() -> None:
    """Train."""
    chosen = arguments()
    settings = TrainingArguments(
        output_dir=str(chosen.folder),
        per_device_train_batch_size=chosen.batch_size,
        num_train_epochs=chosen.epochs,
        save_steps=chosen.save_every,
        ignore_data_skip=True,
        use_cpu=not torch.cuda.is_available(),
        report_to=[],
        disable_tqdm=True,
    )
    loader = EmlioLoader(
        chosen.address, batch_size=chosen.batch_size, seed=42, transform=decode, ids=chosen.ids is not None
    )
    position = Position(loader, chosen.resume)
    trainer = PushedTrainer(loader, chosen.ids, model=Network(), args=settings, callbacks=[position])
    trainer.train(resume_from_checkpoint=None if chosen.resume is None else str(chosen.resume))
    loader.close()


if __name__ == "__main__":
    main()
