"""A first run: make a dataset, start a daemon, train on what it pushes, see where the time went.

Covers: the whole way once, with processes as in a real job, on one machine. Does not cover: training well. The model is small on
purpose; look at `train` for the lines a training script needs.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from emlio import EmlioLoader
from emlio.units import format_duration, format_size

CLASSES = 4
THUMBNAIL = (40, 30)
START_LIMIT_S = 30.0
STOP_LIMIT_S = 15.0

Sample = tuple[np.ndarray, int]
Step = Callable[[Any, Any], float]


@dataclass(frozen=True)
class RunningDaemon:
    """A daemon process and where it listens."""

    process: "subprocess.Popen[bytes]"
    address: str


def program(name: str) -> str:
    """A command of this environment, whatever the PATH says."""
    return str(Path(sys.executable).with_name(name))


def make_dataset(directory: Path, records: int) -> None:
    """Draw pictures; those of an earlier run are kept."""
    command = [program("emlio"), "synth", str(directory), "--records", str(records), "--classes", str(CLASSES)]
    done = subprocess.run([*command, "--shard-size", "8MiB"], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(f"quickstart: the dataset could not be made (emlio synth ended with {done.returncode})")
    print(f"   {done.stdout.strip()}")


@contextmanager
def daemon(served: str, log: Path) -> Iterator[RunningDaemon]:
    """A daemon that serves a folder as "pictures" while the context lasts."""
    ready = log.with_name("daemon.json")
    ready.unlink(missing_ok=True)
    command = [program("emlio-daemon"), "--data", f"pictures={served}", "--bind", "tcp://127.0.0.1:0"]
    command += ["--memory", "32MiB", "--ready-file", str(ready)]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stderr=output)
    try:
        deadline = time.monotonic() + START_LIMIT_S
        while not ready.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"quickstart: the daemon did not start:\n{log.read_text(errors='replace')}")
            time.sleep(0.02)
        endpoint: str = json.loads(ready.read_text())["endpoint"]
        yield RunningDaemon(process=process, address=endpoint.replace("tcp://", "emlio://") + "/pictures")
    finally:
        process.terminate()
        try:
            process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def decode(sample: dict[str, Any]) -> Sample:
    """One record to a small picture and its label; runs in the loader's thread, ahead of the training."""
    with Image.open(BytesIO(sample["image/encoded"])) as image:
        image.draft("RGB", THUMBNAIL)
        small = image.convert("RGB").resize(THUMBNAIL)
    return np.asarray(small, np.float32).transpose(2, 0, 1) / 255.0, int(sample["image/class/label"])


def decode_any(sample: dict[str, Any]) -> Sample:
    """A record of any format to a small picture and its label.

    A record without a picture becomes one of how often each byte occurs in it. Without labels, the model learns to tell short
    records from long ones, so that there is something to learn.
    """
    values = [value for value in sample.values() if isinstance(value, memoryview | np.ndarray | str)]
    raw = b"".join(value.encode() if isinstance(value, str) else np.asarray(value).tobytes() for value in values)
    label = next((sample[name] for name in ("label", "image/class/label", "cls") if name in sample), None)
    if label is None:
        label = min(len(raw).bit_length() // 2, CLASSES - 1)
    number = int(bytes(label)) if isinstance(label, memoryview) else int(label)
    for value in sample.values():
        if isinstance(value, memoryview):
            try:
                return decode({"image/encoded": value, "image/class/label": number})
            except OSError:
                continue  # not a picture; another column may be one
    width, height = THUMBNAIL
    counts = np.bincount(np.frombuffer(raw, np.uint8), minlength=3 * width * height)[: 3 * width * height]
    shares = 0.5 + 4 * counts / max(len(raw), 1)  # the model expects values around a half
    return shares.astype(np.float32).reshape(3, height, width), number


def softmax_model(classes: int) -> Step:
    """A linear softmax in NumPy: returns the function that makes one step and says the loss."""
    width, height = THUMBNAIL
    weights = np.zeros((3 * width * height + 1, classes))

    def step(images: np.ndarray, labels: np.ndarray) -> float:
        rows = images.reshape(len(images), -1) - 0.5
        inputs = np.hstack([rows, np.ones((len(rows), 1))])
        scores = inputs @ weights
        scores -= scores.max(axis=1, keepdims=True)
        chances = np.exp(scores)
        chances /= chances.sum(axis=1, keepdims=True)
        right = chances[np.arange(len(rows)), labels]
        chances[np.arange(len(rows)), labels] -= 1.0
        weights[...] -= 0.003 * inputs.T @ chances
        return float(-np.log(right + 1e-12).mean())

    return step


def torch_model(classes: int) -> Step:
    """A small convolutional network in PyTorch."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    layers = [
        nn.Conv2d(3, 16, 3, stride=2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
    ]
    network = nn.Sequential(*layers, nn.Flatten(), nn.Linear(512, classes)).to(device)
    optimiser = torch.optim.Adam(network.parameters(), lr=3e-3)

    def step(images: Any, labels: Any) -> float:
        loss = nn.functional.cross_entropy(network(images.to(device)), labels.to(device))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        return float(loss.item())

    return step


def train(
    address: str, model: Callable[[int], Step], *, anything: bool, to: str, epochs: int, batch_size: int
) -> tuple[EmlioLoader, list[float]]:
    """These lines are what a training script needs of EMLIO."""
    means: list[float] = []
    step: Step | None = None
    loader = EmlioLoader(
        address,
        batch_size=batch_size,
        shuffle=True,
        seed=42,
        fields=None if anything else ["image/encoded", "image/class/label"],
        transform=decode_any if anything else decode,
        to=to,
        prefetch="16MiB",
        epochs=epochs,
    )
    with loader:
        if anything:
            print(
                f"   {loader.records:,} records, columns {', '.join(loader.schema) or 'not known before the first record'}"
            )
        for epoch in range(epochs):
            losses: list[float] = []
            for images, labels in loader:
                if step is None:
                    step = model(max(CLASSES, len(loader.label_names)))
                losses.append(step(images, labels))
            means.append(sum(losses) / len(losses))
            print(f"   epoch {epoch}  {len(losses)} steps  mean loss {means[-1]:.3f}")
    return loader, means


def used_by(pid: int) -> tuple[float, int]:
    """The processor time of a process in seconds, and its memory in bytes, as the kernel says."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    seconds = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return seconds, int(fields[21]) * os.sysconf("SC_PAGE_SIZE")


def report(loader: EmlioLoader, daemon: int) -> None:
    """Where the time went, on both sides."""
    stats = loader.stats()
    elapsed = max(stats.wait_ns + stats.busy_ns, 1)
    cpu_s, memory_bytes = used_by(daemon)
    rows = [
        ("this process, training thread", ""),
        ("  waited for a batch", f"{format_duration(stats.wait_ns)} of {format_duration(elapsed)}"),
        ("  trained", format_duration(stats.busy_ns)),
        ("  first batch after", format_duration(stats.first_batch_ns or 0)),
        ("this process, beside it", ""),
        (
            "  received and checked",
            f"{format_duration(stats.receive_ns)} for {format_size(stats.received_bytes)}, read ahead included",
        ),
        ("  decoded and stacked", f"{format_duration(stats.assemble_ns)} for {stats.records:,} pictures"),
        (f"the daemon, process {daemon}", ""),
        ("  processor time", f"{cpu_s:.2f} s"),
        ("  memory in use", format_size(memory_bytes)),
    ]
    for name, value in rows:
        print(f"   {name:<32}{value}".rstrip())
    print(f"\n   {stats}")


def arguments() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(
        prog="examples/quickstart.py", description="Train a few steps on what a daemon pushes."
    )
    parser.add_argument("--torch", action="store_true", help="train a small network with PyTorch instead of NumPy")
    parser.add_argument(
        "--from",
        dest="source",
        metavar="DIR",
        help="train on this folder in its existing format, instead of pictures drawn for this run",
    )
    parser.add_argument("--directory", type=Path, default=Path("quickstart-data"), help="default: quickstart-data")
    parser.add_argument("--records", type=int, default=300, help="pictures of about 100 kB (default: 300)")
    parser.add_argument("--epochs", type=int, default=5, help="default: 5")
    parser.add_argument("--batch-size", type=int, default=32, help="default: 32")
    return parser.parse_args()


def main() -> int:
    """Run; 0 when the model learned something from what came."""
    chosen = arguments()
    # A shell's kill must not leave the daemon behind: as an exception it passes the `finally` above.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    started = time.monotonic()
    data: Path = chosen.directory / "pictures"
    chosen.directory.mkdir(parents=True, exist_ok=True)

    if chosen.source is None:
        print("\n1  A dataset: TFRecord shards of JPEG pictures, drawn for this run")
        make_dataset(data, chosen.records)
    else:
        print(f"\n1  A dataset: {chosen.source}, in its existing format")
        if not Path(chosen.source.partition("?")[0]).is_dir():
            sys.exit(f"quickstart: --from must be a folder, there is none at {chosen.source}")

    print("\n2  A daemon: it reads the records, shuffles, and pushes batches")
    log = chosen.directory / "daemon.log"
    with daemon(chosen.source or str(data), log) as running:
        print(f"   process {running.process.pid} serves {running.address}; its log is {log}")

        name = "a small convolutional network in PyTorch" if chosen.torch else "a linear softmax in NumPy"
        print(f"\n3  Training: {name} on {THUMBNAIL[0]}x{THUMBNAIL[1]} thumbnails, process {os.getpid()}")
        model, to = (torch_model, "torch") if chosen.torch else (softmax_model, "numpy")
        loader, means = train(
            running.address,
            model,
            anything=chosen.source is not None,
            to=to,
            epochs=chosen.epochs,
            batch_size=chosen.batch_size,
        )

        print("\n4  Where the time went")
        report(loader, running.process.pid)
    print(f'\nDone in {time.monotonic() - started:.1f} s; the daemon has ended. Next: README.md, "Serving data".')
    if len(means) > 1 and not means[-1] < means[0] and chosen.source is None:
        print("quickstart: the loss did not fall, which it should", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
