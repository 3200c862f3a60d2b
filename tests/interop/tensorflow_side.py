"""What TensorFlow does in the tests, in a process of its own.

Covers: writing TFRecord files with tf.io.TFRecordWriter, reading any with tf.data, saying what came out as JSON lines.
Does not cover: judging it.

    tensorflow_side.py write FOLDER FILES RECORDS COMPRESSION
    tensorflow_side.py read FOLDER FEATURES      features as JSON: {name: [kind, length, or null for any length]}
"""

import hashlib
import json
import random
import sys
from pathlib import Path
from typing import Any

import tensorflow as tf


def example(number: int) -> bytes:
    """A record of all kinds of features; what is drawn follows from its number."""
    draw = random.Random(number)
    lists: dict[str, Any] = {
        "bytes/fixed": tf.train.Feature(bytes_list=tf.train.BytesList(value=[draw.randbytes(16)])),
        "bytes/sized": tf.train.Feature(
            bytes_list=tf.train.BytesList(value=[draw.randbytes(draw.choice((0, 1, 127, 128, 40_000)))])
        ),
        "bytes/text": tf.train.Feature(bytes_list=tf.train.BytesList(value=[f"Größe {number}".encode()])),
        "float/box": tf.train.Feature(float_list=tf.train.FloatList(value=[draw.uniform(-1e9, 1e9) for _ in range(4)])),
        "float/many": tf.train.Feature(
            float_list=tf.train.FloatList(value=[draw.random() for _ in range(draw.randrange(1, 60))])
        ),
        "float/weight": tf.train.Feature(float_list=tf.train.FloatList(value=[float(number) / 3])),
        "int/ids": tf.train.Feature(
            int64_list=tf.train.Int64List(value=[-(2**63), 2**63 - 1, draw.randrange(-(2**40), 2**40)])
        ),
        "int/label": tf.train.Feature(int64_list=tf.train.Int64List(value=[draw.randrange(-5, 1000)])),
        "int/many": tf.train.Feature(
            int64_list=tf.train.Int64List(value=[draw.randrange(300) for _ in range(draw.randrange(1, 80))])
        ),
    }
    message = tf.train.Example(features=tf.train.Features(feature=lists))
    # A map's order on the wire is free unless it is fixed: the same record must be the same bytes in every process.
    data: bytes = message.SerializeToString(deterministic=True)
    return data


def write(folder: Path, files: int, records: int, compression: str) -> None:
    """Write files of Examples, numbered through all of them."""
    folder.mkdir(parents=True)
    ending = {"": "", "GZIP": ".gz", "ZLIB": ".zlib"}[compression]
    for file in range(files):
        path = folder / f"train.tfrecord-{file:05d}-of-{files:05d}{ending}"
        with tf.io.TFRecordWriter(str(path), tf.io.TFRecordOptions(compression_type=compression)) as writer:
            for number in range(file * records // files, (file + 1) * records // files):
                writer.write(example(number))


def plain(value: Any) -> Any:
    """A tensor as JSON can carry it without loss."""
    array = tf.sparse.to_dense(value) if isinstance(value, tf.SparseTensor) else value
    items = array.numpy().reshape(-1).tolist()
    return [item.hex() if isinstance(item, (bytes, float)) else item for item in items]


def read(folder: Path, features: dict[str, Any]) -> None:
    """One line for each record: the digest of its bytes, and its features."""
    kinds = {"bytes": tf.string, "float": tf.float32, "int64": tf.int64}
    wanted = {
        name: tf.io.VarLenFeature(kinds[kind]) if length is None else tf.io.FixedLenFeature([length], kinds[kind])
        for name, (kind, length) in features.items()
    }
    paths = sorted(
        str(path) for path in folder.iterdir() if ".tfrecord" in path.name and not path.name.endswith(".npy")
    )
    for record in tf.data.TFRecordDataset(paths):
        digest = hashlib.sha256(record.numpy()).hexdigest()
        found = (
            {name: plain(value) for name, value in tf.io.parse_single_example(record, wanted).items()} if wanted else {}
        )
        sys.stdout.write(json.dumps({"digest": digest, "features": found}) + "\n")


def main() -> None:
    """Do what the command line says."""
    command, folder, *rest = sys.argv[1:]
    if command == "write":
        write(Path(folder), int(rest[0]), int(rest[1]), rest[2])
    else:
        read(Path(folder), json.loads(rest[0]))


if __name__ == "__main__":
    main()
