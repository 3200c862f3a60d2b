"""The part of webdataset, mosaicml-streaming and Hugging Face's datasets in the tests, in a process of its own.

Covers: writing folders with the libraries that define the formats, reading them with the same, saying what came out as
JSON lines. Does not cover: judging it.

    formats_side.py write-tars FOLDER FORMAT [below]   FORMAT as a number of Python's tarfile; below: no rooted names
    formats_side.py read-tars FOLDER
    formats_side.py decode-tars FOLDER           values as the library decodes them by extension
    formats_side.py write-mds FOLDER COMPRESSION
    formats_side.py read-mds FOLDER
    formats_side.py write-streams FOLDER COMPRESSION     two streams, train and val, of whole numbers, text and bytes
    formats_side.py write-datasets FOLDER SEED   a DatasetDict in FOLDER/saved, the same as tables in FOLDER/hub
    formats_side.py read-datasets FOLDER SPLIT   a split of FOLDER/saved
"""

import importlib.util
import json
import random
import sys
import tarfile
import types
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

SAMPLES = 60
SCALARS = ("uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "float32", "float64")


def plain(value: Any) -> Any:
    """A value as JSON can carry it without loss."""
    if isinstance(value, Image.Image):
        value = np.asarray(value)
    if isinstance(value, bytes | memoryview):
        return ["bytes", bytes(value).hex()]
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
        return [array.dtype.str, list(array.shape), array.tobytes().hex()]
    if isinstance(value, Decimal):
        return ["decimal", str(value)]
    if isinstance(value, float):
        return ["float", value.hex()]
    return value


def say(row: dict[str, Any]) -> None:
    """Write one record."""
    sys.stdout.write(json.dumps({name: plain(value) for name, value in row.items()}, sort_keys=True) + "\n")


def tar_samples(form: int, *, below: bool) -> list[dict[str, Any]]:
    """Samples of several extensions, long names, folders and names in other scripts."""
    samples: list[dict[str, Any]] = []
    for number in range(SAMPLES):
        draw = random.Random(number)
        long = "n" * (30 if form == tarfile.USTAR_FORMAT else 150)
        folder = ("", "train/", "a.b/c/", "./", "rooted/" if below else "/rooted/", "d" * 90 + "/", "ö/ß/")[number % 7]
        stem = f"{number:05d}" + (long if number % 5 == 0 else "")
        sample: dict[str, Any] = {"__key__": folder + stem, "cls": str(number % 10).encode()}
        sample["BIN" if number % 2 else "bin"] = draw.randbytes(draw.choice((0, 1, 511, 512, 513, 3000)))
        if number % 3 == 0:
            sample["seg.raw"] = draw.randbytes(100)
        if number % 4 == 0:
            sample["json"] = json.dumps({"n": number}).encode()
        samples.append(sample)
    return samples


def write_tars(folder: Path, form: int, *, below: bool) -> None:
    """Write shards with webdataset's TarWriter."""
    import webdataset

    folder.mkdir(parents=True)
    tarfile.DEFAULT_FORMAT = tarfile.TarFile.format = form
    samples = tar_samples(form, below=below)
    for shard in range(3):
        with webdataset.TarWriter(str(folder / f"s-{shard:03d}.tar"), encoder=False) as writer:
            for sample in samples[shard * 20 : shard * 20 + 20]:
                writer.write(sample)


def read_tars(folder: Path, *, decoded: bool = False) -> None:
    """Read them with webdataset."""
    import webdataset

    paths = [str(path) for path in sorted(folder.glob("*.tar"))]
    samples = webdataset.WebDataset(paths, shardshuffle=False, empty_check=False)
    for sample in samples.decode() if decoded else samples:
        say({name: value for name, value in sample.items() if not name.startswith("__") or name == "__key__"})


def mds_columns() -> dict[str, str]:
    """All encodings that need no pickle."""
    return {
        **{f"s_{name}": name for name in SCALARS},
        "any": "ndarray",
        "bytes": "bytes",
        "decimal": "str_decimal",
        "fixed": "ndarray:int16:2,3",
        "flt": "str_float",
        "int": "int",
        "jpeg": "jpeg",
        "json": "json",
        "num": "str_int",
        "pil": "pil",
        "png": "png",
        "text": "str",
        "typed": "ndarray:float32",
    }


def mds_sample(number: int) -> dict[str, Any]:
    """A sample of all columns; what is drawn follows from its number."""
    draw, noise = random.Random(number), np.random.default_rng(number)
    kinds = [np.uint8, np.int8, np.uint16, np.int16, np.float16, np.uint32, np.int32, np.float32, np.uint64, np.int64]
    shape = [(3,), (1, 300), (2, 2, 2), (70_000,)][number % 4]
    mode = ["L", "RGB", "RGBA", "CMYK", "LA", "F", "I", "I;16"][number % 8]
    pixels = noise.integers(0, 256, (9, 7, 3), np.uint8)
    picture = Image.fromarray(pixels)
    kept = Image.frombytes("I;16", (7, 9), noise.bytes(126)) if mode == "I;16" else picture.convert(mode)
    return {
        **{f"s_{name}": np.dtype(name).type(draw.randrange(100)) for name in SCALARS},
        "s_int64": np.int64(draw.randrange(-(2**63), 2**63)),
        "any": (noise.random(shape) * 100).astype(kinds[number % len(kinds)]),
        "bytes": draw.randbytes(draw.choice((0, 1, 5000))),
        "decimal": Decimal(draw.randrange(10**30)) / 7,
        "fixed": noise.integers(-9, 9, (2, 3)).astype(np.int16),
        "flt": draw.uniform(-1e300, 1e300),
        "int": draw.randrange(-(2**63), 2**63),
        "jpeg": picture,
        "json": {"list": [number, 1.5, None], "ü": True},
        "num": draw.randrange(-(10**30), 10**30) if number % 2 else number,
        "pil": kept,
        "png": picture,
        "text": "ü" * (number % 5),
        "typed": noise.random((number % 3 + 1, 2)).astype(np.float32),
    }


def _find_streaming() -> None:
    """Let mosaicml-streaming's formats be imported without the rest of it, which needs transformers and clouds."""
    spec = importlib.util.find_spec("streaming")
    if spec is None or spec.origin is None:
        raise SystemExit("mosaicml-streaming is not installed")
    for name in ("streaming", "streaming.base"):
        module = types.ModuleType(name)
        module.__path__ = [str(Path(spec.origin).parent.joinpath(*name.split(".")[1:]))]
        sys.modules[name] = module


def write_mds(folder: Path, compression: str | None) -> None:
    """Write shards with MDSWriter."""
    _find_streaming()
    from streaming.base.format.mds import MDSWriter

    with MDSWriter(
        out=str(folder), columns=mds_columns(), compression=compression, size_limit=400_000, hashes=["sha1"]
    ) as writer:
        for number in range(SAMPLES):
            writer.write(mds_sample(number))


def read_mds(folder: Path) -> None:
    """Read them with the library's reader; encoded images as the bytes that lie in the shard."""
    _find_streaming()
    from streaming.base.format import reader_from_json
    from streaming.base.format.mds import encodings

    encodings.JPEG.decode = encodings.PNG.decode = lambda self, data: data  # type: ignore[method-assign]
    index = json.loads((folder / "index.json").read_text())
    for shard in index["shards"]:
        reader = reader_from_json(str(folder), None, shard)
        for number in range(reader.size):
            say(reader.get_item(number))


def write_streams(folder: Path, compression: str | None) -> None:
    """Write streams of few columns with MDSWriter."""
    _find_streaming()
    from streaming.base.format.mds import MDSWriter

    columns = {"u": "uint64", "text": "str", "x": "bytes"}
    for place, stream in enumerate(("train", "val")):
        draw = random.Random(place)
        with MDSWriter(out=str(folder / stream), columns=columns, compression=compression, size_limit=900) as writer:
            for number in range(SAMPLES >> place):
                data = draw.randbytes(draw.choice((0, 1, 60)))
                writer.write({"u": np.uint64(draw.randrange(1 << 64)), "text": f"ü{number}", "x": data})


def write_datasets(folder: Path, seed: int) -> None:
    """Write splits with Hugging Face's datasets: columns, nulls, and rows are drawn."""
    import datasets
    import pyarrow

    draw = random.Random(seed)
    known: dict[str, tuple[Any, Any]] = {
        "f": (datasets.Value("float32"), lambda: draw.choice((0.5, float("inf"), -1.0))),
        "i": (datasets.Value("int64"), lambda: draw.randrange(-(1 << 63), 1 << 63)),
        "label": (datasets.ClassLabel(names=["cat", "dog"]), lambda: draw.randrange(2)),
        "list": (
            datasets.Sequence(datasets.Value("int32")),
            lambda: [draw.randrange(9) for _ in range(draw.randrange(3))],
        ),
        "text": (datasets.Value("string"), lambda: "ü" * draw.randrange(4)),
        "u": (datasets.Value("uint64"), lambda: draw.choice((0, 1 << 63, (1 << 64) - 1))),
        "x": (datasets.Value("binary"), lambda: draw.randbytes(draw.randrange(9))),
    }
    chosen = dict(draw.sample(sorted(known.items()), draw.randrange(2, len(known))))
    features = datasets.Features({name: feature for name, (feature, _) in chosen.items()})
    made = datasets.DatasetDict()
    for split in draw.choice((("train", "test"), ("train", "validation", "test"), ("one", "two"))):
        count = draw.randrange(1, 20)
        arrays = [
            pyarrow.array([one() if draw.random() < 0.8 else None for _ in range(count)], kind)
            for (_, one), kind in zip(chosen.values(), features.arrow_schema.types, strict=True)
        ]
        # Not from a dict: that refuses whole numbers from 2^63 on.
        made[split] = datasets.Dataset(pyarrow.table(arrays, schema=features.arrow_schema))
    made.save_to_disk(
        str(folder / "saved"), num_shards=dict.fromkeys(made, draw.randrange(1, 3)) if len(made) < 3 else None
    )
    (folder / "hub" / "data").mkdir(parents=True)
    (folder / "hub" / "README.md").write_text("x")
    for split, dataset in made.items():
        dataset.to_parquet(str(folder / "hub" / "data" / f"{split}-00000-of-00001.parquet"))


def read_datasets(folder: Path, split: str) -> None:
    """Read a split with Hugging Face's datasets."""
    import datasets

    for row in datasets.load_from_disk(str(folder / "saved"))[split]:
        say(row)


def main() -> None:
    """Do what the command line says."""
    command, folder, *rest = sys.argv[1:]
    if command == "write-tars":
        write_tars(Path(folder), int(rest[0]), below="below" in rest)
    elif command in ("read-tars", "decode-tars"):
        read_tars(Path(folder), decoded=command == "decode-tars")
    elif command == "write-mds":
        write_mds(Path(folder), rest[0] or None)
    elif command == "write-streams":
        write_streams(Path(folder), rest[0] or None)
    elif command == "write-datasets":
        write_datasets(Path(folder), int(rest[0]))
    elif command == "read-datasets":
        read_datasets(Path(folder), rest[0])
    else:
        read_mds(Path(folder))


if __name__ == "__main__":
    main()
