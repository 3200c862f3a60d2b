"""Hugging Face Accelerate on what a daemon pushes. Needs: pip install accelerate pillow.

    accelerate launch --num_processes 2 examples/with_accelerate.py emlio://HOST:PORT/DATASET

Covers: several processes, checkpoints in the middle of an epoch, going on from one with another number of processes.
Does not cover: a model worth training.

What to note:

* `prepare` hands the loader back as it is. It shards and wraps torch's own DataLoader only, so nothing is shared out
  twice. For the same reason it does not move batches to the device; `send_to_device` does.
* `register_for_checkpointing` puts the loader's state into `save_state` and `load_state`.
* `skip_first_batches` is not needed, and does not work: the loader goes on where it was.
* On machines without a GPU `Accelerator(cpu=True)` is needed; else each process trains alone, though torchrun started
  several.
* The last batch of an epoch may be one sample shorter on some ranks. Who gathers over ranks wants `drop_last=True` or
  `pad=True`.
"""

import argparse
import json
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import send_to_device
from PIL import Image
from torch import nn

from emlio import EmlioLoader


def train(chosen: argparse.Namespace) -> None:
    """The lines a training script needs."""
    accelerator = Accelerator(cpu=not torch.cuda.is_available())
    loader = EmlioLoader(
        chosen.address, batch_size=chosen.batch_size, seed=42, transform=decode, ids=chosen.ids is not None
    )
    network = nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 1000))
    model, optimizer, loader = accelerator.prepare(network, torch.optim.SGD(network.parameters(), lr=1e-2), loader)
    accelerator.register_for_checkpointing(loader)
    if chosen.resume:
        accelerator.load_state(chosen.resume)
    steps = records = 0
    for epoch in range(loader.epoch, chosen.epochs):
        for batch in loader:
            batch = send_to_device(batch, accelerator.device)
            loss = nn.functional.cross_entropy(model(batch["pixels"]), batch["labels"])
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            if chosen.ids is not None:
                write_line(chosen.ids, rank=accelerator.process_index, epoch=epoch, ids=batch["__id__"].tolist())
            steps += 1
            records += len(batch["labels"])
            if steps % chosen.save_every == 0:
                accelerator.save_state(str(chosen.folder / checkpoint_name(loader)))
        last = chosen.folder / f"epoch-{epoch}"
        accelerator.save_state(str(last))
    if steps:
        accelerator.print(
            f"{records} records of rank 0 in {steps} steps, up to epoch {epoch}; the last checkpoint is {last}"
        )
    loader.close()
    accelerator.end_training()


def decode(sample: dict[str, Any]) -> dict[str, Any]:
    """One record to what the model takes; runs in the loader's thread, ahead of the training."""
    with Image.open(BytesIO(sample.pop("image/encoded"))) as image:
        pixels = np.asarray(image.convert("RGB").resize((16, 16)), np.float32) / 255
    ids = {"__id__": sample["__id__"]} if "__id__" in sample else {}
    return {"pixels": pixels, "labels": sample["image/class/label"], **ids}


def checkpoint_name(loader: EmlioLoader) -> str:
    """Where the job is in its data, whatever the number of processes."""
    state = loader.state_dict()
    return f"epoch-{state['epoch']}-at-{state['consumed']}"


def write_line(path: Path, **values: object) -> None:
    """Append a line of JSON."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(values) + "\n")


def main() -> None:
    """What the command line says."""
    parser = argparse.ArgumentParser(description="Train with Accelerate on what a daemon pushes.")
    parser.add_argument("address", help="emlio://HOST:PORT/DATASET, of pictures as emlio convert or synth make them")
    parser.add_argument("--epochs", type=int, default=2, help="default: 2")
    parser.add_argument("--batch-size", type=int, default=32, help="default: 32")
    parser.add_argument("--folder", type=Path, default=Path("accelerate-run"), help="default: accelerate-run")
    parser.add_argument("--save-every", type=int, default=100, metavar="STEPS", help="default: 100")
    parser.add_argument("--resume", metavar="CHECKPOINT", help="go on from this folder")
    parser.add_argument("--ids", type=Path, metavar="FILE", help="write which records came, as lines of JSON")
    train(parser.parse_args())


if __name__ == "__main__":
    main()
