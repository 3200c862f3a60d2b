"""A tf.data.Dataset made of a loader: the example as users start it, and what Keras makes of it."""

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest

from emlio.cli import main as emlio
from emlio_testing.processes import DaemonProcess

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(
        importlib.util.find_spec("tensorflow") is None, reason="TensorFlow is not installed: scripts/test --interop"
    ),
]

RECORDS, BATCH, STEPS = 101, 8, 13
EXAMPLE = Path(__file__).parents[2] / "examples" / "with_tensorflow.py"

KERAS = """
import json, runpy, sys
import tensorflow as tf
from emlio import EmlioLoader

example, address = sys.argv[1:]
parts = runpy.run_path(example)
with EmlioLoader(address, batch_size=8, seed=42, transform=parts["decode"], ids=True, to="numpy") as loader:
    class Handed(tf.keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            print(json.dumps({"steps": loader.stats().batches, **loader.state_dict()}))
    dataset = parts["dataset_of"](loader).map(lambda batch: (batch["pixels"], batch["labels"]))
    model = tf.keras.Sequential([tf.keras.layers.Flatten(), tf.keras.layers.Dense(1000)])
    model.compile("sgd", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(dataset, epochs=3, verbose=0, callbacks=[Handed()])
"""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("tf-data") / "pictures"
    made = ["synth", str(folder), "--records", str(RECORDS), "--image-size", "64x48", "--shard-size", "100kB"]
    assert emlio(made) == 0
    with DaemonProcess({"pictures": folder}, folder=folder.parent) as daemon:
        yield daemon.address("pictures")


def _python(*words: object) -> str:
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, *map(str, words)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def test_each_iteration_of_the_dataset_is_an_epoch_with_each_record_once(address: str, tmp_path: Path) -> None:
    _python(EXAMPLE, address, "--batch-size", BATCH, "--epochs", 2, "--ids", tmp_path / "seen")
    lines = [json.loads(line) for line in (tmp_path / "seen").read_text(encoding="utf-8").splitlines()]
    epochs = [[line["ids"] for line in lines if line["epoch"] == epoch] for epoch in range(2)]
    assert [len(batches) for batches in epochs] == [STEPS, STEPS]
    assert [sorted(chain.from_iterable(batches)) for batches in epochs] == [list(range(RECORDS))] * 2
    assert epochs[0] != epochs[1]


def test_keras_takes_each_epoch_once_and_none_for_itself(address: str) -> None:
    ends = [json.loads(line) for line in _python("-c", KERAS, EXAMPLE, address).splitlines()]
    assert [end["steps"] for end in ends] == [STEPS, 2 * STEPS, 3 * STEPS]
    assert [(end["epoch"], end["consumed"]) for end in ends] == [(1, 0), (2, 0), (3, 0)]
