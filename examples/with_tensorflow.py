"""tf.data on what a daemon pushes. Needs: pip install tensorflow pillow.

    python examples/with_tensorflow.py emlio://HOST:PORT/DATASET

Covers: a `tf.data.Dataset` made of a loader, trained on for some epochs. Does not cover: a model worth training;
several workers.

What to note:

* `from_generator` begins the loader anew each time the dataset is iterated, and so gets the next epoch.
* Whatever tf.data takes ahead (`prefetch`, `shuffle`) counts as handed out in the loader's state. The loader has
  taken ahead already.
* The loader does not read TF_CONFIG: with several workers give it `rank` and `world_size`, and switch tf.data's own
  sharding off.
* Pictures are decoded in `transform`. Who wants bytes in a tensor has to copy them: `[bytes(view) for view in
  batch["image/encoded"]]`.
"""

import argparse
import json
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from PIL import Image

from emlio import EmlioLoader


def dataset_of(loader: EmlioLoader) -> Any:
    """The loader as a tf.data.Dataset; each iteration is an epoch."""

    def batches() -> Iterator[dict[str, Any]]:
        yield from loader

    signature = {
        "pixels": tf.TensorSpec((None, 16, 16, 3), tf.float32),
        "labels": tf.TensorSpec((None,), tf.int64),
        "id": tf.TensorSpec((None,), tf.int64),
    }
    return tf.data.Dataset.from_generator(batches, output_signature=signature)


def train(chosen: argparse.Namespace) -> None:
    """The lines a training script needs."""
    loader = EmlioLoader(chosen.address, batch_size=chosen.batch_size, seed=42, transform=decode, ids=True, to="numpy")
    dataset = dataset_of(loader)
    model = tf.keras.Sequential([tf.keras.Input((16, 16, 3)), tf.keras.layers.Flatten(), tf.keras.layers.Dense(1000)])
    optimizer = tf.keras.optimizers.SGD(1e-2)
    loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    for epoch in range(chosen.epochs):
        for batch in dataset:
            with tf.GradientTape() as tape:
                loss = loss_of(batch["labels"], model(batch["pixels"], training=True))
            weights = model.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
            if chosen.ids is not None:
                write_line(chosen.ids, rank=loader.rank, epoch=epoch, ids=batch["id"].numpy().tolist())
    loader.close()


def decode(sample: dict[str, Any]) -> dict[str, Any]:
    """One record to what the model takes; runs in the loader's thread, ahead of the training."""
    with Image.open(BytesIO(sample["image/encoded"])) as image:
        pixels = np.asarray(image.convert("RGB").resize((16, 16)), np.float32) / 255
    return {"pixels": pixels, "labels": sample["image/class/label"], "id": sample["__id__"]}


def write_line(path: Path, **values: object) -> None:
    """Append a line of JSON."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(values) + "\n")


def main() -> None:
    """What the command line says."""
    parser = argparse.ArgumentParser(description="Train with TensorFlow on what a daemon pushes.")
    parser.add_argument("address", help="emlio://HOST:PORT/DATASET, of pictures as emlio convert or synth make them")
    parser.add_argument("--epochs", type=int, default=2, help="default: 2")
    parser.add_argument("--batch-size", type=int, default=32, help="default: 32")
    parser.add_argument("--ids", type=Path, metavar="FILE", help="write which records came, as lines of JSON")
    train(parser.parse_args())


if __name__ == "__main__":
    main()
