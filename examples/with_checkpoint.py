"""torch.distributed.checkpoint: the position in the data beside the model. Needs: pip install torch pillow.

    torchrun --nproc-per-node 2 examples/with_checkpoint.py emlio://HOST:PORT/DATASET --folder run
    torchrun --nproc-per-node 3 examples/with_checkpoint.py emlio://HOST:PORT/DATASET --resume run/epoch-0-at-6400

Covers: saving and loading with one or several processes, going on with another number of them in the middle of an
epoch. Does not cover: sharded models; the optimizer, which torch.distributed.checkpoint.state_dict brings into a form
that can be saved.

What to note: the loader is a `Stateful`, as a module is, so it goes into the dictionary itself. Its state is the same
on all ranks, and is stored once. All ranks must save at the same step, as for the model. `async_save` takes the
position when it is called.
"""

import argparse
import json
import os
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed.checkpoint as dcp
from PIL import Image
from torch import distributed, nn

from emlio import EmlioLoader


def train(chosen: argparse.Namespace) -> None:
    """The lines a training script needs."""
    if "RANK" in os.environ:
        distributed.init_process_group("gloo")
    network = nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 1000))
    model = nn.parallel.DistributedDataParallel(network) if distributed.is_initialized() else network
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-2)
    loader = EmlioLoader(
        chosen.address, batch_size=chosen.batch_size, seed=42, transform=decode, ids=chosen.ids is not None
    )
    whole_state: dict[str, Any] = {"model": network, "loader": loader}
    if chosen.resume:
        dcp.load(whole_state, checkpoint_id=chosen.resume)
    steps = records = 0
    for epoch in range(loader.epoch, chosen.epochs):
        for batch in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(batch["pixels"]), batch["labels"]).backward()
            optimizer.step()
            if chosen.ids is not None:
                write_line(chosen.ids, rank=loader.rank, epoch=epoch, ids=batch["__id__"].tolist())
            steps += 1
            records += len(batch["labels"])
            if steps % chosen.save_every == 0:
                dcp.save(whole_state, checkpoint_id=chosen.folder / checkpoint_name(loader))
        last = chosen.folder / f"epoch-{epoch}"
        dcp.save(whole_state, checkpoint_id=last)
    if loader.rank == 0 and steps:
        print(f"{records} records of rank 0 in {steps} steps, up to epoch {epoch}; the last checkpoint is {last}")
    loader.close()
    if distributed.is_initialized():
        distributed.destroy_process_group()


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
    parser = argparse.ArgumentParser(description="Save and load the loader with torch.distributed.checkpoint.")
    parser.add_argument("address", help="emlio://HOST:PORT/DATASET, of pictures as emlio convert or synth make them")
    parser.add_argument("--epochs", type=int, default=2, help="default: 2")
    parser.add_argument("--batch-size", type=int, default=32, help="default: 32")
    parser.add_argument("--folder", type=Path, default=Path("checkpoint-run"), help="default: checkpoint-run")
    parser.add_argument("--save-every", type=int, default=100, metavar="STEPS", help="default: 100")
    parser.add_argument("--resume", metavar="CHECKPOINT", help="go on from this folder")
    parser.add_argument("--ids", type=Path, metavar="FILE", help="write which records came, as lines of JSON")
    train(parser.parse_args())


if __name__ == "__main__":
    main()
