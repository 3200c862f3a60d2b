"""Ray Train: a loader in each worker, its position in the checkpoint. Needs: pip install "ray[train]" torch pillow.

    python examples/with_ray_train.py emlio://HOST:PORT/DATASET --folder run --workers 2

Covers: making the loader in the worker, saving its state with the model's, going on after a worker failed or the script
was started again. Does not cover: a GPU (`ScalingConfig(use_gpu=True)`).

What to note: Ray Train makes the process group before it calls the function, so the loader finds its rank. The state is
the same on all ranks, so rank 0 reports it; all ranks must report at the same step.
"""

import argparse
import json
import os
import tempfile
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import ray.train
import torch
from PIL import Image
from ray.train import Checkpoint, FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer, prepare_model
from torch import nn

from emlio import EmlioLoader


def train_on_each_worker(config: dict[str, Any]) -> None:
    """The lines a training script needs."""
    model = prepare_model(nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 1000)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    loader = EmlioLoader(
        config["address"], batch_size=config["batch_size"], seed=42, transform=decode, ids=bool(config["ids"])
    )
    if (checkpoint := ray.train.get_checkpoint()) is not None:
        with checkpoint.as_directory() as folder:
            saved = torch.load(Path(folder, "model.pt"), weights_only=True)
            model.load_state_dict(saved["model"])
            optimizer.load_state_dict(saved["optimizer"])
            loader.load_state_dict(json.loads(Path(folder, "loader.json").read_text()))
    steps = 0
    with loader:
        for epoch in range(loader.epoch, config["epochs"]):
            for batch in loader:
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(batch["pixels"]), batch["labels"])
                loss.backward()
                optimizer.step()
                if config["ids"]:
                    write_line(config["ids"], rank=loader.rank, epoch=epoch, ids=batch["__id__"].tolist())
                steps += 1
                if steps % config["save_every"] == 0:
                    report(model, optimizer, loader, float(loss.detach()))


def report(model: nn.Module, optimizer: torch.optim.Optimizer, loader: EmlioLoader, loss: float) -> None:
    """Report a step on all ranks, with a checkpoint of rank 0."""
    if ray.train.get_context().get_world_rank() != 0:
        ray.train.report({"loss": loss})
        return
    with tempfile.TemporaryDirectory() as folder:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, Path(folder, "model.pt"))
        Path(folder, "loader.json").write_text(json.dumps(loader.state_dict()))
        ray.train.report({"loss": loss}, checkpoint=Checkpoint.from_directory(folder))


def decode(sample: dict[str, Any]) -> dict[str, Any]:
    """Return the features of one picture."""
    with Image.open(BytesIO(sample["image/encoded"])) as picture:
        pixels = np.asarray(picture.convert("RGB").resize((16, 16)), np.float32) / 255
    made = {"pixels": pixels, "labels": np.int64(sample["image/class/label"])}
    return made | {name: sample[name] for name in ("__id__",) if name in sample}


def write_line(folder: str, **content: Any) -> None:
    """Write a line into this process's file."""
    with Path(folder, f"{os.getpid()}.jsonl").open("a") as file:
        file.write(json.dumps(content) + "\n")


def main() -> None:
    """Start the workers."""
    parser = argparse.ArgumentParser(description="Train with Ray Train on what a daemon pushes.")
    parser.add_argument("address", help="emlio://HOST:PORT/DATASET, of pictures as emlio convert or synth make them")
    parser.add_argument(
        "--folder", type=Path, default=Path("run"), help="for checkpoints, on a file system of all hosts"
    )
    parser.add_argument("--workers", type=int, default=2, help="default: 2")
    parser.add_argument("--batch-size", type=int, default=32, help="of each worker; default: 32")
    parser.add_argument("--epochs", type=int, default=2, help="default: 2")
    parser.add_argument("--save-every", type=int, default=20, metavar="STEPS", help="default: 20")
    parser.add_argument("--ids", help="a folder for the ids of all records that were seen")
    chosen = parser.parse_args()
    trainer = TorchTrainer(
        train_on_each_worker,
        train_loop_config={
            name: getattr(chosen, name) for name in ("address", "batch_size", "epochs", "save_every", "ids")
        },
        scaling_config=ScalingConfig(num_workers=chosen.workers),
        run_config=RunConfig(
            name="training",
            storage_path=str(chosen.folder.absolute()),
            failure_config=FailureConfig(max_failures=3),
        ),
    )
    print(trainer.fit().metrics)


if __name__ == "__main__":
    main()
