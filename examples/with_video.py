"""Short videos (.avi) decoded by a DALI pipeline on the CPU. Needs DALI, NumPy and Pillow.

    python examples/with_video.py                                            # writes videos, and reads them from the disk
    python examples/with_video.py --address emlio://HOST:PORT/DATASET         # folders of videos that a daemon serves

Covers: a container written without a video library, clips of equal length from videos of any, labels by folder. Does not
cover: training, long videos (cut them into clips beforehand: a record is one file).

What to note:

* The data are plain files, a folder for each class: no conversion. A daemon serves them with `--data clips=DIR`.
* `fn.decoders.video` takes a whole file from memory. On the CPU it decodes what its FFmpeg does, among it Motion JPEG as here.
  On the GPU, with `device="mixed"` and `device="cuda"` for the loader, NVDEC decodes H.264, HEVC, VP9 and AV1: that is what
  real data want, and it needs an NVIDIA GPU. `fn.readers.video` reads files itself and has no place here.
* The videos here hold still pictures that get brighter (or darker): so the output shows that frames come in order.
"""

import argparse
import io
import struct
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt
from nvidia.dali import fn
from nvidia.dali.pipeline import pipeline_def
from PIL import Image

import emlio.dali
from emlio import DaliPipeline, EmlioLoader

FRAMES = 8
SIZE = (48, 64)
RATE = 25


def _chunk(name: bytes, data: bytes) -> bytes:
    return name + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2)


def motion_jpeg(frames: Sequence[npt.NDArray[np.uint8]]) -> bytes:
    """Return an AVI file whose frames, (height, width, 3), are JPEG pictures."""
    pictures: list[bytes] = []
    for frame in frames:
        picture = io.BytesIO()
        Image.fromarray(frame).save(picture, "JPEG", quality=95)
        pictures.append(picture.getvalue())
    height, width = frames[0].shape[:2]
    count, longest = len(pictures), max(map(len, pictures))
    header = struct.pack("<14I", 1_000_000 // RATE, 0, 0, 0x10, count, 0, 1, 0, width, height, 0, 0, 0, 0)
    stream = struct.pack(
        "<4s4sIHHIIIIIIII4H",
        b"vids",
        b"MJPG",
        0,
        0,
        0,
        0,
        1,
        RATE,
        0,
        count,
        longest,
        0xFFFFFFFF,
        0,
        0,
        0,
        width,
        height,
    )
    form = struct.pack("<IiiHH4sIiiII", 40, width, height, 1, 24, b"MJPG", width * height * 3, 0, 0, 0, 0)
    chunks = [_chunk(b"00dc", picture) for picture in pictures]
    begins = np.cumsum([4, *(len(chunk) for chunk in chunks)]).tolist()
    index = b"".join(
        struct.pack("<4sIII", b"00dc", 0x10, begin, len(picture))
        for begin, picture in zip(begins, pictures, strict=False)
    )
    about = _chunk(b"LIST", b"strl" + _chunk(b"strh", stream) + _chunk(b"strf", form))
    parts = (
        _chunk(b"LIST", b"hdrl" + _chunk(b"avih", header) + about),
        _chunk(b"LIST", b"movi" + b"".join(chunks)),
        _chunk(b"idx1", index),
    )
    return _chunk(b"RIFF", b"AVI " + b"".join(parts))


def write_videos(directory: Path, records: int) -> None:
    """Write videos of 8 to 15 frames that get brighter or darker, in a folder for each way."""
    draws = np.random.default_rng(1)
    for number in range(records):
        way, step = (("brighter", 12), ("darker", -12))[number % 2]
        first = 40 if step > 0 else 215
        frames = [
            np.full((*SIZE, 3), first + step * place, np.uint8) for place in range(int(draws.integers(FRAMES, 16)))
        ]
        path = directory / way / f"{number:05d}.avi"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(motion_jpeg(frames))


@pipeline_def
def clips() -> Any:
    """Return the first frames of each video, (frames, height, width, 3), and the label."""
    encoded, label = emlio.dali.inputs("data", "label")
    frames = fn.decoders.video(encoded, device="cpu", sequence_length=FRAMES, start_frame=0)
    return fn.resize(frames, size=(32, 32)), label


def main() -> None:
    """Compare the brightness of first and last frames with each clip's label."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--address", help="a dataset of videos; by default some are written")
    parser.add_argument("--records", type=int, default=40, help="videos to write (default: %(default)s)")
    parser.add_argument("--batch-size", type=int, default=8, help="clips per batch (default: %(default)s)")
    chosen = parser.parse_args()
    with nullcontext() if chosen.address else TemporaryDirectory() as scratch:
        if scratch:
            write_videos(Path(scratch) / "videos", chosen.records)
        address = chosen.address or str(Path(scratch or "") / "videos")
        dali = DaliPipeline(clips, outputs=["clip", "label"])
        changes: dict[int, list[float]] = {}
        with EmlioLoader(address, chosen.batch_size, seed=42, dali=dali, to="numpy") as loader:
            names = loader.label_names
            for batch in loader:
                brightness = np.asarray(batch["clip"]).mean(axis=(2, 3, 4))  # (clips, frames)
                change = brightness[:, -1] - brightness[:, 0]
                for label, found in zip(np.asarray(batch["label"]).tolist(), change.tolist(), strict=True):
                    changes.setdefault(label, []).append(found)
        for label, seen in sorted(changes.items()):
            name = names.get(label, str(label))
            print(f"{name}: {len(seen)} clips of {FRAMES} frames, brightness {np.mean(seen):+.0f} from first to last")


if __name__ == "__main__":
    main()
