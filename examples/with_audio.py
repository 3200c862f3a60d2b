"""Recordings (.wav) decoded by a DALI pipeline: spectrograms with their labels. Needs DALI and NumPy.

    python examples/with_audio.py                                            # writes tones, and reads them from the disk
    python examples/with_audio.py --address emlio://HOST:PORT/DATASET         # folders of .wav files that a daemon serves

Covers: files of different length in one batch, decoding and spectrograms on the CPU. Does not cover: training.

What to note:

* The data are plain files, a folder for each class: no conversion. A daemon serves them with `--data speech=DIR`.
* `fn.decoders.audio` reads WAV, FLAC, Ogg Vorbis and others. It runs on the CPU only; what follows it runs on the GPU after
  `.gpu()`, with `device="cuda"` for the loader.
* Clips differ in length, and a batch is one array: so they are cut or filled to the same number of samples.
"""

import argparse
import wave
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from nvidia.dali import fn
from nvidia.dali.pipeline import pipeline_def
from nvidia.dali.types import DALIDataType

import emlio.dali
from emlio import DaliPipeline, EmlioLoader

RATE = 16_000
CLIP = 8_000
WINDOW = 512
TONES = (440.0, 1000.0, 3000.0)


def write_tones(directory: Path, records: int) -> None:
    """Write tones of 0.2 to 0.8 s, in a folder for each pitch."""
    draws = np.random.default_rng(1)
    for number in range(records):
        tone = TONES[number % len(TONES)]
        times = np.arange(int(RATE * draws.uniform(0.2, 0.8))) / RATE
        noise = draws.normal(0, 0.05, len(times))
        path = directory / f"{tone:.0f}Hz" / f"{number:05d}.wav"
        path.parent.mkdir(parents=True, exist_ok=True)
        with wave.open(str(path), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(RATE)
            file.writeframes(((0.5 * np.sin(2 * np.pi * tone * times) + noise) * 32_000).astype("<i2").tobytes())


@pipeline_def
def spectrograms() -> Any:
    """Return the power of each frequency over time, in decibels, and the label."""
    encoded, label = emlio.dali.inputs("data", "label")
    sound, _ = fn.decoders.audio(encoded, dtype=DALIDataType.FLOAT, downmix=True, sample_rate=RATE)
    sound = fn.slice(sound, start=[0], shape=[CLIP], axes=[0], out_of_bounds_policy="pad", fill_values=0.0)
    power = fn.spectrogram(sound, nfft=WINDOW, window_length=WINDOW, window_step=WINDOW // 2)
    return fn.to_decibels(power, cutoff_db=-80.0), label


def main() -> None:
    """Look for the loudest frequency of each clip, and compare it with the clip's label."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--address", help="a dataset of .wav files; by default tones are written")
    parser.add_argument("--records", type=int, default=60, help="tones to write (default: %(default)s)")
    parser.add_argument("--batch-size", type=int, default=16, help="clips per batch (default: %(default)s)")
    chosen = parser.parse_args()
    with nullcontext() if chosen.address else TemporaryDirectory() as scratch:
        if scratch:
            write_tones(Path(scratch) / "tones", chosen.records)
        address = chosen.address or str(Path(scratch or "") / "tones")
        dali = DaliPipeline(spectrograms, outputs=["spectrogram", "label"])
        heard: dict[int, list[float]] = {}
        with EmlioLoader(address, chosen.batch_size, seed=42, dali=dali, to="numpy") as loader:
            names = loader.label_names
            for batch in loader:
                power = np.asarray(batch["spectrogram"])  # (clips, frequencies, times)
                loudest = power.mean(axis=2).argmax(axis=1) * RATE / WINDOW
                for label, frequency in zip(np.asarray(batch["label"]).tolist(), loudest.tolist(), strict=True):
                    heard.setdefault(label, []).append(frequency)
        for label, found in sorted(heard.items()):
            name = names.get(label, str(label))
            print(f"{name}: {len(found)} clips, loudest at {np.median(found):.0f} Hz")


if __name__ == "__main__":
    main()
